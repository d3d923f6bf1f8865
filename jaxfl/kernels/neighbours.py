"""Labels of the nearest examples in the space of features.

kNN-Per: Marfoq et al., ICML 2022, https://arxiv.org/abs/2111.09360.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core.options import checked
from jaxfl.core.types import Scalar


@checked
def neighbour_labels(
    query: Float[Array, "b d"],
    memory: Float[Array, "n d"],
    labels: Int[Array, "n"],
    mask: Bool[Array, "n"],
    classes: int,
    neighbours: int,
    scale: Scalar,
) -> Float[Array, "b classes"]:
    """Class probabilities, in proportion to sums of exp(-|f - f_j|^2 / (d scale)).

    The sum for class c is over the nearest stored examples j of that class. Finite for features up
    to 1e12; beyond, their squared distances cannot be told from padding.

    Args:
      query: features f [B, d].
      memory: features f_j of the stored examples [N, d].
      labels: of the stored examples [N].
      mask: which stored examples are real [N].
      classes: number of classes.
      neighbours: k, how many examples are looked at; all if there are fewer.
      scale: how far to look; the exponent is also divided by d.

    Returns:
      Rows that sum to 1 [B, classes]; rows of zeros if there is no example.

    Example:
      >>> memory = jnp.array([[0.0], [1.0], [90.0]])
      >>> labels = (jnp.array([0, 1, 2]), jnp.ones(3, bool), 3, 2, 1.0)
      >>> neighbour_labels(jnp.array([[0.5]]), memory, *labels).tolist()
      [[0.5, 0.5, 0.0]]
    """
    # Squared distances from inner products of the features less their mean.
    centre = jnp.sum(jnp.where(mask[:, None], memory, 0.0), axis=0) / jnp.maximum(mask.sum(), 1)
    query = query - centre[None]
    memory = jnp.where(mask[:, None], memory - centre[None], 0.0)
    products = jnp.matmul(query, memory.T, precision=Precision.HIGHEST)
    query_norms, memory_norms = (jnp.sum(jnp.square(x), axis=1) for x in (query, memory))
    distances = jnp.maximum(query_norms[:, None] + memory_norms[None] - 2 * products, 0.0)
    # The k nearest [B, k], padding behind all examples.
    logits, rows = lax.top_k(jnp.where(mask[None], -distances, -1e30), min(neighbours, mask.size))
    # Relative to the nearest, which becomes exactly 0: large quotients would differ by rounding.
    logits = logits - logits[:, :1]
    weights = jax.nn.softmax(logits / (query.shape[1] * scale), axis=1) * mask[rows]
    one_hot = jax.nn.one_hot(labels[rows], classes)
    return jnp.einsum("bk,bkc->bc", weights, one_hot, precision=Precision.HIGHEST)
