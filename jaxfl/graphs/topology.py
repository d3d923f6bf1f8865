"""Graphs of servers: symmetric matrices [S, S] of zeros and ones with a zero diagonal.

`networks` has those of clients.
"""

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Shaped

from jaxfl.core.errors import check
from jaxfl.graphs.pairs import circulant_pairs, erdos_renyi_pairs, matrix_of, undirected


def ring(servers: int) -> np.ndarray:
    """Each server is linked to the two next to it; two servers share one edge, one has none.

    Example:
      >>> ring(3).tolist()
      [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    return matrix_of(undirected(circulant_pairs(servers, [1])), servers)


def erdos_renyi(servers: int, degree: float = 3.0, seed: int = 0) -> np.ndarray:
    """Each edge exists with probability `degree` / (S - 1); drawn again until it is connected.

    Args:
      servers: S.
      degree: mean number of neighbours in a draw. If it is small, most draws are rejected.
      seed: of the draws.

    Raises:
      InputError: none of 1,000 graphs is connected.

    Example:
      >>> erdos_renyi(4, degree=3.0).sum(axis=1).tolist()
      [3.0, 3.0, 3.0, 3.0]
    """
    return matrix_of(erdos_renyi_pairs(servers, degree, seed), servers)


def alone(servers: int) -> np.ndarray:
    """No edges.

    Example:
      >>> alone(2).tolist()
      [[0.0, 0.0], [0.0, 0.0]]
    """
    return np.zeros((servers, servers))


TOPOLOGIES = {f.__name__: f for f in (ring, erdos_renyi, alone)}


def adjacency(graph: str | Shaped[ArrayLike, "s s"], servers: int) -> Shaped[Array, "s s"]:
    """The graph of that name in `TOPOLOGIES`, or the given one, as an array of JAX.

    Args:
      graph: a name or an adjacency matrix [S, S].
      servers: S.

    Example:
      >>> adjacency("ring", 2).tolist()
      [[0.0, 1.0], [1.0, 0.0]]
    """
    return jnp.asarray(TOPOLOGIES[graph](servers) if isinstance(graph, str) else graph)


def check_graph(adjacency: ArrayLike, nodes: int) -> None:
    """Raises an `InputError` unless the array is the adjacency of an undirected graph.

    Only the shape of a traced array is checked.

    Example:
      >>> check_graph(jaxfl.topology.ring(3), 4)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the adjacency of 4 servers has shape (3, 3): expected ...
    """
    expected = (
        f"expected a symmetric matrix ({nodes}, {nodes}) of zeros and ones with a zero diagonal"
    )
    shape = np.shape(adjacency)
    check(
        shape == (nodes, nodes), f"the adjacency of {nodes} servers has shape {shape}: {expected}"
    )
    if not isinstance(adjacency, Tracer):
        graph = np.asarray(adjacency)
        simple = (
            np.isin(graph, (0, 1)).all()
            and (graph == graph.T).all()
            and not np.diagonal(graph).any()
        )
        check(simple, f"the adjacency of the servers is of no undirected graph: {expected}")


def check_groups(clients: int, **given: tuple[ArrayLike, int]) -> None:
    """Raises an `InputError` unless each array gives every client one of so many groups.

    Only the shapes of traced arrays are checked.

    Example:
      >>> check_groups(3, cluster=(np.array([0, 1, 2]), 2))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: cluster holds 0 to 2: expected numbers from 0 to 1
    """
    for name, (ids, groups) in given.items():
        shape = np.shape(ids)
        check(
            shape == (clients,),
            f"{name} has shape {shape}: expected ({clients},), the group of each client",
        )
        if not isinstance(ids, Tracer):
            low, high = np.asarray(ids).min(), np.asarray(ids).max()
            check(
                low >= 0 and high < groups,
                f"{name} holds {low} to {high}: expected numbers from 0 to {groups - 1}",
            )
