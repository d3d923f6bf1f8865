"""First-order model optimisation: weights of the others' models by how much each lowers the loss.

FedFomo: Zhang et al., ICLR 2021, https://arxiv.org/abs/2012.08565.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.core.options import checked
from jaxfl.kernels.similarity import LARGEST_SQUARE


@checked
def fomo_weights(
    before: Float[Array, "m"], losses: Float[Array, "m n"], distances: Float[Array, "m n"]
) -> Float[Array, "m n"]:
    """Weights w_ij in proportion to max(0, (L_i(theta_i) - L_i(theta_j)) / |theta_j - theta_i|).

    Args:
      before: loss of each client at the model that it had [M].
      losses: of client i at model j [M, N]. A loss of NaN or inf gives the model no weight.
      distances: from the model that client i had to model j, not squared [M, N].

    Returns:
      Rows that sum to 1 [M, N]; a row of zeros if no model is better.

    Example:
      >>> losses = jnp.array([[3.0, 1.0, 3.0]])
      >>> fomo_weights(jnp.array([4.0]), losses, jnp.array([[1.0, 1.0, 0.0]])).tolist()
      [[0.25, 0.75, 0.0]]
    """
    # An infinite gain, even if it counts as 0, has a NaN derivative in reverse mode.
    finite = jnp.isfinite(losses)
    drop = jnp.where(finite, before[:, None] - jnp.where(finite, losses, 0.0), 0.0)
    gain = jnp.where(distances > 0, drop / jnp.where(distances > 0, distances, 1.0), 0.0)
    gain = jnp.where(gain > 0, jnp.minimum(gain, LARGEST_SQUARE), 0.0)
    # The largest becomes 1, unless all are 0, so that the sum does not overflow.
    largest = gain.max(axis=1, keepdims=True)
    gain = gain / jnp.where(largest > 0, largest, 1.0)
    return gain / jnp.maximum(gain.sum(axis=1, keepdims=True), 1.0)
