"""Gaussians with independent parameters, as distributions over models (pFedBayes: Zhang et al., ICML 2022)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

FLOOR = 1e-5  # of a standard deviation, so that no report of a client makes a divergence infinite


class Gaussian(NamedTuple):
    """A distribution over models."""

    mean: PyTree
    rho: PyTree  # of the same shape: the standard deviation is softplus(rho)


def deviation(rho: Array) -> Array:
    """Standard deviations."""
    return jax.nn.softplus(rho) + FLOOR


def draw(key: Key[Array, ""], gaussian: Gaussian) -> PyTree:
    """One model of the distribution, differentiable in its parameters."""
    leaves, structure = jax.tree.flatten(gaussian.mean)
    keys = structure.unflatten(list(jax.random.split(key, len(leaves))))

    def leaf(key: Array, mean: Array, rho: Array) -> Array:
        return mean + deviation(rho) * jax.random.normal(key, mean.shape, mean.dtype)

    return jax.tree.map(leaf, keys, *gaussian)


def divergence(q: Gaussian, p: Gaussian) -> Float[Array, ""]:
    """KL(q || p). Finite for entries up to 1e12."""

    def leaf(q_mean: Array, q_rho: Array, p_mean: Array, p_rho: Array) -> Array:
        scale = deviation(p_rho)
        ratio = deviation(q_rho) / scale
        return jnp.sum(
            (ratio**2 - 1) / 2 - jnp.log(ratio) + jnp.square((q_mean - p_mean) / scale) / 2
        )

    return sum(jax.tree.leaves(jax.tree.map(leaf, *q, *p)))
