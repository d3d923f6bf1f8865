"""How a kernel and what is claimed of it are written down; claims_graphs.py and claims_models.py list all of them."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

KEY = jax.random.key(0)


class Clients(NamedTuple):
    """What hypothesis draws. Client i is row i of everything."""

    models: jax.Array  # [M, D]
    ids: jax.Array  # [M] all different
    sizes: jax.Array  # [M] numbers of examples
    heard: jax.Array  # [M] bool


class Kernel(NamedTuple):
    """A kernel as a function of clients. What it wants beside models is made of them, and follows a relabelling."""

    name: str  # module.function, and which of its forms
    of: Callable[[Clients], jax.Array]
    # a relabelling of the clients permutes "rows" [M, ...], "pairs" [M, M], the first M "columns",
    # or "none"
    follows: str
    claims: str = ""  # words, each explained where test_properties.py tests it
    degree: int | None = None  # f(a x) = a^degree f(x) for a > 0
    # finite for entries of models from 1e-decades to 1e+decades; if not 30, the docstring says so
    decades: int = 30
    tolerance: float = (
        1e-5  # between equal results, relative to the largest number of a result, or to 1
    )


def grid(c):
    """Any numbers, of pairs [M, M]."""
    return c.models[:, :1] - c.models[:, :1].T / 2


def line(c):
    """Similarities that are exact, and so are their ties [M, M]."""
    return -jnp.abs(c.models[:, :1] - c.models[:, :1].T)


def each(function):
    """A function of one model, of all."""
    return lambda c: jax.vmap(function)(c.models)
