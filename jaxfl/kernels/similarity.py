"""Similarity of stacked models. A plain matrix [M, D] is a stack of one leaf; a pytree needs no such matrix."""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, PyTree


def gram(stacked: PyTree) -> Float[Array, "m m"]:
    """Inner products of all pairs of models, summed leaf by leaf so that [M, D] need not exist.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
    """

    def leaf(x: Array) -> Array:
        rows = x.reshape(x.shape[0], -1)
        return jnp.matmul(rows, rows.T, precision=Precision.HIGHEST)

    return sum(map(leaf, jax.tree.leaves(stacked)))


def cosine(stacked: PyTree) -> Float[Array, "m m"]:
    """Cosines of all pairs of models, in [-1, 1]; a zero model has cosine 0 with everything, itself included.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
    """
    products = gram(stacked)
    scale = _inverse(jnp.sqrt(jnp.diagonal(products)))
    return jnp.clip(products * scale[:, None] * scale[None, :], -1.0, 1.0)


def inverse_norms(stacked: PyTree) -> Float[Array, "m"]:
    """One over the Euclidean norm of each model [M]; 0 for a zero model."""
    squares = sum(jnp.sum(jnp.square(x.reshape(x.shape[0], -1)), axis=1) for x in jax.tree.leaves(stacked))
    return _inverse(jnp.sqrt(squares))


def _inverse(norms: Float[Array, "m"]) -> Float[Array, "m"]:
    return jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1.0), 0.0)
