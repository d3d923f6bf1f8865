"""Results that several tests share."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Make = TypeVar("_Make", bound=Callable)


def once(make: _Make) -> _Make:
    """As `functools.cache`, for arrays that tests share; a thread of its own makes them.

    The test that asks first may be in a trace, or in `jax.set_mesh`, whose arrays are on all its
    devices and stay there: the programs of later tests would be programs of these devices too, with
    other last digits. Traces and meshes are those of a thread.
    """

    @functools.cache
    @functools.wraps(make)
    def made_alone(*arguments: object) -> object:
        with ThreadPoolExecutor(1) as alone:
            return alone.submit(make, *arguments).result()

    return made_alone  # pyright: ignore[reportReturnType] - with a cache, but the same arguments
