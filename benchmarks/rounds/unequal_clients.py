"""Time and memory of a round of one epoch, as clients have equal or very different sizes.

`python -m benchmarks.rounds.unequal_clients "Dirichlet .1" 100 64 50000` prints JSON, and so does
`python -m benchmarks.rounds.unequal_clients memory "Dirichlet .1" 100 50000`. Each case has its
own process, because the peak memory is that of a process.
"""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

import jaxfl
from benchmarks.measure import best_ms, compile_round, use_all_cores, without_evaluation
from benchmarks.peers import ROOT, peer_cell, run_peer
from benchmarks.peers.unequal import PARTITIONS, Unequal, unequal_from_arguments
from benchmarks.peers.work import images, peak_gib, print_json, restart_peak
from jaxfl.core.types import Dataset

BATCH = 16
# An image for the task. To read one of `train` would copy all images to each device, since they are
# not placed on the mesh yet.
EXAMPLE = np.zeros((32, 32, 3), np.uint8)
# Bytes of an image and its label.
IMAGE = 32 * 32 * 3 + 4
PEERS = {"PyTorch loop": "torch_unequal", "FedJAX": "fedjax_unequal"}


def federation(work: Unequal) -> Dataset:
    """The clients' pixels and labels, without padding."""
    return by_rows(work.sizes())


def by_rows(sizes: np.ndarray) -> Dataset:
    """Clients of these sizes, each with images of its own, without padding."""
    source = jaxfl.data.from_arrays(*images(int(sizes.sum()), 0))
    parts = np.split(np.arange(sizes.sum()), np.cumsum(sizes)[:-1])
    return jaxfl.data.federate(source, parts, val=0.0, test_fraction=0.0, test="own").train


def measure(work: Unequal) -> dict[str, float]:
    """Milliseconds of the best of three rounds for each batch with examples, and peak memory."""
    train = federation(work)
    task = jaxfl.classification(
        jaxfl.models.lenet(10), EXAMPLE, batch_size=work.batch, epochs=1, scale=255
    )
    one_round, _ = compile_round(jaxfl.algorithms.fedavg(task), without_evaluation(train))
    del train
    round_ms = best_ms(one_round, 3)
    return {"ms": round_ms / int(work.batches().sum()), "round": round_ms, "peak_gib": peak_gib()}


# Clients by the name of a row, besides those of `PARTITIONS`.
ONE_LARGE = "one with a fifth of all"


