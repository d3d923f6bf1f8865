"""Weights of clients that exchange models with their neighbours on a given graph."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxfl.core.options import checked

# The matrix is squared so often: powers up to 4,096.
SQUARINGS = 12


@checked
def metropolis(
    graph: Float[Array, "m m"], reported: Bool[Array, "m"], own: float | Float[Array, ""] = 0.0
) -> Float[Array, "m m"]:
    """Metropolis-Hastings weights: 1 / (1 + the larger degree) for each edge, the rest for oneself.

    On an undirected graph they are symmetric, so that rows and columns sum to one (Xiao, Boyd and
    Kim, 2007, https://doi.org/10.1016/j.jpdc.2006.08.010). On a directed graph the degrees are the
    receiver's number of senders and the sender's number of receivers; columns sum to one if all are
    equal.

    Args:
      graph: edges (receiver, sender), zeros and ones with a zero diagonal [M, M].
      reported: who takes part [M]; the others have the rows of the identity, and edges to them do
        not count.
      own: at least this weight stays with the client, and the others share the rest as above.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> metropolis(jnp.array([[0.0, 1.0], [1.0, 0.0]]), jnp.ones(2, bool)).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    edges = _edges(graph, reported)
    degrees = jnp.maximum(edges.sum(axis=1)[:, None], edges.sum(axis=0)[None])
    weights = (1 - own) * edges / (1 + degrees)
    return weights + jnp.diag(1 - weights.sum(axis=1))


@checked
def column_stochastic(
    graph: Float[Array, "m m"], reported: Bool[Array, "m"], own: float | Float[Array, ""] = 0.0
) -> Float[Array, "m m"]:
    """Shares of push-sum: a client divides its model equally between itself and its receivers.

    Args:
      graph: edges (receiver, sender), zeros and ones with a zero diagonal [M, M].
      reported: who takes part [M]; the others have the columns of the identity.
      own: at least this share stays with the client.

    Returns:
      Columns sum to one [M, M] (receiver, sender).

    Example:
      >>> column_stochastic(jnp.array([[0.0, 0.0], [1.0, 0.0]]), jnp.ones(2, bool)).tolist()
      [[0.5, 0.0], [0.5, 1.0]]
    """
    edges = _edges(graph, reported)
    shares = (1 - own) * edges / (1 + edges.sum(axis=0)[None])
    return shares + jnp.diag(1 - shares.sum(axis=0))


def _edges(graph: Float[Array, "m m"], reported: Bool[Array, "m"]) -> Float[Array, "m m"]:
    return jnp.where(reported[:, None] & reported[None], graph, 0.0)


@checked
def spectral_gap(weights: Float[Array, "m m"]) -> Float[Array, ""]:
    """One minus the second largest modulus of an eigenvalue of a stochastic matrix.

    With a gap of g, models that are only mixed approach their limit by a factor of 1 - g in each
    round. 0: the graph is not connected, or goes around a circle; 1: one round is enough.

    If the rows or the columns sum to one, then subtracting 1 / M from all entries turns one
    eigenvalue 1 into 0 and leaves the others. The spectral radius of the rest is the limit of the
    norms of its powers |B^n|^(1 / n), here with n = 4,096.

    Args:
      weights: rows or columns sum to one [M, M].

    Example:
      >>> round(spectral_gap(jnp.array([[0.75, 0.25], [0.25, 0.75]])).item(), 3)
      0.5
    """
    clients = weights.shape[0]

    def square(
        step: Array, carry: tuple[Float[Array, "m m"], Float[Array, ""]]
    ) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
        power, logarithm = carry
        norm = jnp.sqrt(jnp.sum(power**2))
        scaled = power / jnp.where(norm > 0, norm, 1.0)
        squared = jnp.matmul(scaled, scaled, precision=lax.Precision.HIGHEST)
        return squared, logarithm + jnp.log(norm) / 2.0**step

    start = (weights - 1 / clients, jnp.zeros(()))
    _, logarithm = lax.fori_loop(0, SQUARINGS + 1, square, start)
    return jnp.clip(1 - jnp.exp(logarithm), 0.0, 1.0)
