"""Weights of clients that exchange models with their neighbours on a given graph."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.core.options import checked


@checked
def metropolis(
    graph: Float[Array, "m m"],
    reported: Bool[Array, "m"] | None = None,
    own: float | Float[Array, ""] = 0.0,
) -> Float[Array, "m m"]:
    """Metropolis-Hastings weights: 1 / (1 + the larger degree) for each edge, the rest for oneself.

    On an undirected graph they are symmetric, so that rows and columns sum to one (Xiao, Boyd and
    Kim, 2007, https://doi.org/10.1016/j.jpdc.2006.08.010). On a directed graph the degrees are the
    receiver's number of senders and the sender's number of receivers; columns sum to one if all are
    equal.

    Args:
      graph: edges (receiver, sender), zeros and ones with a zero diagonal [M, M].
      reported: who takes part [M]; the others have the rows of the identity, and edges to them do
        not count. None: all.
      own: at least this weight stays with the client, and the others share the rest as above.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> metropolis(jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    edges = _edges(graph, reported)
    degrees = jnp.maximum(edges.sum(axis=1)[:, None], edges.sum(axis=0)[None])
    weights = (1 - own) * edges / (1 + degrees)
    return weights + jnp.diag(1 - weights.sum(axis=1))


@checked
def column_stochastic(
    graph: Float[Array, "m m"],
    reported: Bool[Array, "m"] | None = None,
    own: float | Float[Array, ""] = 0.0,
) -> Float[Array, "m m"]:
    """Shares of push-sum: a client divides its model equally between itself and its receivers.

    Args:
      graph: edges (receiver, sender), zeros and ones with a zero diagonal [M, M].
      reported: who takes part [M]; the others have the columns of the identity. None: all.
      own: at least this share stays with the client.

    Returns:
      Columns sum to one [M, M] (receiver, sender).

    Example:
      >>> column_stochastic(jnp.array([[0.0, 0.0], [1.0, 0.0]])).tolist()
      [[0.5, 0.0], [0.5, 1.0]]
    """
    edges = _edges(graph, reported)
    shares = (1 - own) * edges / (1 + edges.sum(axis=0)[None])
    return shares + jnp.diag(1 - shares.sum(axis=0))


def _edges(graph: Float[Array, "m m"], reported: Bool[Array, "m"] | None) -> Float[Array, "m m"]:
    if reported is None:
        return graph
    return jnp.where(reported[:, None] & reported[None], graph, 0.0)
