"""Clients of one epoch with equal or very different sizes, the same for every peer.

Only NumPy is needed. A peer is run as `python -m benchmarks.peers.NAME PARTITION CLIENTS BATCH
EXAMPLES` and prints one line of JSON: `ms` of the best round for each batch that has examples.
"""

import sys
from typing import NamedTuple

import numpy as np

from benchmarks.peers.work import images

PARTITIONS = ("IID", "Dirichlet .1")


class Unequal(NamedTuple):
    """The size of a round: every client takes one epoch in batches of `batch` examples."""

    partition: str
    clients: int
    batch: int
    examples: int

    def sizes(self) -> np.ndarray:
        """Examples of each client [C]."""
        if self.partition == "IID":
            return np.full(self.clients, self.examples // self.clients)
        return dirichlet_sizes(self.clients, self.examples)

    def batches(self) -> np.ndarray:
        """Batches with examples of each client [C]."""
        return -(-self.sizes() // self.batch)


def unequal_from_arguments() -> Unequal:
    """The size on the command line."""
    partition, *numbers = sys.argv[1:5]
    return Unequal(partition, *map(int, numbers))


def dirichlet_sizes(clients: int, examples: int, beta: float = 0.1) -> np.ndarray:
    """Sizes of clients among whom ten classes of equal size are divided by Dir(beta) [C].

    As in `jaxfl.data.dirichlet`: a client that holds its fair share gets nothing of later classes,
    and all is drawn again until every client holds ten examples, or half the fair share if less.
    """
    rng = np.random.default_rng(0)
    fair = examples / clients
    smallest = max(1, min(10, int(fair) // 2))
    for _ in range(1000):
        sizes = np.zeros(clients, int)
        for _ in range(10):
            proportions = rng.dirichlet(np.full(clients, beta)) * (sizes < fair)
            if proportions.sum() == 0:
                proportions = (sizes < fair).astype(float)
            ends = (np.cumsum(proportions / proportions.sum()) * (examples // 10)).round()
            sizes += np.diff(ends, prepend=0).astype(int)
        if sizes.min() >= smallest:
            return sizes
    raise ValueError(f"no draw gives each of {clients} clients {smallest} of {examples} examples")


def clients_of(work: Unequal) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each client's pixels in [0, 1] and labels."""
    x, y = images(work.examples, 0)
    cuts = np.cumsum(work.sizes())[:-1]
    scaled = [part.astype(np.float32) / 255 for part in np.split(x[: work.sizes().sum()], cuts)]
    return list(zip(scaled, np.split(y[: work.sizes().sum()], cuts), strict=True))


def ms_of_batch(seconds: list[float], work: Unequal) -> float:
    """Milliseconds for each batch in the best round; the first round only warms up."""
    return 1e3 * min(seconds[1:]) / int(work.batches().sum())
