"""Weights of clients that exchange models with their neighbours on a given graph."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from jaxfl.core.options import checked
from jaxfl.core.streams import client_keys


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


@checked
def random_receivers(
    key: Key[Array, ""],
    clients: int,
    degree: int,
    ids: Int[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
) -> Float[Array, "m m"]:
    """A graph in which each client sends to so many others, drawn uniformly.

    Epidemic Learning, EL-Local (de Vos et al., NeurIPS 2023, https://arxiv.org/abs/2310.01972,
    Algorithm 2): how many models a client receives is random.

    Args:
      key: of the draw.
      clients: M.
      degree: receivers of each client; all others if there are fewer.
      ids: of the clients [M]; a draw depends on them and not on the order of the clients. None: 0
        to M - 1.
      reported: who takes part [M]; the others have no edges. None: all.

    Returns:
      Edges (receiver, sender), zeros and ones with a zero diagonal [M, M].

    Example:
      >>> edges = random_receivers(jax.random.key(0), 5, degree=2)
      >>> edges.sum(axis=0).tolist()
      [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    ids = jnp.arange(clients) if ids is None else ids
    present = jnp.ones(clients, bool) if reported is None else reported
    # A number for each sender and receiver [M, M].
    pairs = jax.vmap(client_keys, (0, None))(client_keys(key, ids), ids)
    scores = jax.vmap(jax.vmap(jax.random.uniform))(pairs)
    return _largest(scores, present, degree).T


@checked
def random_circle(
    key: Key[Array, ""],
    clients: int,
    degree: int,
    ids: Int[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
) -> Float[Array, "m m"]:
    """A graph in which each client hears those behind it in a circle of random order.

    Every client sends to as many as it hears, as in the regular graphs of Epidemic Learning's
    EL-Oracle (Algorithm 1), which are drawn in another way.

    Args:
      key: of the order.
      clients: M.
      degree: how many a client hears; all others if there are fewer.
      ids: of the clients [M]; the order depends on them and not on that of the clients. None: 0 to
        M - 1.
      reported: who takes part [M]; the others have no edges. None: all.

    Returns:
      Edges (receiver, sender), zeros and ones with a zero diagonal [M, M].

    Example:
      >>> edges = random_circle(jax.random.key(0), 5, degree=2)
      >>> edges.sum(axis=0).tolist(), edges.sum(axis=1).tolist()
      ([2.0, 2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0, 2.0])
    """
    ids = jnp.arange(clients) if ids is None else ids
    present = jnp.ones(clients, bool) if reported is None else reported
    numbers = jax.vmap(jax.random.uniform)(client_keys(key, ids))
    # The place of each client in the circle; those that are absent stand behind.
    places = jnp.argsort(jnp.argsort(jnp.where(present, numbers, jnp.inf)))
    ahead = (places[None] - places[:, None]) % jnp.maximum(present.sum(), 1)
    edges = present[:, None] & present[None] & (ahead >= 1) & (ahead <= degree)
    return edges.astype(float)


@checked
def least_similar(
    similarities: Float[Array, "m m"], degree: int, reported: Bool[Array, "m"] | None = None
) -> Float[Array, "m m"]:
    """A graph in which each client hears the so many others that are least similar to it.

    Every client receives equally many models. Of equal similarities those of the clients that come
    first count.

    Args:
      similarities: (receiver, sender), larger for models that are more alike [M, M].
      degree: senders of each client; all others if there are fewer.
      reported: who takes part [M]; the others have no edges. None: all.

    Returns:
      Edges (receiver, sender), zeros and ones with a zero diagonal [M, M].

    Example:
      >>> cosines = jnp.array([[1.0, 0.9, -0.5], [0.9, 1.0, 0.2], [-0.5, 0.2, 1.0]])
      >>> least_similar(cosines, degree=1).tolist()
      [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    present = jnp.ones(len(similarities), bool) if reported is None else reported
    return _largest(-similarities, present, degree)


@checked
def neighbour_mean(graph: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """Weights of a client that takes the plain mean of its own model and those it received.

    Args:
      graph: edges (receiver, sender), zeros and ones with a zero diagonal [M, M].

    Returns:
      Row-stochastic [M, M]; a client that received none keeps its own.

    Example:
      >>> neighbour_mean(jnp.array([[0.0, 1.0], [0.0, 0.0]])).tolist()
      [[0.5, 0.5], [0.0, 1.0]]
    """
    own = jnp.eye(len(graph))
    return (graph + own) / (1 + graph.sum(axis=1))[:, None]


def _largest(
    scores: Float[Array, "m m"], reported: Bool[Array, "m"], degree: int
) -> Float[Array, "m m"]:
    """The so many largest scores of others in each row, as zeros and ones [M, M]."""
    clients = reported.size
    others = reported[:, None] & reported[None] & ~jnp.eye(clients, dtype=bool)
    _, columns = lax.top_k(jnp.where(others, scores, -jnp.inf), min(degree, clients))
    chosen = jnp.zeros((clients, clients), bool).at[jnp.arange(clients)[:, None], columns].set(True)
    return (chosen & others).astype(float)


def _edges(graph: Float[Array, "m m"], reported: Bool[Array, "m"] | None) -> Float[Array, "m m"]:
    if reported is None:
        return graph
    return jnp.where(reported[:, None] & reported[None], graph, 0.0)
