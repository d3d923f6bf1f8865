"""Attentive message passing: mixing weights of FedAMP and HeurFedAMP.

Huang et al., AAAI 2021, https://arxiv.org/abs/2007.03797.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.core.options import checked
from jaxfl.core.types import Scalar


@checked
def attentive(distances: Float[Array, "m m"], alpha: Scalar, sigma: Scalar) -> Float[Array, "m m"]:
    """FedAMP's weights: xi_ij = alpha A'(|w_i - w_j|^2) of others, the rest of a client itself.

    A(x) = 1 - exp(-x / sigma). Where the weights of the others sum to more than 1, as they may for
    alpha above sigma / (M - 1), they are scaled to sum to 1.

    Args:
      distances: squared distances of all pairs of models [M, M].
      alpha: step size on the sum of A over all pairs.
      sigma: about the squared distance beyond which clients have little weight for each other.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> attentive(jnp.array([[0.0, 0.0], [0.0, 0.0]]), 0.5, 2.0).tolist()
      [[0.75, 0.25], [0.25, 0.75]]
    """
    others = alpha / sigma * jnp.exp(-distances / sigma) * (1 - jnp.eye(len(distances)))
    others = others / jnp.maximum(others.sum(axis=1, keepdims=True), 1.0)
    return others + jnp.diag(jnp.maximum(1 - others.sum(axis=1), 0.0))


@checked
def heuristic(cosines: Float[Array, "m m"], own: Scalar, sigma: Scalar) -> Float[Array, "m m"]:
    """HeurFedAMP's weights: xi_ii = own, the rest a softmax of sigma times the others' cosines.

    A client that is alone keeps its model.

    Args:
      cosines: of all pairs of models [M, M].
      own: weight of a client's own model, one number or one for each client [M, 1].
      sigma: sharpness of the softmax, likewise.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> heuristic(jnp.array([[1.0, 0.5], [0.5, 1.0]]), 0.25, 10.0).tolist()
      [[0.25, 0.75], [0.75, 0.25]]
    """
    clients = len(cosines)
    if clients == 1:
        return jnp.ones((1, 1))
    diagonal = jnp.eye(clients, dtype=bool)
    others = jax.nn.softmax(jnp.where(diagonal, -jnp.inf, sigma * cosines), axis=1)
    return jnp.where(diagonal, own, (1 - own) * others)
