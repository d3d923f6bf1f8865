"""Time and memory of a round of one epoch, as clients have equal or very different sizes.

`python -m benchmarks.unequal_clients "Dirichlet .1" 100 64 50000` prints JSON. Each case has its
own process, because the peak memory is that of a process.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import jaxfl
from benchmarks.growth import peak_gib
from benchmarks.measure import best_ms, compile_round, use_all_cores, without_evaluation
from benchmarks.peers import ROOT, peer_cells, run_peer
from benchmarks.peers.unequal import PARTITIONS, Unequal, unequal_from_arguments
from benchmarks.peers.work import images, print_json
from jaxfl.types import Dataset

PEERS = {"PyTorch loop": "torch_unequal", "FedJAX": "fedjax_unequal"}


def federation(work: Unequal) -> Dataset:
    """The clients' pixels and labels, padded to the largest client."""
    sizes = work.sizes()
    x, y = images(work.examples, 0)
    mask = np.arange(sizes.max())[None] < sizes[:, None]
    padded_x = np.zeros((*mask.shape, 32, 32, 3), np.uint8)
    padded_y = np.zeros(mask.shape, np.int32)
    padded_x[mask] = x[: sizes.sum()]
    padded_y[mask] = y[: sizes.sum()]
    return Dataset(padded_x, padded_y, mask)


def measure(work: Unequal) -> dict[str, float]:
    """Milliseconds of the best of three rounds for each batch with examples, and peak memory."""
    train = federation(work)
    task = jaxfl.classification(
        jaxfl.models.lenet(10), train.x[0, 0], batch_size=work.batch, epochs=1, scale=255
    )
    one_round, _ = compile_round(jaxfl.algorithms.fedavg(task), without_evaluation(train))
    del train
    round_ms = best_ms(one_round, 3)
    return {"ms": round_ms / int(work.batches().sum()), "round": round_ms, "peak_gib": peak_gib()}


def in_own_process(work: Unequal) -> dict[str, float]:
    """As `measure`."""
    command = [sys.executable, "-m", "benchmarks.unequal_clients", *map(str, work)]
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
                found = in_own_process(work)
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
                    cells.append(peer_cells(theirs, found["ms"]))
                rows.append(f"| {' | '.join(cells)} |")
    pixels = examples * 32 * 32 * 3 / 2**30
    peers = " | ".join(f"{name}, ms | times jaxfl" for name in PEERS)
    return TEXT.format(
        examples=f"{examples:,}",
        pixels=f"{pixels:.2f}",
        peers=peers,
        rule="---:|" * (5 + 2 * len(PEERS)),
        rows="\n".join(rows),
    )


TEXT = """## Clients of different sizes

A round of federated averaging in which every client takes one epoch, with LeNet and {examples}
images 32x32x3 ({pixels} GiB) among all clients: equal sizes, and the sizes of a Dirichlet partition
with parameter .1. Milliseconds for each batch that has examples, in the best of three rounds.
*Padded* is the number of batches in units of those with examples if every client took as many as
the largest one, and *round* the time of the round in units of the equal clients' round. The memory
is the process's peak; arrays are padded to the largest client. All sides have the same clients.

| clients | batches | padded | jaxfl, ms | round | peak memory, GiB | {peers} |
|---|{rule}
{rows}
"""


if __name__ == "__main__":
    with use_all_cores():
        print_json(**measure(unequal_from_arguments()))
