"""Comparisons of pytrees, whose errors name the leaf that differs."""

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree


def require(condition: Any, message: str) -> None:
    """Raises an `AssertionError` with the message unless the condition holds.

    A function, because `python -O` leaves out `assert`.
    """
    if not bool(condition):
        raise AssertionError(message)


def equal(a: PyTree, b: PyTree, message: str = "") -> None:
    """Requires that two pytrees have the same structure and the same bits."""
    for path, x, y in _pairs(a, b, message):
        np.testing.assert_array_equal(x, y, err_msg=f"{message} {path}".strip())


def close(a: PyTree, b: PyTree, tolerance: float = 1e-5, message: str = "") -> None:
    """Requires that two pytrees have the same structure, and the same numbers up to rounding."""
    for path, x, y in _pairs(a, b, message):
        words = f"{message} {path}".strip()
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=words)


def differ(a: PyTree, b: PyTree) -> bool:
    """Whether two pytrees of the same structure differ in any element."""
    return any(
        (np.asarray(x) != np.asarray(y)).any()
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def all_finite(values: PyTree, message: str) -> None:
    """Requires that no leaf has a NaN or an infinite number."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        require(np.isfinite(leaf).all(), f"{message}: {tree.path(path) or 'it'} is not finite")


def _pairs(a: PyTree, b: PyTree, message: str) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """The path and both values of each leaf."""
    words = f"{message}: they have different structures".removeprefix(": ")
    require(jax.tree.structure(a) == jax.tree.structure(b), words)
    leaves = jax.tree_util.tree_leaves_with_path(a)
    return [
        (tree.path(path), np.asarray(x), np.asarray(y))
        for (path, x), y in zip(leaves, jax.tree.leaves(b), strict=True)
    ]
