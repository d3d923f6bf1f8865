"""A network of clients as lists of neighbours, and the weights on its edges as sparse rows.

Their memory grows with the edges. `gossip` has the same weights as matrices.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxfl.core import tree
from jaxfl.core.edges import Neighbours, SparseRows
from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.kernels.sparse import SPARSE_FROM, dense_rows

# The rows of more clients are no matrix any more where they are few: it would take over 16 MiB.
MATRIX_UP_TO = 2048


@checked
def neighbours_of(graph: Float[Array, "m m"]) -> Neighbours:
    """The network of a matrix, with M places for each client.

    Args:
      graph: edges (receiver, sender), those that are not 0 [M, M]; the diagonal does not matter.

    Example:
      >>> neighbours_of(jnp.array([[0.0, 1.0], [0.0, 0.0]])).there.tolist()
      [[False, True], [False, False]]
    """
    places = jnp.arange(len(graph))
    senders = jnp.broadcast_to(places, graph.shape)
    return Neighbours(senders, (graph != 0) & (senders != places[:, None]))


def edges_of(neighbours: Neighbours) -> Float[Array, "m m"]:
    """The matrix of a network: edges (receiver, sender), zeros and ones [M, M].

    Example:
      >>> edges_of(neighbours_of(jnp.array([[0.0, 1.0], [0.0, 0.0]]))).tolist()
      [[0.0, 1.0], [0.0, 0.0]]
    """
    senders, there = neighbours
    clients = len(senders)
    rows = jnp.arange(clients)[:, None]
    return jnp.zeros((clients, clients)).at[rows, senders].max(there.astype(float))


@checked
def among(neighbours: Neighbours, reported: Bool[Array, "m"] | None = None) -> Neighbours:
    """The network without the edges from and to clients that do not take part.

    Args:
      neighbours: M clients.
      reported: who takes part [M]; None: all.

    Example:
      >>> both = neighbours_of(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
      >>> among(both, jnp.array([True, False])).there.tolist()
      [[False, False], [False, False]]
    """
    if reported is None:
        return neighbours
    senders, there = neighbours
    return Neighbours(senders, there & reported[:, None] & reported[senders])


def to_others(neighbours: Neighbours, amounts: Array | None = None) -> Array:
    """To how many others each client sends [M], or the sum over its edges of given amounts.

    Args:
      neighbours: M clients.
      amounts: of each edge [M, k]; None: 1.

    Example:
      >>> to_others(neighbours_of(jnp.array([[0.0, 1.0], [0.0, 0.0]]))).tolist()
      [0, 1]
    """
    senders, there = neighbours
    amounts = there.astype(int) if amounts is None else jnp.where(there, amounts, 0)
    return jnp.zeros(len(senders), amounts.dtype).at[senders].add(amounts)


def from_others(neighbours: Neighbours, amounts: Array | None = None) -> Array:
    """From how many others each client receives [M], or the sum of given amounts.

    Args:
      neighbours: M clients.
      amounts: of each edge [M, k]; None: 1.

    Example:
      >>> from_others(neighbours_of(jnp.array([[0.0, 1.0], [0.0, 0.0]]))).tolist()
      [1, 0]
    """
    there = neighbours.there
    return (there.astype(int) if amounts is None else jnp.where(there, amounts, 0)).sum(axis=1)


@checked
def metropolis_rows(
    neighbours: Neighbours,
    own: float | Float[Array, ""] = 0.0,
    arrived: Bool[Array, "m k"] | None = None,
) -> SparseRows:
    """Metropolis-Hastings weights: 1 / (1 + the larger degree) for each edge, the rest for oneself.

    On an undirected graph they are symmetric, so that rows and columns sum to one (Xiao, Boyd and
    Kim, 2007, https://doi.org/10.1016/j.jpdc.2006.08.010). On a directed graph the degrees are the
    receiver's number of senders and the sender's number of receivers; columns sum to one if all are
    equal.

    Args:
      neighbours: M clients.
      own: at least this weight stays with the client, and the others share the rest as above.
      arrived: whether the message of each edge arrived [M, k]; the weight of one that did not stays
        with the receiver, so that columns no longer sum to one. None: all did.

    Returns:
      Rows that sum to one [M, k + 1]; the last column is the client itself.

    Example:
      >>> both = neighbours_of(jnp.array([[0.0, 1.0], [1.0, 0.0]]))
      >>> metropolis_rows(both, arrived=jnp.array([[True, True], [False, True]])).values.tolist()
      [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """
    sent = to_others(neighbours)[neighbours.senders]
    degrees = jnp.maximum(from_others(neighbours)[:, None], sent)
    values = (1 - own) * _met(neighbours, arrived) / (1 + degrees)
    return _with_own(neighbours.senders, values, 1 - values.sum(axis=1))


@checked
def share_rows(
    neighbours: Neighbours,
    own: float | Float[Array, ""] = 0.0,
    arrived: Bool[Array, "m k"] | None = None,
) -> SparseRows:
    """Shares of push-sum: a client divides its model equally between itself and its receivers.

    Args:
      neighbours: M clients.
      own: at least this share stays with the client.
      arrived: whether the message of each edge arrived [M, k]; a share that did not stays with the
        sender. None: all did.

    Returns:
      Rows of a matrix whose columns sum to one [M, k + 1]; the last column is the client itself.

    Example:
      >>> one_way = neighbours_of(jnp.array([[0.0, 0.0], [1.0, 0.0]]))
      >>> share_rows(one_way).values.tolist()
      [[0.0, 0.0, 0.5], [0.5, 0.0, 1.0]]
    """
    share = (1 - own) / (1 + to_others(neighbours))
    values = share[neighbours.senders] * _met(neighbours, arrived)
    return _with_own(neighbours.senders, values, 1 - to_others(neighbours, values))


@checked
def mean_rows(neighbours: Neighbours, arrived: Bool[Array, "m k"] | None = None) -> SparseRows:
    """Weights of a client that takes the plain mean of its own model and those it received.

    Args:
      neighbours: M clients.
      arrived: whether the message of each edge arrived [M, k]. None: all did.

    Returns:
      Rows that sum to one [M, k + 1]; the last column is the client itself.

    Example:
      >>> mean_rows(neighbours_of(jnp.array([[0.0, 1.0], [0.0, 0.0]]))).values.tolist()
      [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """
    met = _met(neighbours, arrived)
    own = 1 / (1 + met.sum(axis=1))
    return _with_own(neighbours.senders, met * own[:, None], own)


def for_mixing(rows: SparseRows) -> SparseRows | Float[Array, "m m"]:
    """The weights in the form that `mixing.mix` is quicker with: sparse rows or a matrix.

    Args:
      rows: of M clients among themselves [M, k].

    Example:
      >>> for_mixing(mean_rows(neighbours_of(jnp.ones((2, 2))))).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    clients, count = rows.values.shape
    return rows if clients >= SPARSE_FROM * count else dense_rows(rows, clients)


def for_info(rows: SparseRows) -> SparseRows | Float[Array, "m m"]:
    """The weights as a round tells them: a matrix, unless it would be large and mostly zeros.

    Args:
      rows: of M clients among themselves [M, k].

    Example:
      >>> for_info(mean_rows(neighbours_of(jnp.ones((2, 2))))).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    clients, _ = rows.values.shape
    return for_mixing(rows) if clients > MATRIX_UP_TO else dense_rows(rows, clients)


@checked
def mix_parts(
    rows: SparseRows,
    stacked: Stack,
    own: Stack,
    keys: Key[Array, "m k"],
    parts: Float[Array, "m k"],
) -> tuple[PyTree, Int[Array, "m k"]]:
    """Weighted sums of models of which each message has some numbers, drawn anew for each edge.

    Where a number was not sent the receiver takes its own. Each number is sent with the given
    probability, so that both sides know from the key which ones are.

    Args:
      rows: [M, k + 1], whose last column is the receiver itself.
      stacked: the models that are sent [S, ...], those of the columns.
      own: the models of the receivers [M, ...].
      keys: of the draws of each edge.
      parts: the probability that a number is sent over each edge.

    Returns:
      Models [M, ...] in the types of the given ones, and how many numbers each message had.

    Example:
      >>> rows = mean_rows(neighbours_of(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
      >>> keys = jax.random.split(jax.random.key(0), (2, 2))
      >>> x = jnp.array([[2.0, 2.0, 2.0, 2.0], [4.0, 4.0, 4.0, 4.0]])
      >>> mixed, numbers = mix_parts(rows, x, x, keys, jnp.full((2, 2), 0.5))
      >>> int((mixed[0] == 3.0).sum()) == int(numbers[0, 1])
      True
    """

    def wide(x: Array) -> Array:
        return x.astype(jnp.promote_types(rows.values.dtype, x.dtype))

    def scaled(weights: Float[Array, "m"], x: Array) -> Array:
        return weights.reshape(-1, *[1] * (x.ndim - 1)) * x

    own_wide = jax.tree.map(wide, own)
    columns, values = rows.columns[:, :-1].T, rows.values[:, :-1].T

    def add(total: PyTree, edges: tuple) -> tuple[PyTree, Int[Array, "m"]]:
        senders, weights, keys, parts = edges
        sent = jax.vmap(_are_sent, (0, 0, None))(keys, parts, tree.at(own, 0))

        def leaf(total: Array, x: Array, mine: Array, sent: Array) -> Array:
            return total + scaled(weights, jnp.where(sent, wide(x[senders]), mine))

        counts = [each.reshape(len(parts), -1).sum(axis=1) for each in jax.tree.leaves(sent)]
        return jax.tree.map(leaf, total, stacked, own_wide, sent), jnp.stack(counts).sum(axis=0)

    start = jax.tree.map(lambda x: scaled(rows.values[:, -1], x), own_wide)
    total, counts = lax.scan(add, start, (columns, values, keys.T, parts.T))
    return jax.tree.map(lambda t, x: t.astype(x.dtype), total, own), counts.T


def _are_sent(key: Key[Array, ""], part: Float[Array, ""], model: PyTree) -> PyTree:
    """Which numbers of a model are sent, for each leaf."""
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.bernoulli(k, part, x.shape) for k, x in zip(keys, leaves, strict=True)]
    return structure.unflatten(drawn)


@checked
def rows_on(
    weights: Float[Array, "m m"],
    neighbours: Neighbours,
    arrived: Bool[Array, "m k"] | None = None,
) -> SparseRows:
    """Given weights on the edges of a network, and the rest of each row for the client itself.

    Args:
      weights: of rows that sum to one [M, M].
      neighbours: M clients.
      arrived: whether the message of each edge arrived [M, k]. None: all did.

    Returns:
      Rows that sum to one [M, k + 1]; the last column is the client itself.

    Example:
      >>> weights = jnp.array([[0.5, 0.5], [0.0, 1.0]])
      >>> rows_on(weights, neighbours_of(weights)).values.tolist()
      [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """
    on_edges = jnp.take_along_axis(weights, neighbours.senders, axis=1)
    values = on_edges * _met(neighbours, arrived)
    return _with_own(neighbours.senders, values, 1 - values.sum(axis=1))


def _met(neighbours: Neighbours, arrived: Bool[Array, "m k"] | None) -> Float[Array, "m k"]:
    """1 for each edge whose message arrived, else 0."""
    there = neighbours.there
    return (there if arrived is None else there & arrived).astype(float)


def _with_own(
    senders: Int[Array, "m k"], values: Float[Array, "m k"], own: Float[Array, "m"]
) -> SparseRows:
    places = jnp.arange(len(senders))[:, None]
    return SparseRows(
        jnp.concatenate([senders, places], axis=1), jnp.concatenate([values, own[:, None]], axis=1)
    )