def sizes_of(partition: str, clients: int, examples: int) -> np.ndarray:
    """Examples of each client [C]."""
    if partition == ONE_LARGE:
        largest = examples // 5
        return np.array([largest, *[(examples - largest) // (clients - 1)] * (clients - 1)])
    return Unequal(partition, clients, BATCH, examples).sizes()


def peaks_mib(sizes: np.ndarray) -> dict[str, float]:
    """Peak memory of this process until a round is compiled, and in rounds of federated averaging.

    Args:
      sizes: examples of each client [C]; a client takes two steps.
    """
    train = by_rows(sizes)
    task = jaxfl.classification(
        jaxfl.models.lenet(10), EXAMPLE, batch_size=BATCH, steps=2, scale=255.0
    )
    one_round, _ = compile_round(jaxfl.algorithms.fedavg(task), without_evaluation(train))
    del train
    loading = 2**10 * peak_gib()
    restart_peak()
    for _ in range(3):
        jax.block_until_ready(one_round())
    return {"loading": loading, "rounds": 2**10 * peak_gib()}


def memory_section(
    cases: tuple[tuple[str, int], ...] = (
        *((partition, clients) for clients in (10, 100) for partition in PARTITIONS),
        ("IID", 1_000),
        (ONE_LARGE, 1_000),
    ),
    examples: int = 200_000,
) -> str:
    """The table of memory."""
    rows = []
    for partition, clients in cases:
        sizes = sizes_of(partition, clients, examples)
        data = sizes.sum() * IMAGE / 2**20
        few = max(clients, 100)
        peak = usual_peaks(partition, clients, examples)
        # The same program with few images: the process, its code, and all models.
        rest = usual_peaks("IID", clients, few)["rounds"]
        cells = [
            f"{clients:,} clients, {partition}",
            f"{data:.0f}",
            f"{sizes.max() * clients / sizes.sum():.1f}",
            f"{peak['loading']:.0f}",
            f"{peak['rounds']:.0f}",
            f"{rest:.0f}",
            f"{(peak['rounds'] - rest) / (data - few * IMAGE / 2**20):.2f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return MEMORY_TEXT.format(rows="\n".join(rows))


def usual_peaks(
    partition: str, clients: int, examples: int, times: int = 3
) -> dict[str, np.floating]:
    """The medians of the peaks of some processes, which differ by tens of MiB."""
    found = [in_own_process("memory", partition, clients, examples) for _ in range(times)]
    return {name: np.median([one[name] for one in found]) for name in ("loading", "rounds")}


def in_own_process(*arguments: object) -> dict[str, float]:
    """What this module prints for these arguments."""
    command = [sys.executable, "-m", "benchmarks.rounds.unequal_clients", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def section(
    environments: Path | None,
    clients: tuple[int, ...] = (10, 100),
    batches: tuple[int, ...] = (16, 64),
    examples: int = 50_000,
) -> str:
    """The table."""
    rows = []
    for count in clients:
        for batch in batches:
            first = 0.0
            for partition in PARTITIONS:
                work = Unequal(partition, count, batch, examples)
                found = in_own_process(*work)
                first = first or found["round"]
                number = work.batches()
                padded = number.max() * count / number.sum()
                cells = [
                    f"{count} clients, batch {batch}, {partition}",
                    f"{number.sum():,}",
                    f"{padded:.1f}",
                    f"{found['ms']:.2f}",
                    f"{found['round'] / first:.2f}",
                    f"{found['peak_gib']:.2f}",
                ]
                for peer in PEERS.values():
                    theirs = run_peer(environments, peer, *work)
                    cells.append(peer_cell(theirs, found["ms"]))
                rows.append(f"| {' | '.join(cells)} |")
    pixels = examples * 32 * 32 * 3 / 2**30
    peers = " | ".join(f"{name}, ms" for name in PEERS)
    return TEXT.format(
        examples=f"{examples:,}",
        pixels=f"{pixels:.2f}",
        peers=peers,
        rule="---:|" * (5 + len(PEERS)),
        rows="\n".join(rows),
    )


TEXT = """## Clients of different sizes

A round of federated averaging in which every client takes one epoch, with LeNet and {examples}
images 32x32x3 ({pixels} GiB) among all clients: equal sizes, and the sizes of a Dirichlet partition
with parameter .1. Milliseconds for each batch that has examples, in the best of three rounds.
*Padded* is the number of batches in units of those with examples if every client took as many as
the largest one, and *round* the time of the round in units of the equal clients' round. The memory
is the process's peak. All sides have the same clients. In brackets: times jaxfl.

| clients | batches | padded | jaxfl, ms | round | peak memory, GiB | {peers} |
|---|{rule}
{rows}

Other processors: [notebook](notebook.md#clients-of-different-sizes-on-cpu).
"""

MEMORY_TEXT = """## Memory of clients of different sizes

Rounds of federated averaging with LeNet, two steps a client, on images 32x32x3, in a process of its
own. *Padded* is what the images would take if those of all clients were padded to the largest
client, in units of the images. *Loading* is the peak before the first round, and *rounds* the one
from there on. *Rest* is the latter of the same program with hardly any images, and *data* the
difference in units of the images. Each peak is the median of three processes, which differ by tens
of MiB. The goal is *data* of at most 1.3.

| clients | images, MiB | padded | loading, MiB | rounds, MiB | rest, MiB | data |
|---|---:|---:|---:|---:|---:|---:|
{rows}

Other processors, and what was tried: [notebook](notebook.md#memory-of-clients-of-different-sizes).

*Loading* includes compiling. Its peak is when the images are there twice, because
`jaxfl.data.from_arrays` copies the caller's array into memory that JAX can share.
"""


if __name__ == "__main__":
    with use_all_cores():
        if sys.argv[1] == "memory":
            print_json(**peaks_mib(sizes_of(sys.argv[2], *map(int, sys.argv[3:5]))))
        else:
            print_json(**measure(unequal_from_arguments()))
