"""Graphs of nodes as pairs (receiver, sender) [E, 2]: their memory grows with the edges."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from jaxfl.core.errors import InputError, check

# So many nodes without an edge in the mean of the draws are so rarely none, exp(-20), that nothing
# is drawn.
HOPELESS = 20

Pairs = Int[np.ndarray, "_ 2"]


def matrix_of(pairs: Pairs, nodes: int) -> Float[np.ndarray, "m m"]:
    """The matrix (receiver, sender) of zeros and ones.

    Example:
      >>> matrix_of(np.array([[0, 1]]), 2).tolist()
      [[0.0, 1.0], [0.0, 0.0]]
    """
    graph = np.zeros((nodes, nodes))
    graph[pairs[:, 0], pairs[:, 1]] = 1
    return graph


def undirected(pairs: Pairs) -> Pairs:
    """The pairs in both directions, each once.

    Example:
      >>> undirected(np.array([[0, 1], [1, 0], [1, 2]])).tolist()
      [[0, 1], [1, 0], [1, 2], [2, 1]]
    """
    return np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)


def circulant_pairs(nodes: int, hops: Sequence[int]) -> Pairs:
    """Node j sends to the nodes j + hop, counted around a circle; a directed graph.

    Example:
      >>> circulant_pairs(3, [1]).tolist()
      [[1, 0], [2, 1], [0, 2]]
    """
    places = np.arange(nodes)
    pairs = np.concatenate([np.stack([(places + hop) % nodes, places], axis=1) for hop in hops])
    return pairs[pairs[:, 0] != pairs[:, 1]]


def powers_of_two(nodes: int) -> list[int]:
    """The hops of exponential graphs: 1, 2, 4, ..., below the number of nodes; [1] for one node.

    Example:
      >>> powers_of_two(6)
      [1, 2, 4]
    """
    return [2**k for k in range(max(int(np.ceil(np.log2(nodes))), 1))]


def grid_pairs(nodes: int) -> Pairs:
    """A square grid, row by row; each node is linked to those above, below and beside it.

    Example:
      >>> grid_pairs(4)[:2].tolist()  # node 0 hears nodes 1 and 2
      [[0, 1], [0, 2]]
    """
    width = int(np.ceil(np.sqrt(nodes)))
    places = np.arange(nodes)
    right = places[(places % width < width - 1) & (places + 1 < nodes)]
    below = places[places + width < nodes]
    pairs = [np.stack([right, right + 1], axis=1), np.stack([below, below + width], axis=1)]
    return undirected(np.concatenate(pairs))


def complete_pairs(nodes: int) -> Pairs:
    """Each node is linked to all others.

    Example:
      >>> complete_pairs(2).tolist()
      [[0, 1], [1, 0]]
    """
    return np.argwhere(~np.eye(nodes, dtype=bool))


def erdos_renyi_pairs(nodes: int, degree: float, seed: int) -> Pairs:
    """Each edge exists with probability `degree` / (M - 1); drawn again until it is connected.

    Args:
      nodes: M.
      degree: mean number of neighbours in a draw. If it is small, most draws are rejected.
      seed: of the draws.

    Raises:
      InputError: none of 1,000 graphs is connected, or none can be expected to be.

    Example:
      >>> len(erdos_renyi_pairs(4, degree=3.0, seed=0))
      12
    """
    # So many nodes are alone in a draw; the others rarely have no edge if these are many.
    alone = nodes * max(1 - degree / max(nodes - 1, 1), 0.0) ** (nodes - 1)
    check(
        alone < HOPELESS,
        f"{alone:.0f} of {nodes} nodes of mean degree {degree:g} have no edge in a draw, and a "
        f"connected graph is not to be expected: raise the degree to {np.log(nodes) + 1:.0f}",
    )
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        # Row by row, so that no matrix of draws is in memory.
        drawn = [np.flatnonzero(rng.random(nodes) * (nodes - 1) < degree) for _ in range(nodes)]
        later = [others[others > node] for node, others in enumerate(drawn)]
        nodes_of = np.repeat(np.arange(nodes), [len(others) for others in later])
        pairs = undirected(np.stack([nodes_of, np.concatenate(later)], axis=1))
        if is_connected(pairs, nodes):
            return pairs
    raise InputError(
        f"none of 1,000 graphs of {nodes} nodes with mean degree {degree} is connected: "
        "raise the degree"
    )


def random_regular_pairs(nodes: int, degree: int, seed: int) -> Pairs:
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
      >>> len(random_regular_pairs(9, degree=4, seed=0))
      36
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
        found = undirected(_swap_ends(edges, rng))
        if is_connected(found, nodes):
            return found
    raise InputError(
        f"none of 100 graphs of {nodes} clients with degree {degree} is connected: raise the degree"
    )


def is_connected(pairs: Pairs, nodes: int) -> bool:
    """Whether a path leads from each node to each other one; the graph may be directed.

    Example:
      >>> is_connected(circulant_pairs(3, [1]), 3), is_connected(np.array([[0, 1]]), 2)
      (True, False)
    """
    return unreached(pairs, nodes) is None


def unreached(pairs: Pairs, nodes: int) -> tuple[int, int] | None:
    """Two nodes without a path from the first to the second; None in a strongly connected graph.

    Example:
      >>> unreached(circulant_pairs(3, [1]), 3), unreached(np.array([[0, 1]]), 2)
      (None, (0, 1))
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    # All nodes are reached from the first, and it from all, or some two are apart.
    for senders, receivers, back in ((1, 0, False), (0, 1, True)):
        ones = np.ones(len(pairs))
        edges = csr_array((ones, (pairs[:, senders], pairs[:, receivers])), shape=(nodes, nodes))
        reached = np.isin(
            np.arange(nodes), breadth_first_order(edges, 0, return_predecessors=False)
        )
        if not reached.all():
            other = int(np.argmin(reached))
            return (other, 0) if back else (0, other)
    return None


def _swap_ends(edges: Pairs, rng: np.random.Generator) -> Pairs:
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
