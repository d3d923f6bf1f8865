"""A round of pFedGraph with augmentation and evaluation, beside a PyTorch script.

The images have CIFAR-10's shape.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from benchmarks.measure import best_ms, compile_round
from benchmarks.peers import run_peer
from benchmarks.peers.work import MEAN, STD, Work, images
from jaxfl.core.types import Cohort, Dataset, Federation, Pool
from jaxfl.simulation import mesh
from jaxfl.simulation.client_scores import score_clients

# What the script's round consists of.
PARTS = ("training", "server", "evaluation")


def federation(clients: int, labels: int = 10) -> Federation:
    """The peer's data: 4,000 + 1,000 images per client, and 10,000 shared test images.

    Args:
      clients: how many.
      labels: how many of the ten labels a client is scored on. Other test images have weight 0.
    """
    x, y = images(5_000 * clients, 0)
    x = jnp.asarray(x).reshape(clients, 5_000, 32, 32, 3)
    y = jnp.asarray(y, jnp.int32).reshape(clients, 5_000)
    test_x, test_y = images(10_000, 1)
    real = jnp.ones((clients, 5_000), bool)
    train, val = (
        Dataset(x[:, part], y[:, part], real[:, part])
        for part in (slice(4_000), slice(4_000, None))
    )
    own = (test_y[None] - np.arange(clients)[:, None]) % 10 < labels
    test = Pool(jnp.asarray(test_x), jnp.asarray(test_y, jnp.int32), jnp.asarray(own, jnp.float32))
    return Federation(train, val, test)


def seconds(work: Work, labels: int = 10) -> dict[str, float]:
    """Seconds of each part, best of two, where clients are scored on so many labels.

    `round` is local training and the server step. `scores` is the time to score all clients' models
    on both sets, twice: before and after training. `evaluation` is the same in `jaxfl run`, which
    fine-tunes again for the second score.
    """
    data = mesh.place(federation(work.clients, labels))
    task = jaxfl.classification(
        jaxfl.models.lenet(10),
        data.train.x[0, 0],
        batch_size=work.batch,
        steps=work.steps,
        scale=[255 * value for value in STD],
        shift=[255 * value for value in MEAN],
        augment=jaxfl.data.augment.crop_flip,
    )
    algorithm = jaxfl.algorithms.pfedgraph(task)
    one_round, compiling = compile_round(algorithm, data)
    ids = jnp.arange(work.clients)
    found = {"round": best_ms(one_round, 2) / 1e3}
    state = one_round()

    @jax.jit
    def scores(state, *sets):
        models = algorithm.models(state, Cohort(ids, data.train, data.val))
        return [
            score_clients(task.problem.apply, task.problem.score, models, part) for part in sets
        ]

    evaluate = jaxfl.make_evaluate(algorithm, task)
    found["scores"] = 2 * best_ms(lambda: scores(state, data.val, data.test), 2) / 1e3
    found["evaluation"] = best_ms(lambda: evaluate(jax.random.key(2), data, state, ids), 2) / 1e3
    return found | {"compile_seconds": compiling}


def section(environments: Path | None, clients: int = 10, batch: int = 64, steps: int = 200) -> str:
    """The table."""
    work = Work(clients, batch, steps)
    ours = seconds(work)
    two = seconds(work, labels=2)
    peer = run_peer(environments, "torch_round", *work)
    script = None if isinstance(peer, str) else sum(peer[part] for part in PARTS)
    lines = [
        row("jaxfl", ours["round"], ours["scores"], script),
        row("jaxfl, clients with two labels", two["round"], two["scores"], script),
        row("jaxfl, fine-tuned before it is scored", ours["round"], ours["evaluation"], script),
    ]
    if isinstance(peer, str):
        lines.append(f"| PyTorch script | {peer} | | | |")
    else:
        name = f"PyTorch script ({peer['version']})"
        lines.append(row(name, peer["training"] + peer["server"], peer["evaluation"], script))
    return TEXT.format(**work._asdict(), rows="\n".join(lines), compiling=ours["compile_seconds"])


def row(name: str, training: float, evaluation: float, script: float | None) -> str:
    """A row of the table; `script` is the time of the PyTorch script's round if it ran."""
    total = training + evaluation
    times = "" if script is None else f"{script / total:.1f}"
    return f"| {name} | {training:.1f} | {evaluation:.1f} | {total:.1f} | {times} |"


TEXT = """## A whole round of pFedGraph

{clients} clients of 4,000 images in CIFAR-10's shape, {steps} steps of batch {batch} with random
crops and flips, both scores of each client's model (its 1,000 validation images, the 10,000 test
images that all share) before and after training, and the server step. The peer is a script as
researchers write it (`benchmarks/peers/torch_round.py`): data loaders that transform image by image
in the main process, NumPy cosines, a quadratic program a row. Best of several rounds; compiling
takes {compiling:.1f} s more.

| | training and server, s | evaluation, s | round, s | script / this |
|---|---:|---:|---:|---:|
{rows}

The script scores the models that the round trained, as `jaxfl run --score-after trained` does: the
first line. Clients with two labels are scored on 2,000 of the 10,000 test images, and only these
are computed; the script computes all of them. By default `jaxfl run` fine-tunes the deployed models
and scores these, in the rounds that are evaluated: the third line.

Other processors, and what was tried: [notebook](notebook.md#a-whole-round-of-pfedgraph-on-cpu).
"""
