"""Graphs of servers: symmetric matrices [S, S] of zeros and ones with a zero diagonal."""

import numpy as np

from jaxfl.errors import InputError


def ring(servers: int) -> np.ndarray:
    """Each server is linked to the two next to it; two servers share one edge, one has none."""
    after = np.roll(np.eye(servers, dtype=np.float32), 1, axis=1)
    return np.maximum(after, after.T) * (1 - np.eye(servers, dtype=np.float32))


def erdos_renyi(servers: int, degree: float = 3.0, seed: int = 0) -> np.ndarray:
    """Each edge exists with probability `degree` / (S - 1); drawn again until it is connected.

    Args:
      servers: S.
      degree: mean number of neighbours in a draw. If it is small, most draws are rejected.
      seed: of the draws.

    Raises:
      InputError: none of 1,000 graphs is connected.
    """
    rng = np.random.default_rng(seed)
    for _ in range(1000):
        upper = np.triu(rng.random((servers, servers)) * (servers - 1) < degree, k=1)
        graph = (upper | upper.T).astype(np.float32)
        if _is_connected(graph):
            return graph
    raise InputError(
        f"none of 1,000 graphs of {servers} servers with mean degree {degree} is connected: "
        "raise the degree"
    )


def alone(servers: int) -> np.ndarray:
    """No edges."""
    return np.zeros((servers, servers), np.float32)


def _is_connected(graph: np.ndarray) -> bool:
    reached = np.eye(len(graph)) + graph
    for _ in range(len(graph)):
        reached = np.minimum(reached @ reached, 1)
    return bool((reached > 0).all())


TOPOLOGIES = {f.__name__: f for f in (ring, erdos_renyi, alone)}
