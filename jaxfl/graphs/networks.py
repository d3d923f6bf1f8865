"""Networks of clients: who receives from whom in a round, as lists of neighbours.

A network is a sequence of graphs, one for each round in turn; most have one graph.
"""

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int

from jaxfl.core.edges import Neighbours
from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.npy import read_npy
from jaxfl.core.plain_array import plain_array
from jaxfl.graphs.pairs import (
    Pairs,
    circulant_pairs,
    complete_pairs,
    erdos_renyi_pairs,
    grid_pairs,
    powers_of_two,
    random_regular_pairs,
    undirected,
    unreached,
)

# (nodes, degree, seed) -> the pairs of each graph
Draw = Callable[[int, int, int], Sequence[Pairs]]


def _one_peer(nodes: int, degree: int, seed: int) -> list[Pairs]:
    return [circulant_pairs(nodes, [hop]) for hop in powers_of_two(nodes)]


# The second table has directed graphs.
NETWORKS: dict[str, Draw] = {
    "ring": lambda nodes, degree, seed: [undirected(circulant_pairs(nodes, [1]))],
    "grid": lambda nodes, degree, seed: [grid_pairs(nodes)],
    "exponential": lambda nodes, degree, seed: [
        undirected(circulant_pairs(nodes, powers_of_two(nodes)))
    ],
    "random_regular": lambda nodes, degree, seed: [random_regular_pairs(nodes, degree, seed)],
    "erdos_renyi": lambda nodes, degree, seed: [erdos_renyi_pairs(nodes, float(degree), seed)],
    "complete": lambda nodes, degree, seed: [complete_pairs(nodes)],
    "one_peer": _one_peer,
}
DIRECTED_NETWORKS: dict[str, Draw] = {
    "one_peer": _one_peer,
    "exponential": lambda nodes, degree, seed: [circulant_pairs(nodes, powers_of_two(nodes))],
    "ring": lambda nodes, degree, seed: [circulant_pairs(nodes, [1])],
}


