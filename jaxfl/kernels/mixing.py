"""Aggregation as a matrix: row-stochastic weights [receiver, sender] applied to stacked models."""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int, PyTree


def mix(weights: Float[Array, "*r m"], stacked: PyTree) -> PyTree:
    """Row r of the result is the sum over m of `weights[r, m]` times model m, leaf by leaf.

    Args:
      weights: [R, M]; R receivers, M senders. A single row [M] makes a single model.
      stacked: models [M, ...].

    Returns:
      Models [R, ...] in the type of the given ones, summed in float32 at full precision on every backend.
    """

    def leaf(x: Array) -> Array:
        mixed = jnp.tensordot(weights, x.astype(weights.dtype), axes=1, precision=Precision.HIGHEST)
        return mixed.astype(x.dtype)

    return jax.tree.map(leaf, stacked)


def size_weights(sizes: Int[Array, "m"]) -> Float[Array, "m"]:
    """Each client's share of all examples, p_i = n_i / sum_j n_j; 1 / M for all if there are none."""
    total = sizes.sum()
    share = sizes / jnp.maximum(total, 1)
    return jnp.where(total > 0, share, 1 / sizes.shape[0])
