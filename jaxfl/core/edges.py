"""The forms of a graph of clients: lists of neighbours, sparse rows, and the edges that stay."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Array, Bool, Float, Int, PyTree


class SparseRows(NamedTuple):
    """The weights of k senders for each receiver; all other weights are 0.

    Example:
      >>> rows = SparseRows(columns=jnp.array([[2]]), values=jnp.array([[1.0]]))
      >>> jaxfl.kernels.dense_rows(rows, 3).tolist()
      [[0.0, 0.0, 1.0]]
    """

    # [R, k] the senders of each row; all that have a weight are different
    columns: Int[Array, "r k"]
    # [R, k] their weights
    values: Float[Array, "r k"]


def is_sparse(weights: Any) -> bool:
    """Whether mixing weights are sparse rows, which are those of one part of a model.

    Example:
      >>> is_sparse(jnp.eye(3))
      False
    """
    return isinstance(weights, SparseRows)


class Neighbours(NamedTuple):
    """From whom each client receives: k places for each, of which some may be empty.

    Example:
      >>> path = Neighbours(jnp.array([[1], [0], [1]]), jnp.array([[True], [True], [False]]))
      >>> jaxfl.kernels.edges_of(path).tolist()
      [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """

    # [M, k] the senders of each client, by their places among the M clients
    senders: Int[Array, "m k"]
    # [M, k] whether there is such an edge; an empty place has any sender
    there: Bool[Array, "m k"]


class Edges(NamedTuple):
    """The mixing weights of the edges that stay, for the graph of the round and for `mix`."""

    # [M, M] (receiver, sender), 0 where there is no edge
    weights: Float[Array, "m m"]
    # the same as a matrix or `SparseRows`: `mix`, which takes `Edges`, multiplies by these
    rows: PyTree


@runtime_checkable
class KeepEdges(Protocol):
    """(weights [M, M]) -> Edges: which edges of a graph stay, and the weights on them."""

    def __call__(self, weights: Float[Array, "m m"], /) -> Edges: ...


def keep_all_edges(weights: Float[Array, "m m"]) -> Edges:
    """Every edge of the graph stays, with its weight.

    Args:
      weights: [M, M] (receiver, sender).

    Example:
      >>> edges = keep_all_edges(jnp.eye(3))
      >>> edges.rows is edges.weights
      True
    """
    return Edges(weights, weights)
