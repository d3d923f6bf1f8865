"""First-order model optimisation: what each model of the others is worth to a client (FedFomo)."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def worth(
    before: Float[Array, "m"], losses: Float[Array, "m n"], distances: Float[Array, "m n"]
) -> Float[Array, "m n"]:
    """w_ij in proportion to max(0, (L_i(theta_i) - L_i(theta_j)) / |theta_j - theta_i|) (Zhang et al., 2021).

    Args:
      before: loss of each client at the model that it had [M].
      losses: of client i at model j [M, N]. One that is no finite number is of a model that is no
        better.
      distances: from the model that client i had to model j, not squared [M, N].

    Returns:
      Rows that sum to 1 [M, N]; a row of zeros where no model is better.
    """
    gain = jnp.where(
        distances > 0, (before[:, None] - losses) / jnp.where(distances > 0, distances, 1.0), 0.0
    )
    gain = jnp.where(gain > 0, jnp.minimum(gain, 1e30), 0.0)
    largest = gain.max(axis=1, keepdims=True)
    gain = gain / jnp.where(largest > 0, largest, 1.0)
    return gain / jnp.maximum(
        gain.sum(axis=1, keepdims=True), 1.0
    )  # the largest is 1, unless all are 0
