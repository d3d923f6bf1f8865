"""A round of federated averaging over many clients, beside other frameworks."""

import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import jaxfl
from benchmarks.measure import best_ms, compile_round, without_evaluation
from benchmarks.peers import fastest, peer_cells, run_peer
from benchmarks.peers.work import LONGEST, Work, client
from jaxfl.core.types import Dataset

PEERS = {
    "PyTorch loop": "torch_fedavg",
    "PyTorch, compiled or vmap": "torch_vmap",
    "FedJAX, jit backend": "fedjax",
    "pfl, one process": "pfl",
    "Flower simulation, Ray": "flower",
    "BlazeFL": "blazefl",
    "FL-bench": "fl_bench",
    "PFLlib": "pfllib",
}


@functools.cache
def federation(clients: int) -> Dataset:
    """The data of the peers, padded."""
    x = np.zeros((clients, LONGEST, 32, 32, 3), np.float32)
    y = np.zeros((clients, LONGEST), np.int32)
    mask = np.zeros((clients, LONGEST), bool)
    for number in range(clients):
        images, labels = client(number)
        n = len(labels)
        x[number, :n], y[number, :n], mask[number, :n] = images, labels, True
    return Dataset(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))


def client_step_ms(work: Work) -> dict[str, float]:
    """Milliseconds of a client step in the best round, and seconds of compiling."""
    train = federation(work.clients)
    task = jaxfl.classification(
        jaxfl.models.lenet(10), train.x[0, 0], batch_size=work.batch, steps=work.steps
    )
    one_round, compiling = compile_round(jaxfl.algorithms.fedavg(task), without_evaluation(train))
    return {"ms": best_ms(one_round, 3) / work.clients / work.steps, "compile_seconds": compiling}


def section(
    environments: Path | None,
    clients: int = 100,
    steps: int = 10,
    batches: tuple[int, ...] = (16, 64),
    turns: int = 1,
) -> str:
    """The table; all sides run in turn, `turns` times."""
    ours = []
    theirs = {name: [] for name in PEERS}
    for batch in batches:
        work = Work(clients, batch, steps)
        own = []
        found = {name: [] for name in PEERS}
        for _ in range(turns):
            own.append(client_step_ms(work))
            for name, peer in PEERS.items():
                found[name].append(run_peer(environments, peer, *work))
        ours.append(fastest(own))
        for name, runs in found.items():
            theirs[name].append(fastest(runs))
    compiling = max(own["compile_seconds"] for own in ours)
    cells = " | ".join(f"{own['ms']:.2f} | 1" for own in ours)
    lines = [f"| jaxfl | {cells} | compiled in {compiling:.1f} s |"]
    for name, found in theirs.items():
        cells = " | ".join(peer_cells(run, own["ms"]) for run, own in zip(found, ours, strict=True))
        version = next((run["version"] for run in found if isinstance(run, dict)), "")
        lines.append(f"| {name} | {cells} | {version} |")
    columns = " | ".join(f"batch {batch}, ms | times jaxfl" for batch in batches)
    rule = "---:|" * 2 * len(batches)
    return TEXT.format(
        clients=clients, steps=steps, columns=columns, rule=rule, rows="\n".join(lines)
    )


TEXT = """## One round of {clients} clients

Federated averaging: every client takes {steps} steps on its own 64 to 320 images 32x32x3, LeNet,
momentum .9, weight decay 1e-5. Milliseconds of a client step in the best of three rounds, with
everything that belongs to a round; start-up, compiling and a first round apart. FL-bench and PFLlib
run as people run them: their main programs in their default modes, with their data loaders, and
whole epochs, about as many as make {steps} steps. All others draw batches from memory, without data
loaders, and are set up for this machine as well as they can be (`benchmarks/peers/`): of BlazeFL's
threads and processes the quicker counts, Flower has an actor for each core. *Compiled or vmap* is
the quickest of six: one, ten or all clients at a time by `torch.func.vmap`, each as it is and by
`torch.compile`.

| framework | {columns} | version |
|---|{rule}---|
{rows}

BlazeFL 3 is made for Python 3.14 without a global lock, which this machine does not have; under an
older Python its threads share the lock, and two type parameters are taken out of its code.

Other processors, and what was tried: [notebook](notebook.md#one-round-of-100-clients-on-cpu).
"""
