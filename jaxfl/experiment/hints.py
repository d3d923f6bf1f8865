"""Type hints as checks of JSON: what a value of a config or a hyper-parameter may be."""

import typing
from typing import Any

import numpy as np

from jaxfl.hints import alternatives, describe

LARGEST = float(np.finfo(np.float32).max)  # beyond it a number is infinite where JAX computes


def accepts(hint: Any, value: Any) -> bool:
    """Whether a JSON value fits a type hint; of its types only those that JSON can hold count."""
    return any(_fits(alternative, value) for alternative in alternatives(hint))


def expected(hint: Any, value: Any) -> str:
    """What `accepts` wants in place of a value, in words."""
    number = type(value) in (int, float) and not abs(value) < 2**31  # none at all if it is NaN
    return describe(hint) + (", finite and within 32 bits" if number else "")


def _fits(hint: Any, value: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is float:
        return (type(value) is float and abs(value) <= LARGEST) or _fits(int, value)
    if origin is int:
        return type(value) is int and abs(value) < 2**31  # JAX counts in 32 bits
    return type(value) is origin
