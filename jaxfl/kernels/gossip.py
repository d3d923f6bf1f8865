"""Weights of clients that exchange models with their neighbours, and graphs drawn in each round."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key

from jaxfl.core.edges import Neighbours
from jaxfl.core.options import checked
from jaxfl.core.streams import client_keys
from jaxfl.kernels.network import (
    among,
    mean_rows,
    metropolis_rows,
    neighbours_of,
    share_rows,
)
from jaxfl.kernels.sparse import dense_rows


@checked
def metropolis(
    graph: Float[Array, "m m"],
    reported: Bool[Array, "m"] | None = None,
    own: float | Float[Array, ""] = 0.0,
) -> Float[Array, "m m"]:
    """The weights of `network.metropolis_rows` as a matrix.

    Args:
      graph: edges (receiver, sender), zeros and ones with a zero diagonal [M, M].
      reported: who takes part [M]; the others have the rows of the identity, and edges to them do
        not count. None: all.
      own: at least this weight stays with the client, and the others share the rest.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> metropolis(jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    neighbours = among(neighbours_of(graph), reported)
    return dense_rows(metropolis_rows(neighbours, own), len(graph))


@checked
def column_stochastic(
    graph: Float[Array, "m m"],
    reported: Bool[Array, "m"] | None = None,
    own: float | Float[Array, ""] = 0.0,
) -> Float[Array, "m m"]:
    """The shares of push-sum, `network.share_rows`, as a matrix.

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
    neighbours = among(neighbours_of(graph), reported)
    return dense_rows(share_rows(neighbours, own), len(graph))


@checked
def neighbour_mean(graph: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """The weights of `network.mean_rows` as a matrix.

    Args:
      graph: edges (receiver, sender), zeros and ones with a zero diagonal [M, M].

    Returns:
      Row-stochastic [M, M]; a client that received none keeps its own.

    Example:
      >>> neighbour_mean(jnp.array([[0.0, 1.0], [0.0, 0.0]])).tolist()
      [[0.5, 0.5], [0.0, 1.0]]
    """
    return dense_rows(mean_rows(neighbours_of(graph)), len(graph))


@checked
def random_receivers(
    key: Key[Array, ""],
    clients: int,
    degree: int,
    ids: Int[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
) -> Neighbours:
    """A graph in which each client sends to so many others, drawn uniformly.

    Epidemic Learning, EL-Local (de Vos et al., NeurIPS 2023, https://arxiv.org/abs/2310.01972,
    Algorithm 2): how many models a client receives is random, so that each has M places. Time and
    memory grow with M^2, since there is a draw for each pair.

    Args:
      key: of the draw.
      clients: M.
      degree: receivers of each client; all others if there are fewer.
      ids: of the clients [M]; a draw depends on them and not on the order of the clients. None: 0
        to M - 1.
      reported: who takes part [M]; the others have no edges. None: all.

    Example:
      >>> neighbours = random_receivers(jax.random.key(0), 5, degree=2)
      >>> jaxfl.kernels.edges_of(neighbours).sum(axis=0).tolist()
      [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    ids = jnp.arange(clients) if ids is None else ids
    present = jnp.ones(clients, bool) if reported is None else reported
    # A number for each sender and receiver [M, M].
    pairs = jax.vmap(client_keys, (0, None))(client_keys(key, ids), ids)
    scores = jax.vmap(jax.vmap(jax.random.uniform))(pairs)
    receivers = _largest(scores, present, degree)
    senders = jnp.arange(clients)[:, None]
    drawn = jnp.zeros((clients, clients)).at[receivers.senders, senders].max(receivers.there)
    return neighbours_of(drawn)


@checked
def random_circle(
    key: Key[Array, ""],
    clients: int,
    degree: int,
    ids: Int[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
) -> Neighbours:
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

    Example:
      >>> edges = jaxfl.kernels.edges_of(random_circle(jax.random.key(0), 5, degree=2))
      >>> edges.sum(axis=0).tolist(), edges.sum(axis=1).tolist()
      ([2.0, 2.0, 2.0, 2.0, 2.0], [2.0, 2.0, 2.0, 2.0, 2.0])
    """
    ids = jnp.arange(clients) if ids is None else ids
    present = jnp.ones(clients, bool) if reported is None else reported
    numbers = jax.vmap(jax.random.uniform)(client_keys(key, ids))
    # The place of each client in the circle; those that are absent stand behind.
    order = jnp.argsort(jnp.where(present, numbers, jnp.inf))
    places = jnp.argsort(order)
    count = jnp.maximum(present.sum(), 1)
    ahead = jnp.arange(1, min(degree, clients - 1) + 1)[None]
    senders = order[(places[:, None] + ahead) % count]
    return Neighbours(senders, present[:, None] & (ahead < count))


@checked
def least_similar(
    similarities: Float[Array, "m m"], degree: int, reported: Bool[Array, "m"] | None = None
) -> Neighbours:
    """A graph in which each client hears the so many others that are least similar to it.

    Every client receives equally many models. Of equal similarities those of the clients that come
    first count.

    Args:
      similarities: (receiver, sender), larger for models that are more alike [M, M].
      degree: senders of each client; all others if there are fewer.
      reported: who takes part [M]; the others have no edges. None: all.

    Example:
      >>> cosines = jnp.array([[1.0, 0.9, -0.5], [0.9, 1.0, 0.2], [-0.5, 0.2, 1.0]])
      >>> jaxfl.kernels.edges_of(least_similar(cosines, degree=1)).tolist()
      [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    present = jnp.ones(len(similarities), bool) if reported is None else reported
    return _largest(-similarities, present, degree)


def _largest(scores: Float[Array, "m m"], reported: Bool[Array, "m"], degree: int) -> Neighbours:
    """The so many largest scores of others in each row."""
    clients = reported.size
    others = reported[:, None] & reported[None] & ~jnp.eye(clients, dtype=bool)
    _, columns = lax.top_k(jnp.where(others, scores, -jnp.inf), min(degree, clients))
    return Neighbours(columns, jnp.take_along_axis(others, columns, axis=1))
