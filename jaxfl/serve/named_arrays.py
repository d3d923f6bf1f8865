"""Pytrees as arrays by name, as messages and files hold them."""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check


def named(values: PyTree) -> dict[str, np.ndarray]:
    """The leaves of a pytree by path; a leaf alone has the name "array".

    Example:
      >>> named({"bias": jnp.zeros(2), "kernel": jnp.ones((3, 2))})["kernel"].shape
      (3, 2)
    """
    leaves = jax.tree_util.tree_leaves_with_path(values)
    return {tree.path(keys) or "array": np.asarray(leaf) for keys, leaf in leaves}


def from_named(arrays: Mapping[str, np.ndarray], like: PyTree) -> PyTree:
    """The inverse of `named`.

    Args:
      arrays: by name.
      like: a pytree of the same form, or its shapes; its values are not read.

    Raises:
      InputError: an array is missing or unknown, or has another shape or type; the message names it
        and says what was expected.

    Example:
      >>> from_named({"bias": np.zeros(3, np.float32)}, {"bias": jnp.zeros(2)})
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: bias is float32[3]: expected float32[2]
    """
    expected = jax.tree_util.tree_leaves_with_path(like)
    names = [tree.path(keys) or "array" for keys, _ in expected]
    check(not set(arrays) - set(names), _unknown(arrays, names))
    leaves = []
    for name, (_, leaf) in zip(names, expected, strict=True):
        if name not in arrays:
            raise InputError(f"no {name}: expected {_form(leaf)}")
        found = arrays[name]
        same = found.shape == leaf.shape and found.dtype == leaf.dtype
        check(same, f"{name} is {_form(found)}: expected {_form(leaf)}")
        leaves.append(found)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _form(x: Any) -> str:
    """The type and the shape of an array, such as float32[3, 2]."""
    return f"{x.dtype}{list(x.shape)}"


def _unknown(arrays: Mapping[str, np.ndarray], names: list[str]) -> str:
    """What to say of names that nobody expects; a sender may choose long ones."""
    strange = sorted(set(arrays) - set(names))
    found = ", ".join(repr(name[:40]) for name in strange[:2])
    return f"there is {found}: expected {', '.join(names[:3]) or 'no array'}" + (
        ", ..." if len(names) > 3 else ""
    )


def row(stacked: PyTree, place: int) -> PyTree:
    """One row of a stack [M, ...], still with the client axis [1, ...], as NumPy arrays.

    Example:
      >>> row(jnp.array([[1.0], [2.0]]), 1).tolist()
      [[2.0]]
    """
    return jax.tree.map(lambda x: np.asarray(x)[place : place + 1], stacked)


def rows(table: PyTree, ids: np.ndarray) -> PyTree:
    """Rows `ids` of a table of NumPy arrays [C, ...] -> [M, ...].

    Example:
      >>> rows(np.array([[1.0], [2.0]]), np.array([1, 0])).tolist()
      [[2.0], [1.0]]
    """
    return jax.tree.map(lambda x: x[ids], table)


def write_rows(table: PyTree, ids: np.ndarray, values: PyTree) -> PyTree:
    """A copy of a table [C, ...] in which the rows `ids` have new values [M, ...].

    Example:
      >>> write_rows(np.zeros((2, 1)), np.array([1]), np.ones((1, 1))).tolist()
      [[0.0], [1.0]]
    """

    def write(x: np.ndarray, new: Any) -> np.ndarray:
        copy = np.array(x)
        copy[ids] = np.asarray(new)
        return copy

    return jax.tree.map(write, table, values)
