"""The same work for every peer: one round of federated averaging over clients.

Only NumPy is needed, because each peer has its own environment. `python -m benchmarks.peers.NAME
CLIENTS BATCH STEPS [DEVICE [MODEL]]` prints one line of JSON: `ms` of a client step in the best
round, and the `version` that ran. Peers made of PyTorch take the device `cpu` or `cuda` and a model
of `benchmarks.peers.torch_loop`; without them it is LeNet on the CPU, as the other peers have it.
"""

import functools
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

LEARNING_RATE = 0.01
MOMENTUM = 0.9
DECAY = 1e-5
LONGEST = 320  # examples of the largest client
MEAN = (0.4914, 0.4822, 0.4465)  # of CIFAR-10's channels
STD = (0.2023, 0.1994, 0.2010)
ROUNDS = 4  # the first warms up


class Work(NamedTuple):
    """The size of a round: every client takes `steps` steps on batches of `batch` examples."""

    clients: int
    batch: int
    steps: int


def work_from_arguments() -> Work:
    """The size on the command line."""
    return Work(*map(int, sys.argv[1:4]))


def place_from_arguments() -> tuple[str, str]:
    """The device and the name of the model on the command line."""
    device, model = [*sys.argv[4:6], *("cpu", "lenet")[len(sys.argv[4:6]) :]]
    return device, model


@functools.cache
def client(number: int) -> tuple[np.ndarray, np.ndarray]:
    """A client's data, x [n, 32, 32, 3] and y [n]; n is 64, 128, ..., 320: all batches are full."""
    rng = np.random.default_rng(number)
    n = 64 * int(rng.integers(1, LONGEST // 64 + 1))
    return rng.normal(size=(n, 32, 32, 3)).astype(np.float32), rng.integers(0, 10, n)


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and labels in CIFAR-10's shapes, [count, 32, 32, 3] uint8 and [count]."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, count)


def batches(n: int, work: Work, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Row numbers of each step's batch: epochs end to end, each a fresh permutation."""
    epochs = -(-work.steps * work.batch // n)
    order = np.concatenate([rng.permutation(n) for _ in range(epochs)])
    return (order[step * work.batch :][: work.batch] for step in range(work.steps))


def timed(one_round, rounds: int = ROUNDS) -> list[float]:
    """Seconds of each call."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        one_round()
        seconds.append(time.perf_counter() - began)
    return seconds


def ms(seconds: list[float], work: Work) -> float:
    """Milliseconds of a client step in the best round; the first round only warms up."""
    return 1e3 * min(seconds[1:]) / work.clients / work.steps


def peak_gib() -> float:
    """Peak memory of this process on Linux; `getrusage` would include its parent process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def restart_peak() -> None:
    """`peak_gib` is the peak from now on; on Linux."""
    Path("/proc/self/clear_refs").write_text("5")


def print_json(**found: object) -> None:
    """Prints the results, the only line of standard output that is JSON."""
    print(json.dumps(found), flush=True)
