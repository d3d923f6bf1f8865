"""Time and memory of a round of 100 clients whose data and personal models lie on disk.

`python -m benchmarks.rounds.many_clients pfedgraph 100000` prints JSON. Each case has its own
process, because the peak memory is that of a process.
"""

import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import numpy as np

import jaxfl
from benchmarks.measure import best_ms, use_all_cores
from benchmarks.peers import ROOT, peer_cell, run_peer, stored
from benchmarks.peers.work import peak_gib, print_json
from jaxfl.simulation import checkpoint, on_disk
from jaxfl.simulation.rounds import draw_cohort

# Memory that is used before rounds are timed, more than they write.
FRESH_GIB = 2
PEERS = {"FedJAX, SQLite": "fedjax_stored", "pfl": "pfl_stored"}


def write_clients(directory: Path, clients: int) -> None:
    """A federation of random images, written block by block and never in memory as a whole."""
    for name, count in (("train", stored.TRAIN), ("test", stored.TEST)):
        folder = directory / name
        folder.mkdir(parents=True)
        stored.write_images(folder / "x.npy", clients, count)
        np.save(folder / "y.npy", stored.labels(clients * count))
        np.save(folder / "offsets.npy", np.arange(clients + 1) * count)


def measure(method: str, clients: int) -> dict[str, float]:
    """Times of a round, its drawing, a checkpoint and resuming, peak memory, and size on the disk.

    Args:
      method: a name of the registry.
      clients: C.
    """
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_clients(directory / "data", clients)
        return _measure(directory, method, clients)


def _measure(directory: Path, method: str, clients: int) -> dict[str, float]:
    federation = on_disk.open_federation(directory / "data")
    task = jaxfl.classification(
        jaxfl.models.lenet(10),
        np.zeros((stored.SIDE, stored.SIDE, 1), np.uint8),
        batch_size=stored.BATCH,
        epochs=stored.EPOCHS,
        scale=255.0,
    )
    algorithm = jaxfl.algorithms.ALGORITHMS[method](task)
    key = jax.random.key(0)
    states, first = on_disk.open_clients(directory / "states", algorithm, key, federation)
    sample = jaxfl.participation.uniform(clients, stored.COHORT / clients)
    advance = on_disk.make_stored_rounds(algorithm, sample, federation, states)
    evaluate = on_disk.make_stored_evaluate(algorithm, task, federation, states, after="none")

    state, _ = advance(key, first, 0, 1)
    done = 1
    use_memory(FRESH_GIB)
    seconds = cpu_seconds = float("inf")
    for _ in range(stored.REPEATS):
        # Several rounds in one call, because the first one of a call is not read ahead.
        began = time.perf_counter()
        cpu_began = time.process_time()
        state, (_, ids) = advance(key, state, done, stored.ROUNDS)
        seconds = min(seconds, (time.perf_counter() - began) / stored.ROUNDS)
        cpu_seconds = min(cpu_seconds, (time.process_time() - cpu_began) / stored.ROUNDS)
        done += stored.ROUNDS
    evaluate(key, state, ids[-1])
    began = time.perf_counter()
    evaluate(key, state, ids[-1])
    evaluation = time.perf_counter() - began

    began = time.perf_counter()
    states.protect(state)
    checkpoint.save(directory / "checkpoint", done, state)
    saving = time.perf_counter() - began
    _, (expected, _) = advance(key, state, done, 1)

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
    draw = jax.jit(partial(draw_cohort, sample))
    return {
        "round": seconds,
        "cpu": cpu_seconds,
        "drawing_ms": best_ms(lambda: draw(key, np.int32(0))),
        "evaluation": evaluation,
        "checkpoint": saving,
        "resume": resuming,
        "peak_gib": peak_gib(),
        "states_gib": written / 2**30,
        "row": states.row_bytes,
    }


