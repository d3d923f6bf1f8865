"""Leaves of a model by their paths: a head and a body, the layers that are mixed, the others."""

import re
from collections.abc import Callable

import jax
from jaxtyping import Array

from jaxfl.errors import InputError, check
from jaxfl.types import Params

# A choice of leaves: a regular expression to find in their paths, or a predicate of the path.
Layers = str | Callable[[str], bool]


def path(keys: tuple) -> str:
    """The path of a leaf as text: `params/Dense_0/kernel`.

    Example:
      >>> model = {"params": {"Dense_0": {"kernel": 1.0}}}
      >>> [path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(model)]
      ['params/Dense_0/kernel']
    """
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def select(model: Params, predicate: Layers) -> list:
    """The leaves whose path satisfies the predicate.

    Args:
      model: one model or a stack.
      predicate: a function of the path (`params/Dense_0/kernel`), or a regular expression to find
        in it.

    Raises:
      InputError: no leaf satisfies it, or it is not a regular expression.

    Example:
      >>> model = {"Dense_0": {"kernel": 1.0, "bias": 2.0}, "Dense_1": {"kernel": 3.0, "bias": 4.0}}
      >>> select(model, "Dense_1"), select(model, lambda path: path.endswith("kernel"))
      ([4.0, 3.0], [1.0, 3.0])
    """
    holds = _path_test(predicate)
    paths = [(path(keys), leaf) for keys, leaf in jax.tree_util.tree_leaves_with_path(model)]
    chosen = [leaf for name, leaf in paths if holds(name)]
    check(
        bool(chosen),
        f"no layer matches {predicate!r}: choose from {', '.join(name for name, _ in paths)}",
    )
    return chosen


def _path_test(predicate: Layers) -> Callable:
    """The predicate as a function of a path."""
    if not isinstance(predicate, str):
        return predicate
    try:
        return re.compile(predicate).search
    except re.error as error:
        raise InputError(
            f"{predicate!r} is no regular expression ({error}): mend the pattern of layers"
        ) from error


def combine(predicate: Layers, inside: Params, outside: Params) -> Params:
    """A model with the leaves of `inside` where the predicate holds, elsewhere those of `outside`.

    Args:
      predicate: as in `select`.
      inside: one model or a stack.
      outside: of the same structure.

    Raises:
      InputError: the predicate is text and not a regular expression.

    Example:
      >>> trained = {"Dense_0": jnp.array(1.0), "Dense_1": jnp.array(2.0)}
      >>> received = {"Dense_0": jnp.array(3.0), "Dense_1": jnp.array(4.0)}
      >>> [leaf.item() for leaf in combine("Dense_1", trained, received).values()]
      [3.0, 2.0]
    """
    holds = _path_test(predicate)

    def pick(keys: tuple, a: Array | None, b: Array | None) -> Array | None:
        return a if holds(path(keys)) else b

    return jax.tree_util.tree_map_with_path(pick, inside, outside, is_leaf=lambda x: x is None)


def split(model: Params, predicate: Layers) -> tuple[Params, Params]:
    """Two parts of a model: the leaves whose path satisfies the predicate, and the other leaves.

    Each part has None where the other part has a leaf. JAX does not count None as a leaf, so a part
    has no other parameters than its own. `join` is the inverse.

    Args:
      model: one model or a stack.
      predicate: as in `select`, but no leaf needs to satisfy it.

    Example:
      >>> model = {"Dense_0": jnp.array(1.0), "Dense_1": jnp.array(2.0)}
      >>> head, body = split(model, "Dense_1")
      >>> head["Dense_0"], head["Dense_1"].item()
      (None, 2.0)
    """
    nothing = jax.tree.map(lambda x: None, model)
    return combine(predicate, model, nothing), combine(predicate, nothing, model)


def join(inside: Params, outside: Params) -> Params:
    """The inverse of `split`.

    Example:
      >>> model = {"Dense_0": jnp.array(1.0), "Dense_1": jnp.array(2.0)}
      >>> head, body = split(model, "Dense_1")
      >>> join(head, body) == model
      True
    """
    return jax.tree.map(
        lambda a, b: b if a is None else a, inside, outside, is_leaf=lambda x: x is None
    )
