"""Which edges of its graph a task keeps: all, or those of the largest weights of each row."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Array, Float

from jaxfl.kernels.sparse import SparseRows, keep_largest, sparse_rows
from jaxfl.types import Task

__all__ = ["Edges", "keep_edges", "top_edges"]


# Sparse rows are mixed with where a row has at most one edge for so many clients: it is quicker,
# since a product of matrices is bound by operations and a sum of few models by memory.
SPARSE_FROM = 8


class Edges(NamedTuple):
    """The mixing weights of the edges that stay, for the graph of the round and for `mix`."""

    # [M, M] (receiver, sender), 0 where there is no edge
    weights: Float[Array, "m m"]
    # the same weights in the form in which they are mixed with
    rows: Float[Array, "m m"] | SparseRows


def keep_edges(task: Task, weights: Float[Array, "m m"]) -> Edges:
    """The edges that the task keeps of a graph: all of them, unless it was made with `top_edges`.

    A method that calls it says so in its facts, `takes_top_edges`.

    Args:
      task: of the method.
      weights: [M, M] (receiver, sender).

    Example:
      >>> limited = task._replace(keep_edges=top_edges(1))
      >>> weights = jnp.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]])
      >>> (keep_edges(limited, weights).weights > 0).sum(axis=1).tolist()
      [2, 2, 2]
    """
    if task.keep_edges is None:
        return Edges(weights, weights)
    return task.keep_edges(weights)


def top_edges(count: int) -> Callable[[Float[Array, "m m"]], Edges]:
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
        kept = keep_largest(weights, count)
        many = clients >= SPARSE_FROM * (count + 1)
        return Edges(kept, sparse_rows(kept, count + 1) if many else kept)

    return keep
