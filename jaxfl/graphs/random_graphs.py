"""Graphs that are drawn at random, as matrices of zeros and ones with a zero diagonal."""

import numpy as np

from jaxfl.core.errors import InputError, check


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
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        upper = np.triu(rng.random((servers, servers)) * (servers - 1) < degree, k=1)
        graph = (upper | upper.T).astype(float)
        if _is_connected(graph):
            return graph
    raise InputError(
        f"none of 1,000 graphs of {servers} servers with mean degree {degree} is connected: "
        "raise the degree"
    )


def random_regular(nodes: int, degree: int = 4, seed: int = 0) -> np.ndarray:
    """A connected graph in which each node has `degree` neighbours, or all others if these are few.

    A ring in which each node is linked to its nearest nodes, after many random swaps of the ends of
    two edges.

    Args:
      nodes: M.
      degree: of each node.
      seed: of the swaps.

    Raises:
      InputError: there is no such graph, because the nodes and the degree are odd; or none that is
        connected was found, as for degree 1.

    Example:
      >>> random_regular(9, degree=4).sum(axis=1).tolist()
      [4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0]
    """
    degree = min(degree, nodes - 1)
    check(
        nodes * degree % 2 == 0,
        f"no graph of {nodes} clients has {degree} neighbours each: expected an even degree",
    )
    places = np.arange(nodes)
    pairs = [(places, (places + hop) % nodes) for hop in range(1, degree // 2 + 1)]
    if degree % 2:
        pairs.append((places[: nodes // 2], places[nodes // 2 :]))
    edges = np.concatenate([np.stack(pair, axis=1) for pair in pairs] or [np.zeros((0, 2), int)])
    rng = np.random.default_rng(seed)
    for _ in range(100):
        one, other = _swap_ends(edges, rng).T
        graph = np.zeros((nodes, nodes))
        graph[one, other] = 1
        graph[other, one] = 1
        if _is_connected(graph):
            return graph
    raise InputError(
        f"none of 100 graphs of {nodes} clients with degree {degree} is connected: raise the degree"
    )


def _is_connected(graph: np.ndarray) -> bool:
    reached = np.arange(len(graph)) == 0
    newest = reached
    while newest.any():
        newest = (graph[newest] > 0).any(axis=0) & ~reached
        reached = reached | newest
    return bool(reached.all())


def _swap_ends(edges: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The edges [E, 2] after many swaps of the ends of two, which keep all degrees.

    a - b and c - d become a - d and c - b where this makes no loop and no edge that is there.
    """
    ends = edges.tolist()
    present = {frozenset(edge) for edge in ends}
    draws = rng.integers(len(ends), size=(20 * len(ends), 2)).tolist() if ends else []
    turns = (rng.random(len(draws)) < 0.5).tolist()
    for (first, second), turn in zip(draws, turns, strict=True):
        a, b = ends[first]
        c, d = reversed(ends[second]) if turn else ends[second]
        swap = (frozenset((a, d)), frozenset((c, b)))
        if len({a, b, c, d}) == 4 and present.isdisjoint(swap):
            present -= {frozenset((a, b)), frozenset((c, d))}
            present |= set(swap)
            ends[first] = [a, d]
            ends[second] = [c, b]
    return np.array(ends, int).reshape(-1, 2)
