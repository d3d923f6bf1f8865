"""A federation that lies on the disk, and a round of federated averaging over 100 of its clients.

Only NumPy is needed. `python -m benchmarks.peers.NAME CLIENTS` writes the federation, runs rounds
and prints one line of JSON: `round`, the seconds of a round, `peak_gib` of the process, and
`version`.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.peers.work import peak_gib, print_json

COHORT = 100
# Examples of a client for training and for testing.
TRAIN = 50
TEST = 10
SIDE = 28
BATCH = 10
EPOCHS = 5
# Clients that are written at a time.
BLOCK = 1000
# Rounds that are timed together, because reading ahead leaves out the first one of a call.
ROUNDS = 4
REPEATS = 5
ALL_ROUNDS = 1 + REPEATS * ROUNDS
LENET = 44_426  # parameters


def blocks(clients: int, count: int) -> Iterator[np.ndarray]:
    """Random images of some clients at a time, [clients x count, 28, 28, 1] uint8."""
    rng = np.random.default_rng(0)
    block = rng.integers(0, 256, (BLOCK * count, SIDE, SIDE, 1), np.uint8)
    for number, first in enumerate(range(0, clients, BLOCK)):
        # The images of each block are others: pixels are taken modulo 256.
        yield block[: (clients - first) * count] + np.uint8(number % 256)


def labels(examples: int) -> np.ndarray:
    """A label for each example [examples]."""
    return (np.arange(examples) % 10).astype(np.int32)


def write_images(file: Path, clients: int, count: int) -> None:
    """Writes the images of all clients as one array, block by block."""
    shape = (clients * count, SIDE, SIDE, 1)
    np.lib.format.open_memmap(file, "w+", np.uint8, shape)
    row = 0
    for block in blocks(clients, count):
        # Mapped anew for each block, because pages of a mapping count as memory.
        np.load(file, mmap_mode="r+")[row : row + len(block)] = block
        row += len(block)


def seconds_of_round(seconds: list[float]) -> float:
    """Seconds of a round in the best `ROUNDS` rounds one after the other; the first warms up."""
    turns = np.reshape(seconds[1:], (REPEATS, ROUNDS))
    return float(turns.mean(1).min())


def print_round(seconds: list[float], version: str) -> None:
    """Prints the results from the seconds of each of `ALL_ROUNDS` rounds."""
    print_json(round=seconds_of_round(seconds), peak_gib=peak_gib(), version=version)
