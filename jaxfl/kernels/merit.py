"""Weights that clients find by losses or gradients: MeritFed, DPFL, CoBo, pFedSim."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.core.options import checked
from jaxfl.core.types import Scalar

# The cosine that counts as equal heads, whose weight would be infinite (pFedSim).
ALIKE = 0.9999


@checked
def exponentiated(
    weights: Float[Array, "r m"], grads: Float[Array, "r m"], rate: Scalar
) -> Float[Array, "r m"]:
    """A step of mirror descent on the simplex: weights in proportion to w_j exp(-rate g_j).

    Args:
      weights: row-stochastic [R, M]; a weight of 0 stays 0.
      grads: of a loss by the weights [R, M].
      rate: of the step.

    Returns:
      Row-stochastic [R, M].

    Example:
      >>> exponentiated(jnp.array([[0.5, 0.5]]), jnp.array([[0.0, jnp.log(3.0)]]), 1.0).round(2)
      Array([[0.75, 0.25]], dtype=float32)
    """
    logits = jnp.where(weights > 0, jnp.log(jnp.where(weights > 0, weights, 1.0)), -jnp.inf)
    # Differences from the least gradient of those with a weight, so that the step is finite.
    least = jnp.min(jnp.where(weights > 0, grads, jnp.inf), axis=1, keepdims=True)
    moves = rate * jnp.maximum(grads - jnp.where(jnp.isfinite(least), least, 0.0), 0.0)
    return jax.nn.softmax(jnp.where(weights > 0, logits - moves, -jnp.inf), axis=1)


@checked
def head_weights(cosines: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """PFedSim's weights: -log(1 - c) of the cosines of the clients' heads, with rows scaled to 1.

    Args:
      cosines: [M, M]; negative ones count as 0, those above .9999 as .9999, and so does the
        client's own.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> head_weights(jnp.array([[1.0, 0.0], [0.0, 1.0]])).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    diagonal = jnp.eye(cosines.shape[0], dtype=bool)
    similarity = jnp.where(diagonal, ALIKE, jnp.clip(cosines, 0.0, ALIKE))
    weights = -jnp.log1p(-similarity)
    return weights / weights.sum(axis=1, keepdims=True)


@checked
def pull_rows(
    collaboration: Float[Array, "m m"] | Bool[Array, "m m"], pull: Scalar
) -> Float[Array, "m m"]:
    """CoBo's step to the neighbours, x_i - pull sum_j w_ij (x_i - x_j), as rows of weights.

    Args:
      collaboration: w, how much each two clients collaborate, in [0, 1] [M, M]; the diagonal does
        not matter.
      pull: the length of the step; 1 / d for a client whose w sum to d > 1 / pull, which then takes
        the mean of the others.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> pull_rows(jnp.array([[True, True], [True, True]]), 0.25).tolist()
      [[0.75, 0.25], [0.25, 0.75]]
    """
    others = jnp.where(jnp.eye(collaboration.shape[0], dtype=bool), 0.0, collaboration)
    degrees = others.sum(axis=1, keepdims=True)
    rows = others * jnp.minimum(pull, 1 / jnp.maximum(degrees, 1.0))
    return rows + jnp.diag(jnp.maximum(1 - rows.sum(axis=1), 0.0))
