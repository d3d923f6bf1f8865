"""The record of a kernel and its claims; claims_graphs.py and claims_models.py list all kernels."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxfl import kernels

KEY = jax.random.key(0)


def public_functions():
    """Each public function of the files of `jaxfl.kernels`, with its full name."""
    for module in pkgutil.iter_modules(kernels.__path__, "jaxfl.kernels."):
        for name, member in vars(importlib.import_module(module.name)).items():
            here = getattr(member, "__module__", None) == module.name
            if here and not inspect.isclass(member) and not name.startswith("_"):
                yield f"{module.name}.{name}", member


class Clients(NamedTuple):
    """What hypothesis draws. Client i is row i of everything."""

    models: jax.Array  # [M, D]
    ids: jax.Array  # [M] all different
    sizes: jax.Array  # [M] numbers of examples
    reported: jax.Array  # [M] bool


class Kernel(NamedTuple):
    """A kernel as a function of clients.

    Its arguments beside the models are made of them, and follow a relabelling.
    """

    name: str  # module.function, and which of its forms
    of: Callable[[Clients], jax.Array]
    # a relabelling of the clients permutes "rows" [M, ...], "pairs" [M, M], the first M "columns",
    # or "none"
    follows: str
    claims: str = ""  # words; test_properties.py explains each where it tests it
    degree: int | None = None  # f(a x) = a^degree f(x) for a > 0
    # finite for entries of models from 1e-decades to 1e+decades; if less, the docstring says so
    decades: int = 30
    # between equal results, relative to the largest entry of a result, or to 1
    tolerance: float = 1e-5


def grid(c):
    """Arbitrary values of pairs [M, M]."""
    return c.models[:, :1] - c.models[:, :1].T / 2


def line(c):
    """Similarities without rounding, so that ties are exact [M, M]."""
    return -jnp.abs(c.models[:, :1] - c.models[:, :1].T)


def each(function):
    """A function of one model, applied to all."""
    return lambda c: jax.vmap(function)(c.models)