def use_memory(gib: float) -> None:
    """Fills so much memory in another process, which ends.

    On a virtual machine, memory that was not used for some time comes from the host again, page by
    page. To write into it takes ten times as long as into memory that was used shortly before.
    """
    fill = f"import numpy; numpy.ones(int({gib} * 2**30), numpy.uint8)"
    subprocess.run([sys.executable, "-c", fill], check=True)


def in_own_process(method: str, clients: int) -> dict[str, float]:
    """As `measure`."""
    command = [sys.executable, "-m", "benchmarks.rounds.many_clients", method, str(clients)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def section(environments: Path | None, sizes: tuple[int, ...] = (1_000, 10_000, 100_000)) -> str:
    """Both tables."""
    columns: list[dict[str, str]] = []
    peers = []
    first = 0.0
    for clients in sizes:
        found = in_own_process("pfedgraph", clients)
        first = first or found["round"]
        numbers = {
            "clients": f"{clients:,}",
            "round, s": f"{found['round']:.2f}",
            "relative": f"{found['round'] / first:.2f}",
            "CPU time, s": f"{found['cpu']:.2f}",
            "drawing, ms": f"{found['drawing_ms']:.0f}",
            "evaluation, s": f"{found['evaluation']:.2f}",
            "checkpoint, s": f"{found['checkpoint']:.2f}",
            "resume, s": f"{found['resume']:.2f}",
            "peak memory, GiB": f"{found['peak_gib']:.2f}",
            "all states, GiB": f"{clients * found['row'] / 2**30:.1f}",
            "written, GiB": f"{found['states_gib']:.2f}",
        }
        columns.append(numbers)
        ours = in_own_process("fedavg", clients)
        cells = [f"{clients:,}", f"{ours['round']:.2f}", f"{ours['peak_gib']:.2f}"]
        for peer in PEERS.values():
            theirs = run_peer(environments, peer, clients)
            cells.append(peer_cell(theirs, ours["round"], "round"))
            cells.append("" if isinstance(theirs, str) else f"{theirs['peak_gib']:.2f}")
        peers.append(f"| {' | '.join(cells)} |")
    lines = [[name, *(numbers[name] for numbers in columns)] for name in columns[0]]
    lines.insert(1, ["---"] + ["---:"] * len(columns))
    beside = " | ".join(f"{name}, s | GiB" for name in PEERS)
    rule = "---:|" * 2 * len(PEERS)
    return TEXT.format(
        rows="\n".join(f"| {' | '.join(cells)} |" for cells in lines),
        rounds=stored.ALL_ROUNDS,
        peers="\n".join(peers),
        beside=beside,
        rule=rule,
    )


TEXT = """## More clients than fit into memory

pFedGraph on clients of 50 images 28x28 for training and 10 for testing, each with a personal LeNet,
100 clients a round and 5 epochs of batch 10: data and states lie on disk
(`jaxfl.simulation.on_disk`), and a round reads its cohort. Each number of clients in a process of
its own; best of five times 4 rounds. *Relative* is the time of a round in units of that of the
first column, and *drawing* the part of a round in which its clients are drawn. The evaluation is
that of the 100 clients of a round, without fine-tuning. A checkpoint includes that all states are
on the disk; resuming is from the start of reading to the state, compiling included, and the round
after it is checked to have the same losses as without the stop. *All states* is what the states of
all clients would take, and *written* what the file takes after {rounds} rounds.

{rows}

Other processors, and what was tried: [notebook](notebook.md#clients-on-disk).

FedJAX and pfl keep no personal models of clients on the disk, so the same rounds of federated
averaging stand beside theirs. FedJAX reads its clients from SQLite, pfl from one mapped array.
In brackets: times jaxfl.

| clients | jaxfl, s | GiB | {beside} |
|---|---:|---:|{rule}
{peers}
"""


if __name__ == "__main__":
    with use_all_cores():
        print_json(**measure(sys.argv[1], int(sys.argv[2])))
