"""Mixing weights with few edges: the largest weights of each row, and mixing by sparse rows."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.core.edges import Edges, KeepEdges, SparseRows
from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack

# How many senders `mix_rows` adds in one pass; a program of more takes long to compile.
AT_A_TIME = 16
# Sparse rows are mixed with where a row has at most one edge for so many clients: it is quicker,
# since a product of matrices is bound by operations and a sum of few models by memory.
SPARSE_FROM = 8


@checked
def largest_edges(weights: Float[Array, "m m"], count: int) -> Bool[Array, "m m"]:
    """Which edges stay if each client keeps those of its `count` largest weights of other clients.

    The edge of each client to itself stays too. Of equal weights, those of the clients stay that
    come next after the receiver, counted around a circle, so that equal weights do not make the
    first clients the collaborators of all.

    Args:
      weights: [M, M] (receiver, sender).
      count: k, at most M - 1 has an effect.

    Returns:
      [M, M], with at most 1 + count edges in a row.

    Example:
      >>> weights = jnp.array([[0.5, 0.2, 0.3], [0.2, 0.2, 0.6], [0.4, 0.4, 0.2]])
      >>> largest_edges(weights, 1).astype(int).tolist()
      [[1, 0, 1], [0, 1, 1], [1, 0, 1]]
    """
    clients = weights.shape[0]
    places = jnp.arange(clients)
    if count >= clients - 1:
        return jnp.ones((clients, clients), bool)
    # Row i begins with the client after i, and ends with the one before it.
    others = (places[:, None] + places[None, 1:]) % clients
    ranked = jnp.take_along_axis(lax.stop_gradient(weights), others, axis=1)
    columns = jnp.take_along_axis(others, lax.top_k(ranked, count)[1], axis=1)
    return jnp.eye(clients, dtype=bool).at[places[:, None], columns].set(True)


@checked
def keep_largest(weights: Float[Array, "m m"], count: int) -> Float[Array, "m m"]:
    """The `largest_edges` of the weights, each row rescaled to its former sum.

    Derivatives pass through the weights that stay: the choice of the edges has none, and the sum of
    a row counts as a constant. A row without a positive weight that stays is left as it is.

    Args:
      weights: [M, M] (receiver, sender), 0 or more.
      count: k, the number of other clients whose weights each row keeps beside its own.

    Example:
      >>> weights = jnp.array([[0.25, 0.25, 0.5], [0.0, 0.5, 0.5], [0.25, 0.0, 0.75]])
      >>> keep_largest(weights, 1)[1:].tolist()
      [[0.0, 0.5, 0.5], [0.25, 0.0, 0.75]]
    """
    if count >= weights.shape[0] - 1:
        return weights
    edges = jnp.where(largest_edges(weights, count), weights, 0.0)
    total = edges.sum(axis=1, keepdims=True)
    former = lax.stop_gradient(weights).sum(axis=1, keepdims=True)
    rescaled = edges * former / jnp.where(total > 0, total, 1.0)
    return jnp.where(total > 0, rescaled, weights)


@checked
def sparse_rows(weights: Float[Array, "r m"], count: int) -> SparseRows:
    """The `count` entries of largest absolute value of each row: all of it, if it has no more.

    Args:
      weights: [R, M].
      count: k, the number of entries.

    Example:
      >>> rows = sparse_rows(jnp.array([[0.0, 0.25, 0.75]]), 2)
      >>> rows.columns.tolist(), rows.values.tolist()
      ([[2, 1]], [[0.75, 0.25]])
    """
    columns = lax.top_k(jnp.abs(lax.stop_gradient(weights)), min(count, weights.shape[1]))[1]
    return SparseRows(columns, jnp.take_along_axis(weights, columns, axis=1))


def dense_rows(rows: SparseRows, senders: int) -> Float[Array, "r m"]:
    """The matrix of sparse rows.

    Args:
      rows: [R, k] columns and values.
      senders: M.

    Example:
      >>> dense_rows(SparseRows(jnp.array([[2, 0]]), jnp.array([[0.25, 0.75]])), 3).tolist()
      [[0.75, 0.0, 0.25]]
    """
    receivers = rows.columns.shape[0]
    zeros = jnp.zeros((receivers, senders), rows.values.dtype)
    return zeros.at[jnp.arange(receivers)[:, None], rows.columns].add(rows.values)


@checked
def mix_rows(rows: SparseRows, stacked: Stack) -> PyTree:
    """Weighted sums of models by sparse rows: `mixing.mix` with `dense_rows`, up to rounding.

    Each model of the result is summed up in one pass, some senders at a time, so that no array
    [R, k, D] exists. That is 2 R k D operations, where the product of matrices has 2 R M D; but it
    is bound by memory, so that it is quicker if k is less than about a tenth of M.

    Args:
      rows: [R, k] columns and values.
      stacked: models [M, ...].

    Returns:
      Models [R, ...] in the types of the given ones, summed in the wider of the types of weights
      and models, at full precision on every backend.

    Example:
      >>> rows = SparseRows(jnp.array([[0, 1], [1, 0]]), jnp.array([[0.5, 0.5], [1.0, 0.0]]))
      >>> mix_rows(rows, jnp.array([[2.0], [4.0]])).tolist()
      [[3.0], [4.0]]
    """
    receivers, count = rows.columns.shape
    # Senders of weight 0 fill the last part.
    width = min(count, AT_A_TIME)
    missing = -count % width
    parts = jax.tree.map(
        lambda x: jnp.pad(x, ((0, 0), (0, missing))).reshape(receivers, -1, width).swapaxes(0, 1),
        rows,
    )

    def leaf(x: Array) -> Array:
        flat = x.reshape(x.shape[0], -1)

        def add(total: Array, part: SparseRows) -> tuple[Array, None]:
            for j in range(width):
                models = flat[part.columns[:, j]].astype(total.dtype)
                total = total + part.values[:, j, None] * models
            return total, None

        wide = jnp.promote_types(rows.values.dtype, x.dtype)
        total = jnp.zeros((receivers, flat.shape[1]), wide)
        total, _ = lax.scan(add, total, parts)
        return total.astype(x.dtype).reshape(-1, *x.shape[1:])

    return jax.tree.map(leaf, stacked)


def top_edges(count: int) -> KeepEdges:
    """A task's `keep_edges`: each client mixes its own model with those of `count` others.

    These are the models of the largest weights in its row, which is rescaled to its former sum. In
    a cohort of many clients the models are mixed by sparse rows.

    Args:
      count: k, the number of other clients.

    Example:
      >>> edges = top_edges(1)(jnp.full((100, 100), 0.01))
      >>> edges.weights.shape, edges.rows.values.shape
      ((100, 100), (100, 2))
    """

    def keep(weights: Float[Array, "m m"]) -> Edges:
        clients = weights.shape[0]
        largest = keep_largest(weights, count)
        many = clients >= SPARSE_FROM * (count + 1)
        return Edges(largest, sparse_rows(largest, count + 1) if many else largest)

    return keep
