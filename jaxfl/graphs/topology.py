"""Graphs of servers and of clients: matrices of zeros and ones with a zero diagonal.

Graphs of servers are symmetric [S, S]. A network of clients is a sequence of graphs [P, M, M]
(receiver, sender), one for each round in turn; most have one graph.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from jaxfl.core.errors import InputError, check
from jaxfl.core.npy import read_npy
from jaxfl.graphs.random_graphs import erdos_renyi, random_regular


def _undirected(graph: np.ndarray) -> np.ndarray:
    return np.maximum(graph, graph.T)


def ring(servers: int) -> np.ndarray:
    """Each server is linked to the two next to it; two servers share one edge, one has none.

    Example:
      >>> ring(3).tolist()
      [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    return _undirected(np.roll(np.eye(servers), 1, axis=1)) * (1 - np.eye(servers))


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


def grid(nodes: int) -> np.ndarray:
    """A square grid, row by row; each node is linked to those above, below and beside it.

    Example:
      >>> grid(4).sum(axis=1).tolist()
      [2.0, 2.0, 2.0, 2.0]
    """
    width = int(np.ceil(np.sqrt(nodes)))
    row, column = np.divmod(np.arange(nodes), width)
    steps = np.abs(row[:, None] - row[None]) + np.abs(column[:, None] - column[None])
    return (steps == 1).astype(float)


def complete(nodes: int) -> np.ndarray:
    """Each node is linked to all others.

    Example:
      >>> complete(2).tolist()
      [[0.0, 1.0], [1.0, 0.0]]
    """
    return np.ones((nodes, nodes)) - np.eye(nodes)


def circulant(nodes: int, hops: list[int]) -> np.ndarray:
    """Node j sends to the nodes j + hop, counted around a circle; a directed graph.

    Example:
      >>> circulant(3, [1]).tolist()
      [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    graph = np.zeros((nodes, nodes))
    for hop in hops:
        graph[(np.arange(nodes) + hop) % nodes, np.arange(nodes)] = 1
    return graph * (1 - np.eye(nodes))


def powers_of_two(nodes: int) -> list[int]:
    """The hops of exponential graphs: 1, 2, 4, ..., below the number of nodes; [1] for one node.

    Example:
      >>> powers_of_two(6)
      [1, 2, 4]
    """
    return [2**k for k in range(max(int(np.ceil(np.log2(nodes))), 1))]


# name -> (nodes, degree, seed) -> graphs [P, M, M]; the second table has directed ones
NETWORKS: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "ring": lambda nodes, degree, seed: ring(nodes)[None],
    "grid": lambda nodes, degree, seed: grid(nodes)[None],
    "exponential": lambda nodes, degree, seed: _undirected(circulant(nodes, powers_of_two(nodes)))[
        None
    ],
    "random_regular": lambda nodes, degree, seed: random_regular(nodes, degree, seed)[None],
    "erdos_renyi": lambda nodes, degree, seed: erdos_renyi(nodes, float(degree), seed)[None],
    "complete": lambda nodes, degree, seed: complete(nodes)[None],
    "one_peer": lambda nodes, degree, seed: np.stack(
        [circulant(nodes, [hop]) for hop in powers_of_two(nodes)]
    ),
}
DIRECTED_NETWORKS: dict[str, Callable[[int, int, int], np.ndarray]] = {
    "one_peer": NETWORKS["one_peer"],
    "exponential": lambda nodes, degree, seed: circulant(nodes, powers_of_two(nodes))[None],
    "ring": lambda nodes, degree, seed: circulant(nodes, [1])[None],
}


def given_network(graph: str | ArrayLike, directed: bool) -> np.ndarray:
    """A graph of all clients from an array or from the NumPy file of that name.

    Args:
      graph: the array [C, C] (receiver, sender), or the path of a file (.npy) with it. Edges are
        the entries that are not zero; the diagonal does not matter.
      directed: whether the graph may be directed. Then it has to be strongly connected.

    Raises:
      InputError: there is no such file or no square matrix of numbers in it, the graph is directed
        and may not be, or nothing gets from one of its clients to another.

    Example:
      >>> given_network(np.array([[1, 1], [1, 1]]), directed=False).tolist()
      [[0.0, 1.0], [1.0, 0.0]]
      >>> given_network(np.array([[0, 1], [0, 0]]), directed=False)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the graph of the clients is directed: expected ...
    """
    source = "the graph of the clients"
    if isinstance(graph, str):
        source = f"the graph in {graph}"
        # Gossip also takes a hierarchy, which has weights of its own.
        names = DIRECTED_NETWORKS if directed else (*NETWORKS, "hierarchy")
        check(
            Path(graph).suffix == ".npy" and os.path.isfile(graph),
            f"graph of {'push_sum' if directed else 'gossip'} is {graph!r}: expected a .npy file "
            f"that exists, or one of {', '.join(names)}",
        )
        graph = read_npy(graph, "the graph")
    array = np.asarray(graph)
    square = array.ndim == 2 and array.shape[0] == array.shape[1]
    check(
        square and array.dtype.kind in "biuf" and bool(np.isfinite(array).all()),
        f"{source} has shape {array.shape} and type {array.dtype}: expected a square matrix of "
        "finite numbers, a row and a column for each client",
    )
    edges = (array != 0) * (1.0 - np.eye(len(array)))
    check(
        directed or bool((edges == edges.T).all()),
        f"{source} is directed: expected a symmetric matrix, or choose push_sum",
    )
    apart = unreached(edges) if directed else None
    if apart is not None:
        raise InputError(
            f"{source} is not strongly connected, no path leads from client {apart[0]} to client "
            f"{apart[1]}: expected a path from each client to each other one; add edges (receiver, "
            "sender)"
        )
    return edges


def unreached(graph: Float[np.ndarray, "m m"]) -> tuple[int, int] | None:
    """Two nodes without a path from the first to the second; None in a strongly connected graph.

    Args:
      graph: edges (receiver, sender) [M, M].

    Example:
      >>> unreached(circulant(3, [1])), unreached(np.array([[0.0, 1.0], [0.0, 0.0]]))
      (None, (0, 1))
    """
    # All nodes are reached from the first, and it from all, or some two are apart.
    for edges, back in ((graph, False), (graph.T, True)):
        reached = np.arange(len(graph)) == 0
        new = reached
        while new.any():
            new = edges[:, new].any(axis=1) & ~reached
            reached = reached | new
        if not reached.all():
            other = int(np.argmin(reached))
            return (other, 0) if back else (0, other)
    return None


class Network(NamedTuple):
    """The graphs of the clients of cohorts."""

    # (ids [M], number of the round) -> edges [M, M] (receiver, sender)
    edges: Callable[[Int[Array, "m"], Array], Float[Array, "m m"]]
    # C of a given graph; None for one that a name makes for any number of clients
    clients: int | None

    def check(self, clients: int) -> None:
        """Raises an `InputError` unless the graph is of that many clients."""
        size = self.clients
        check(
            size is None or size == clients,
            f"the graph has {size} clients, and there are {clients}: expected a row and a column "
            "for each",
        )


def network_of(graph: str | ArrayLike, degree: int, seed: int, directed: bool) -> Network:
    """The graph of the clients of a cohort in a round.

    Args:
      graph: a name, the path of a NumPy file, or an array, see `given_network`.
      degree: of graphs that are drawn at random.
      seed: of these graphs.
      directed: whether the graph may be directed.

    Returns:
      In a named graph the clients of a cohort stand in the order of their ids; of a given one they
      are a part.

    Raises:
      InputError: see `given_network`.

    Example:
      >>> network = network_of("ring", 0, 0, directed=True)
      >>> network.edges(jnp.array([7, 3]), jnp.array(0)).tolist()
      [[0.0, 1.0], [1.0, 0.0]]
    """
    networks = DIRECTED_NETWORKS if directed else NETWORKS
    if isinstance(graph, str) and graph in networks:

        def named(ids: Int[Array, "m"], number: Array) -> Float[Array, "m m"]:
            graphs = jnp.asarray(networks[graph](ids.size, degree, seed), float)
            place = jnp.argsort(jnp.argsort(ids))
            return graphs[number % len(graphs)][place][:, place]

        return Network(named, None)
    adjacency = given_network(graph, directed)

    def subgraph(ids: Int[Array, "m"], number: Array) -> Float[Array, "m m"]:
        return jnp.asarray(adjacency, float)[ids][:, ids]

    return Network(subgraph, len(adjacency))


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
