"""Clients of three architectures, beside HtFLlib from the same start on the same clients.

`python -m benchmarks.rounds.several_architectures --peers DIR [--rounds 100] [--seeds 3]` prints
the accuracy of all test examples after the last round and the milliseconds of a round. DIR is as
for `python -m benchmarks.report`. Ten clients of a Dirichlet distribution have the digits; their
models are `mlp`, `cnn` and `linear` in turn, with features of one size. A round is an epoch of each
client in batches of ten, by plain SGD. The two differ in the order of the examples, which HtFLlib
keeps, and in a last batch of fewer than ten, which it leaves out. A round of ours is the mean of
all rounds, one of HtFLlib its best.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import tyro

import jaxfl
from benchmarks.peers import run_peer
from jaxfl.core.types import Task

CLIENTS = 10
BATCH = 10
# Options where the defaults differ: HtFLlib's clients of these predict by prototypes.
METHODS: dict[str, dict] = {
    "local": {},
    "lg_fedavg": {},
    "fedproto": {"predict": "prototypes"},
    "fedtgp": {"predict": "prototypes"},
    "fedgh": {},
    "feddistill": {},
    "fml": {},
}


def tasks_of(source: jaxfl.data.Source, rate: float) -> dict[str, Task]:
    """The task of each architecture."""
    example = source.x_train[0]
    models = {name: getattr(jaxfl.models, name)(10) for name in ("mlp", "cnn", "linear")}
    return {
        name: jaxfl.classification(
            model,
            example,
            scale=source.scale,
            optimizer=optax.sgd(rate),
            batch_size=BATCH,
            epochs=1,
        )
        for name, model in jaxfl.models.equal_features(models, example, outputs=10).items()
    }


def store(folder: Path, source: jaxfl.data.Source, parts: list, tasks: dict[str, Task]) -> None:
    """Writes each client's examples as HtFLlib reads them, and the initial models."""
    for name, task in tasks.items():
        leaves = jax.tree_util.tree_leaves_with_path(task.problem.init(jax.random.key(0)))
        kinds = ("kernel", "bias")
        arrays: dict[str, Any] = {
            f"{kind}{number}": np.asarray(leaf)
            for kind in kinds
            for number, leaf in enumerate(x for path, x in leaves if path[-1].key == kind)
        }
        np.savez(folder / f"{name}.npz", **arrays)
    for part in ("train", "test"):
        (folder / "dataset" / "clients" / part).mkdir(parents=True)
    for number, rows in enumerate(parts):
        x = source.x_train[rows].transpose(0, 3, 1, 2) / np.float32(source.scale)
        y = source.y_train[rows]
        split = len(rows) - len(rows) // 4
        for part, of in (("train", slice(split)), ("test", slice(split, None))):
            file = folder / "dataset" / "clients" / part / f"{number}.npz"
            np.savez(file, data=np.array({"x": x[of], "y": y[of]}))


def ours(
    task: Task, method: str, federation: jaxfl.types.Federation, rounds: int
) -> tuple[float, float]:
    """The accuracy of all test examples, and the milliseconds of a round."""
    algorithm = getattr(jaxfl.algorithms, method)(task, **METHODS[method])
    key = jax.random.key(0)
    run = jaxfl.make_rounds(algorithm, jaxfl.participation.full(CLIENTS))
    start = jax.jit(algorithm.init)(key, federation.train)
    run = jax.jit(run, static_argnums=4).lower(key, federation, start, 0, rounds).compile()
    began = time.perf_counter()
    state, _ = jax.block_until_ready(run(key, federation, start, 0))
    seconds = time.perf_counter() - began
    evaluate = jaxfl.make_evaluate(algorithm, task, after="none")
    scores = evaluate(key, federation, state, np.arange(CLIENTS)).deployed.test
    sizes = np.asarray(federation.test.mask.sum(axis=1))
    return float(scores @ sizes / sizes.sum()), 1e3 * seconds / rounds


def main(peers: Path | None = None, rounds: int = 100, seeds: int = 3, rate: float = 0.05) -> None:
    """Prints the table.

    Args:
      peers: folder of the peers' environments.
      rounds: communication rounds.
      seeds: draws of the clients.
      rate: learning rate of the clients.
    """
    source = jaxfl.data.load("digits")
    found = {name: [] for name in METHODS}
    for seed in range(seeds):
        parts = jaxfl.data.dirichlet(source.y_train, CLIENTS, seed, beta=0.1, smallest=40)
        federation = jaxfl.data.federate(source, parts, val=0.0, test="own", test_fraction=0.25)
        tasks = tasks_of(source, rate)
        task = jaxfl.heterogeneous(tasks, [list(tasks)[i % 3] for i in range(CLIENTS)])
        with tempfile.TemporaryDirectory() as folder:
            store(Path(folder), source, list(parts), tasks)
            for method in METHODS:
                peer = run_peer(peers, "htfllib", folder, method, rounds, BATCH, rate)
                found[method].append((*ours(task, method, federation, rounds), peer))
    print("| method | jaxfl | HtFLlib | jaxfl, ms a round | HtFLlib | times |")
    print("|---|---:|---:|---:|---:|---:|")
    for method, runs in found.items():
        print(row(method, runs))


def row(method: str, runs: list[tuple]) -> str:
    """A row of the table."""
    own = _told([accuracy for accuracy, _, _ in runs])
    ms = min(ms for _, ms, _ in runs)
    peers = [peer for *_, peer in runs]
    if any(isinstance(peer, str) for peer in peers):
        return f"| {method} | {own} | {peers[0]} | {ms:.1f} | | |"
    theirs = _told([peer["accuracy"] for peer in peers])
    peer_ms = min(peer["ms"] for peer in peers)
    return f"| {method} | {own} | {theirs} | {ms:.1f} | {peer_ms:.0f} | {peer_ms / ms:.0f} |"


def _told(accuracies: list[float]) -> str:
    """Mean and standard deviation in %."""
    return f"{100 * np.mean(accuracies):.1f} ±{100 * np.std(accuracies):.1f}"


if __name__ == "__main__":
    tyro.cli(main)
