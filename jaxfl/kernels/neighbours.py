"""Labels of the nearest examples in the space of features (kNN-Per: Marfoq et al., ICML 2022)."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int


def neighbour_labels(
    query: Float[Array, "b d"],
    memory: Float[Array, "n d"],
    labels: Int[Array, "n"],
    mask: Bool[Array, "n"],
    classes: int,
    neighbours: int,
    scale: float | int | Array,
) -> Float[Array, "b classes"]:
    """p(c) in proportion to the sum of exp(-|f - f_j|^2 / (d scale)) over the nearest examples j of class c.

    Features up to 1e12; beyond, their squared distances are not told from padding.

    Args:
      query: features f [B, d].
      memory: features of the examples [N, d].
      labels: of the examples [N].
      mask: which examples are real [N].
      classes: number of classes.
      neighbours: k, how many examples are looked at, all if there are fewer.
      scale: how far to look; the exponent is also divided by d.

    Returns:
      Rows that sum to 1 [B, classes]; of zeros if there is no example.
    """
    centre = jnp.sum(jnp.where(mask[:, None], memory, 0.0), axis=0) / jnp.maximum(mask.sum(), 1)
    query, memory = query - centre[None], jnp.where(mask[:, None], memory - centre[None], 0.0)
    products = jnp.matmul(query, memory.T, precision=Precision.HIGHEST)
    own, other = (jnp.sum(jnp.square(x), axis=1) for x in (query, memory))
    distances = jnp.maximum(own[:, None] + other[None] - 2 * products, 0.0)
    near, rows = lax.top_k(
        jnp.where(mask[None], -distances, -1e30), min(neighbours, mask.size)
    )  # [B, k]
    near = (
        near - near[:, :1]
    )  # the nearest first: exactly 0, where large quotients would differ by their rounding
    weights = jax.nn.softmax(near / (query.shape[1] * scale), axis=1) * mask[rows]
    return jnp.einsum(
        "bk,bkc->bc", weights, jax.nn.one_hot(labels[rows], classes), precision=Precision.HIGHEST
    )