def given_pairs(graph: str | ArrayLike, directed: bool) -> tuple[Pairs, int]:
    """A graph of all clients from an array or from the NumPy file of that name, and their number.

    Args:
      graph: the array [C, C] (receiver, sender), or the path of a file (.npy) with it. Edges are
        the entries that are not zero; the diagonal does not matter.
      directed: whether the graph may be directed. Then it has to be strongly connected.

    Raises:
      InputError: there is no such file or no square matrix of numbers in it, the graph is directed
        and may not be, or nothing gets from one of its clients to another.

    Example:
      >>> given_pairs(np.array([[1, 1], [1, 1]]), directed=False)[0].tolist()
      [[0, 1], [1, 0]]
      >>> given_pairs(np.array([[0, 1], [0, 0]]), directed=False)
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
    array = plain_array(graph, "the graph")
    square = array.ndim == 2 and array.shape[0] == array.shape[1]
    check(
        square and array.dtype.kind in "biuf",
        f"{source} has shape {array.shape} and type {array.dtype}: expected a square matrix of "
        "numbers, a row and a column for each client",
    )
    missing = np.argwhere(~np.isfinite(array))
    check(
        not len(missing),
        f"{source} has an entry that is not finite, at {missing[:1].tolist()}: expected zeros and "
        "ones",
    )
    below = np.argwhere(array < 0)
    check(
        not len(below),
        f"{source} has an entry below 0, at {below[:1].tolist()}: expected zeros and ones",
    )
    others = ~np.isin(array[~np.eye(len(array), dtype=bool)], (0, 1))
    if others.any():
        instead = "" if directed else "; gossip takes mixing weights with weights=given"
        warn(
            f"{source} has other numbers than 0 and 1, which count as 1: give zeros and ones"
            f"{instead}"
        )
    pairs = np.argwhere(array)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    check(
        directed or len(undirected(pairs)) == len(pairs),
        f"{source} is directed: expected a symmetric matrix, or choose push_sum",
    )
    apart = unreached(pairs, len(array)) if directed else None
    if apart is not None:
        raise InputError(
            f"{source} is not strongly connected, no path leads from client {apart[0]} to client "
            f"{apart[1]}: expected a path from each client to each other one; add edges (receiver, "
            "sender)"
        )
    return pairs, len(array)


def lists_of(
    graphs: Sequence[Pairs], nodes: int
) -> tuple[Int[np.ndarray, "p m k"], Bool[np.ndarray, "p m k"]]:
    """The senders of each node in each graph, and which places are filled.

    Args:
      graphs: P of them.
      nodes: M.

    Returns:
      Senders and places [P, M, k], where k is the largest number of senders of a node, so that
      memory grows with the edges where all have about as many; an empty place has the node itself.

    Example:
      >>> senders, there = lists_of([np.array([[0, 1], [0, 2], [2, 0]])], 3)
      >>> senders[0].tolist(), there[0].astype(int).tolist()
      ([[1, 2], [1, 1], [0, 2]], [[1, 1], [0, 0], [1, 0]])
    """
    counts = [np.bincount(pairs[:, 0], minlength=nodes) for pairs in graphs]
    most = max(int(max(count.max(initial=0) for count in counts)), 1)
    places = np.arange(nodes, dtype=np.int32)
    senders = np.broadcast_to(places[:, None], (len(graphs), nodes, most)).copy()
    there = np.zeros(senders.shape, bool)
    for number, (pairs, count) in enumerate(zip(graphs, counts, strict=True)):
        receivers, heard = pairs[np.argsort(pairs[:, 0], kind="stable")].T
        free = np.arange(len(pairs)) - np.repeat(np.cumsum(count) - count, count)
        senders[number, receivers, free] = heard
        there[number, receivers, free] = True
    return senders, there


class Network(NamedTuple):
    """The graphs of the clients of cohorts."""

    # (ids [M], number of the round) -> who receives from whom
    neighbours: Callable[[Int[Array, "m"], Array], Neighbours]
    # number of clients -> the pairs of its graphs, when all of them take part
    pairs: Callable[[int], Pairs]
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
      graph: a name, the path of a NumPy file, or an array, see `given_pairs`.
      degree: of graphs that are drawn at random.
      seed: of these graphs.
      directed: whether the graph may be directed.

    Returns:
      In a named graph the clients of a cohort stand in the order of their ids; of a given one they
      are a part.

    Raises:
      InputError: see `given_pairs`.

    Example:
      >>> network = network_of("ring", 0, 0, directed=True)
      >>> network.neighbours(jnp.array([7, 3]), jnp.array(0)).senders.tolist()
      [[1], [0]]
    """
    networks = DIRECTED_NETWORKS if directed else NETWORKS
    if isinstance(graph, str) and graph in networks:

        @lru_cache
        def lists(nodes: int) -> tuple[np.ndarray, np.ndarray]:
            return lists_of(networks[graph](nodes, degree, seed), nodes)

        def named(ids: Int[Array, "m"], number: Array) -> Neighbours:
            senders, there = (jnp.asarray(x)[number % len(x)] for x in lists(ids.size))
            order = jnp.argsort(ids)
            places = jnp.argsort(order)
            return Neighbours(order[senders[places]], there[places])

        def all_pairs(nodes: int) -> Pairs:
            return np.concatenate(networks[graph](nodes, degree, seed))

        return Network(named, all_pairs, None)
    pairs, clients = given_pairs(graph, directed)
    all_senders, filled = (x[0] for x in lists_of([pairs], clients))

    def part(ids: Int[Array, "m"], number: Array) -> Neighbours:
        # Where each client stands in the cohort; -1: it does not.
        places = jnp.full(clients, -1).at[ids].set(jnp.arange(ids.size))
        senders = places[jnp.asarray(all_senders)[ids]]
        own = jnp.arange(ids.size)[:, None]
        there = jnp.asarray(filled)[ids] & (senders >= 0)
        return Neighbours(jnp.where(there, senders, own), there)

    return Network(part, lambda nodes: pairs, clients)
