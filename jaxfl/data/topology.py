"""Graphs of servers: symmetric matrices [S, S] of zeros and ones with a zero diagonal."""

import numpy as np

from jaxfl.errors import InputError


def ring(servers: int) -> np.ndarray:
    """Each server between two others; two servers share one edge, one server has none."""
    after = np.roll(np.eye(servers, dtype=np.float32), 1, axis=1)
    return np.maximum(after, after.T) * (1 - np.eye(servers, dtype=np.float32))


def erdos_renyi(servers: int, degree: float = 3.0, seed: int = 0) -> np.ndarray:
    """Each edge is there with probability `degree` / (S - 1); drawn again until the graph is connected.

    Args:
      servers: S.
      degree: mean number of neighbours of the draws, most of which are thrown away if it is small.
      seed: of the draws.

    Raises:
      InputError: 1,000 graphs are not connected.
    """
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        upper = np.triu(rng.random((servers, servers)) * (servers - 1) < degree, k=1)
        graph = (upper | upper.T).astype(np.float32)
        if connected(graph):
            return graph
    raise InputError(
        f"no connected graph of {servers} servers with mean degree {degree} in 1,000: raise the degree"
    )


def alone(servers: int) -> np.ndarray:
    """No edges."""
    return np.zeros((servers, servers), np.float32)


def connected(graph: np.ndarray) -> bool:
    """Whether every server reaches every other."""
    reached = np.eye(len(graph)) + graph
    for _ in range(len(graph)):
        reached = np.minimum(reached @ reached, 1)
    return bool((reached > 0).all())


TOPOLOGIES = {f.__name__: f for f in (ring, erdos_renyi, alone)}
