"""Attentive message passing: mixing weights of FedAMP and HeurFedAMP (Huang et al., AAAI 2021)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Number = float | int | Array


def attentive(distances: Float[Array, "m m"], alpha: Number, sigma: Number) -> Float[Array, "m m"]:
    """xi_ij = alpha A'(|w_i - w_j|^2) for j other than i, with A(x) = 1 - exp(-x / sigma); the rest is a client's own.

    Where the others' weights would exceed 1 together, as they may for alpha above sigma / (M - 1),
    they are scaled to sum to 1.

    Args:
      distances: squared, of all pairs of models [M, M].
      alpha: step on the sum of A over all pairs.
      sigma: about the squared distance at which clients stop to be alike.
    """
    others = alpha / sigma * jnp.exp(-distances / sigma) * (1 - jnp.eye(len(distances)))
    others = others / jnp.maximum(others.sum(axis=1, keepdims=True), 1.0)
    return others + jnp.diag(jnp.maximum(1 - others.sum(axis=1), 0.0))


def heuristic(cosines: Float[Array, "m m"], own: Number, sigma: Number) -> Float[Array, "m m"]:
    """xi_ii = own; the others share the rest by a softmax of sigma times their cosine; alone a client keeps all.

    Args:
      cosines: of all pairs of models [M, M].
      own: weight of a client's own model.
      sigma: sharpness of the softmax.
    """
    clients = len(cosines)
    if clients == 1:
        return jnp.ones((1, 1))
    self = jnp.eye(clients, dtype=bool)
    others = jax.nn.softmax(jnp.where(self, -jnp.inf, sigma * cosines), axis=1)
    return jnp.where(self, own, (1 - own) * others)
