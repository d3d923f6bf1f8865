"""Time and memory of a round of 100 clients whose data and personal models lie on disk.

`python -m benchmarks.many_clients 100000` prints JSON. Each case has its own process, because the
peak memory is that of a process.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import jaxfl
from benchmarks.growth import peak_gib
from benchmarks.measure import use_all_cores
from benchmarks.peers import ROOT
from benchmarks.peers.work import print_json
from jaxfl import checkpoint, on_disk

COHORT = 100
# Examples of a client for training and for testing.
TRAIN = 50
TEST = 10
SIDE = 28
BATCH = 10
EPOCHS = 5
# Clients that are written at a time.
BLOCK = 1000
WARM = 2


def write_clients(directory: Path, clients: int) -> None:
    """A federation of random images, written block by block and never in memory as a whole."""
    rng = np.random.default_rng(0)
    for name, count in (("train", TRAIN), ("test", TEST)):
        folder = directory / name
        folder.mkdir(parents=True)
        examples = clients * count
        x = folder / "x.npy"
        np.lib.format.open_memmap(x, "w+", np.uint8, (examples, SIDE, SIDE, 1))
        block = rng.integers(0, 256, (BLOCK * count, SIDE, SIDE, 1), np.uint8)
        for number, first in enumerate(range(0, examples, len(block))):
            # Mapped anew for each block, because pages of a mapping count as memory.
            rows = np.load(x, mmap_mode="r+")[first : first + len(block)]
            # The images of each block are others: pixels are taken modulo 256.
            rows[:] = block[: len(rows)] + np.uint8(number % 256)
            del rows
        np.save(folder / "y.npy", (np.arange(examples) % 10).astype(np.int32))
        np.save(folder / "offsets.npy", np.arange(clients + 1) * count)


def measure(clients: int, rounds: int = 8) -> dict[str, float]:
    """Seconds of a round, of a checkpoint and of resuming, peak memory, and bytes on the disk.

    Args:
      clients: C.
      rounds: how many are timed.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_clients(directory / "data", clients)
        return _measure(directory, clients, rounds)


def _measure(directory: Path, clients: int, rounds: int) -> dict[str, float]:
    federation = on_disk.open_federation(directory / "data")
    task = jaxfl.classification(
        jaxfl.models.lenet(10),
        np.zeros((SIDE, SIDE, 1), np.uint8),
        batch_size=BATCH,
        epochs=EPOCHS,
        scale=255,
    )
    algorithm = jaxfl.algorithms.pfedgraph(task)
    key = jax.random.key(0)
    states, first = on_disk.open_clients(directory / "states", algorithm, key, federation)
    sample = jaxfl.participation.uniform(clients, COHORT / clients)
    advance = on_disk.make_stored_rounds(algorithm, sample, federation, states)
    evaluate = on_disk.make_stored_evaluate(algorithm, task, federation, states, after="none")

    # Timed round by round within one call, so that clients are read ahead as in a run.
    state, _ = advance(key, first, 0, WARM)
    began = time.perf_counter()
    cpu_began = time.process_time()
    state, (_, ids) = advance(key, state, WARM, rounds)
    seconds = (time.perf_counter() - began) / rounds
    cpu_seconds = (time.process_time() - cpu_began) / rounds
    evaluate(key, state, ids[-1])
    began = time.perf_counter()
    evaluate(key, state, ids[-1])
    evaluation = time.perf_counter() - began

    began = time.perf_counter()
    states.protect(state)
    checkpoint.save(directory / "checkpoint", WARM + rounds, state)
    saving = time.perf_counter() - began
    _, (expected, _) = advance(key, state, WARM + rounds, 1)

    began = time.perf_counter()
    states, first = on_disk.open_clients(
        directory / "states", algorithm, key, federation, resume=True
    )
    done, state = checkpoint.restore(directory / "checkpoint", first)
    resuming = time.perf_counter() - began
    advance = on_disk.make_stored_rounds(algorithm, sample, federation, states)
    _, (found, _) = advance(key, state, done, 1)
    np.testing.assert_array_equal(found.loss, expected.loss)
    written = sum(path.stat().st_blocks for path in (directory / "states").iterdir()) * 512
    return {
        "round": seconds,
        "cpu": cpu_seconds,
        "evaluation": evaluation,
        "checkpoint": saving,
        "resume": resuming,
        "peak_gib": peak_gib(),
        "states_gib": written / 2**30,
    }


def in_own_process(clients: int) -> dict[str, float]:
    """As `measure`."""
    command = [sys.executable, "-m", "benchmarks.many_clients", str(clients)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    with use_all_cores():
        print_json(**measure(int(sys.argv[1])))
