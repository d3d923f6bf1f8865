"""Similarity of stacked models. A plain matrix [M, D] is a stack of one leaf; a pytree needs no such matrix.

Models of any finite size have finite similarities: a model that has run away, or was sent to do
harm, has squares that no float holds, and makes nobody's weights not a number.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Float, PyTree

Measure = Literal["cosine", "inner", "l2", "l1"]

LARGEST = 1e30  # what is beyond counts as this: sums and multiples of it are still finite


def gram(stacked: PyTree, other: PyTree = None) -> Float[Array, "m n"]:
    """Inner products of all pairs of models, summed leaf by leaf so that [M, D] need not exist.

    Finite for entries up to 1e15; `similarities` has inner products of models of any size.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
      other: models [N, ...] to pair them with; themselves if None.
    """

    def leaf(x: Array, y: Array) -> Array:
        return jnp.matmul(
            x.reshape(x.shape[0], -1), y.reshape(y.shape[0], -1).T, precision=Precision.HIGHEST
        )

    return sum(jax.tree.leaves(jax.tree.map(leaf, stacked, stacked if other is None else other)))


def cosine(stacked: PyTree) -> Float[Array, "m m"]:
    """Cosines of all pairs of models, in [-1, 1]; a zero model has cosine 0 with everything, itself included.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
    """
    products = gram(scaled(stacked)[0])
    scale = _inverse(jnp.sqrt(jnp.diagonal(products)))
    return jnp.clip(products * scale[:, None] * scale[None, :], -1.0, 1.0)


def similarities(
    stacked: PyTree, measure: Measure, snap: float | Array | None = None
) -> Float[Array, "m m"]:
    """How alike all pairs of models are, by one of the measures of pFedGraph (section 4.5).

    "cosine"; "inner", the inner product; "l2" and "l1", minus the distance in that norm. The last
    three are at most 1e30 either way.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
      measure: which one.
      snap: cosines above it count as 1, as in pFedGraph's code; None for never.
    """
    if measure == "cosine":
        cosines = cosine(stacked)
        return cosines if snap is None else jnp.where(cosines > snap, 1.0, cosines)
    if measure == "l1":
        return -jnp.minimum(distances_l1(stacked), LARGEST)
    small, power = scaled(stacked)
    products = gram(small)
    if measure == "inner":
        return jnp.clip(products * power[:, None] * power[None], -LARGEST, LARGEST)
    squares, larger = jnp.diagonal(products), jnp.maximum(power[:, None], power[None])
    own, other = power[:, None] / larger, power[None] / larger  # one of the two is 1
    distances = (
        squares[:, None] * own * own + squares[None] * other * other - 2 * products * own * other
    )
    return -jnp.minimum(jnp.sqrt(jnp.maximum(distances, 0.0)) * larger, LARGEST)


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
    small, power = scaled(stacked)
    squares = sum(
        jnp.sum(jnp.square(x.reshape(x.shape[0], -1)), axis=1) for x in jax.tree.leaves(small)
    )
    return _inverse(jnp.sqrt(squares)) / power


def scaled(stacked: PyTree) -> tuple[PyTree, Float[Array, "m"]]:
    """Each model over the power of two nearest its largest entry, which costs no digit, and those powers [M].

    Squares of what results neither overflow nor vanish. A zero model's power is 1.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
    """

    def largest(x: Array) -> Float[Array, "m"]:
        return jnp.abs(x.reshape(x.shape[0], -1)).max(axis=1, initial=0.0)

    power = jnp.stack([largest(x) for x in jax.tree.leaves(stacked)]).max(axis=0)
    limits = jnp.finfo(power.dtype)
    power = jnp.minimum(lax.reduce_precision(power, limits.nexp, 0), 2.0 ** (limits.maxexp - 1))
    power = jnp.where(power > 0, power, 1.0)
    return jax.tree.map(lambda x: x / power.reshape(-1, *[1] * (x.ndim - 1)), stacked), power


def _inverse(norms: Float[Array, "m"]) -> Float[Array, "m"]:
    return jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1.0), 0.0)
