"""Gaussians with independent parameters, as distributions over models.

pFedBayes: Zhang et al., ICML 2022, https://arxiv.org/abs/2206.07977.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

# The smallest standard deviation, so that no upload of a client makes a divergence infinite.
FLOOR = 1e-5


class Gaussian(NamedTuple):
    """A distribution over models."""

    mean: PyTree
    rho: PyTree  # of the same shape: the standard deviation is softplus(rho) + FLOOR


def deviation(rho: Array) -> Array:
    """Standard deviations.

    Example:
      >>> round(deviation(jnp.array(0.0)).item(), 3)
      0.693
    """
    return jax.nn.softplus(rho) + FLOOR


def draw(key: Key[Array, ""], gaussian: Gaussian) -> PyTree:
    """One model of the distribution, differentiable in its parameters.

    Args:
      key: of the random numbers.
      gaussian: the distribution.

    Example:
      >>> draw(jax.random.key(0), Gaussian(jnp.ones(2), jnp.full(2, -100.0))).round(3).tolist()
      [1.0, 1.0]
    """
    leaves, structure = jax.tree.flatten(gaussian.mean)
    keys = structure.unflatten(list(jax.random.split(key, len(leaves))))

    def leaf(key: Array, mean: Array, rho: Array) -> Array:
        return mean + deviation(rho) * jax.random.normal(key, mean.shape, mean.dtype)

    return jax.tree.map(leaf, keys, *gaussian)


def divergence(q: Gaussian, p: Gaussian) -> Float[Array, ""]:
    """KL(q || p). Finite for entries up to 1e12.

    Example:
      >>> q = Gaussian(jnp.zeros(2), jnp.ones(2))
      >>> divergence(q, q).item()
      0.0
    """

    def leaf(q_mean: Array, q_rho: Array, p_mean: Array, p_rho: Array) -> Array:
        scale = deviation(p_rho)
        ratio = deviation(q_rho) / scale
        return jnp.sum(
            (ratio**2 - 1) / 2 - jnp.log(ratio) + jnp.square((q_mean - p_mean) / scale) / 2
        )

    return jnp.asarray(sum(jax.tree.leaves(jax.tree.map(leaf, *q, *p))))
