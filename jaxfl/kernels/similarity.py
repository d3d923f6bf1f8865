"""Similarity of stacked models. A plain matrix [M, D] is a stack of one leaf; a pytree needs no such matrix."""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Float, PyTree

Measure = Literal["cosine", "inner", "l2", "l1"]


def gram(stacked: PyTree, other: PyTree = None) -> Float[Array, "m n"]:
    """Inner products of all pairs of models, summed leaf by leaf so that [M, D] need not exist.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
      other: models [N, ...] to pair them with; themselves if None.
    """

    def leaf(x: Array, y: Array) -> Array:
        return jnp.matmul(x.reshape(x.shape[0], -1), y.reshape(y.shape[0], -1).T, precision=Precision.HIGHEST)

    return sum(jax.tree.leaves(jax.tree.map(leaf, stacked, stacked if other is None else other)))


def cosine(stacked: PyTree) -> Float[Array, "m m"]:
    """Cosines of all pairs of models, in [-1, 1]; a zero model has cosine 0 with everything, itself included.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
    """
    products = gram(stacked)
    scale = _inverse(jnp.sqrt(jnp.diagonal(products)))
    return jnp.clip(products * scale[:, None] * scale[None, :], -1.0, 1.0)


def similarities(stacked: PyTree, measure: Measure, snap: float | Array | None = None) -> Float[Array, "m m"]:
    """How alike all pairs of models are, by one of the measures of pFedGraph (section 4.5).

    "cosine"; "inner", the inner product; "l2" and "l1", minus the distance in that norm.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
      measure: which one.
      snap: cosines above it count as 1, as in pFedGraph's code; None for never.
    """
    if measure == "cosine":
        cosines = cosine(stacked)
        return cosines if snap is None else jnp.where(cosines > snap, 1.0, cosines)
    if measure == "l1":
        return -distances_l1(stacked)
    products = gram(stacked)
    if measure == "inner":
        return products
    squares = jnp.diagonal(products)
    return -jnp.sqrt(jnp.maximum(squares[:, None] + squares[None] - 2 * products, 0.0))


def distances_l1(stacked: PyTree) -> Float[Array, "m m"]:
    """Sums of absolute differences of all pairs of models, one row at a time: no [M, M, D].

    Args:
      stacked: models [M, ...] or a matrix [M, D].
    """

    def leaf(x: Array) -> Array:
        rows = x.reshape(x.shape[0], -1)
        return lax.map(lambda one: jnp.abs(rows - one[None]).sum(axis=1), rows)

    return sum(map(leaf, jax.tree.leaves(stacked)))


def inverse_norms(stacked: PyTree) -> Float[Array, "m"]:
    """One over the Euclidean norm of each model [M]; 0 for a zero model."""
    squares = sum(jnp.sum(jnp.square(x.reshape(x.shape[0], -1)), axis=1) for x in jax.tree.leaves(stacked))
    return _inverse(jnp.sqrt(squares))


def _inverse(norms: Float[Array, "m"]) -> Float[Array, "m"]:
    return jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1.0), 0.0)
