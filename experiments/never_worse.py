"""Is a graph never worse than no graph? Twelve settings in which clients differ or do not.

`python -m experiments.never_worse [--data-dir DIR]`: `safe_graph` beside local training, FedAvg,
FedAvg with fine-tuning and pFedGraph, on digits and on Fashion-MNIST of 14 x 14 pixels. A setting
is kept where the method is at most one point below the best of the first three, and a gain where it
is more than one point above all of them. Results accumulate in the folder `--out`; what it has is
not computed again. `--first-seed 100` gives the seeds on which the method was developed.
"""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments import partial_results
from experiments.partitions import side_by_side
from jaxfl.algorithms import fedavg
from jaxfl.core.messages import Clients
from jaxfl.core.types import Federation, State
from jaxfl.data import Source
from jaxfl.experiment import Config, build, gather, resolve
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.clients import Data, true_groups
from jaxfl.experiment.store import files

IMAGES: dict[str, Any] = {"dataset": "fashion_mnist"}
# By the folder of programs that one shape of data makes: settings by name.
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "digits, 10 clients": {
        "labels, 40 examples": {"partition": "pathological", "max_examples": 40},
        "Dirichlet .1": {"partition": "dirichlet", "beta": 0.1},
        "rotation, 100 examples": {
            "partition": "iid", "concept": "rotation", "max_examples": 100
        },
        "swapped labels, 100 examples": {
            "partition": "iid", "concept": "swapped_labels", "max_examples": 100
        },
        "IID, 40 examples": {"partition": "iid", "max_examples": 40},
        "quantity": {"partition": "quantity"},
    },
    "Fashion-MNIST, 10 clients": {
        "rotation, 500 examples": IMAGES
        | {"partition": "iid", "concept": "rotation", "max_examples": 500},
        "Dirichlet .1, 500 examples": IMAGES
        | {"partition": "dirichlet", "beta": 0.1, "max_examples": 500},
        "labels, 100 examples": IMAGES | {"partition": "pathological", "max_examples": 100},
    },
    "Fashion-MNIST, 50 clients": {
        "Dirichlet .5, 100 examples": IMAGES
        | {"partition": "dirichlet", "beta": 0.5, "max_examples": 100},
        "swapped labels, 100 examples": IMAGES
        | {"partition": "iid", "concept": "swapped_labels", "max_examples": 100},
        "IID, 40 examples": IMAGES | {"partition": "iid", "max_examples": 40},
    },
}
BASELINES = ("local", "fedavg", "fedavg_ft")
METHODS = ("local", "fedavg_ft", "pfedgraph", "safe_graph")
# Of larger data sets the first examples alone are taken.
TRAIN, TEST = 6_000, 2_000
SMOKE = {
    "methods": ("local", "fedavg_ft", "safe_graph"),
    "families": ("digits, 10 clients",),
    "rounds": 1,
    "local_steps": 1,
    "seeds": 2,
}


def small(source: Source) -> Source:
    """The first examples of a data set; images of 28 x 28 pixels as 14 x 14."""

    def halve(x: np.ndarray) -> np.ndarray:
        if x.shape[1:3] != (28, 28):
            return x
        return x.reshape(len(x), 14, 2, 14, 2, -1).mean(axis=(2, 4)).astype(np.uint8)

    return source._replace(
        x_train=halve(source.x_train[:TRAIN]),
        y_train=source.y_train[:TRAIN],
        x_test=halve(source.x_test[:TEST]),
        y_test=source.y_test[:TEST],
    )


def program(config: Config, data: Data):
    """The runs of a method on one shape of data.

    Returns:
      (keys [S], federations [S, C, n, ...]) -> the accuracy of the deployed models [S, C]; that of
      the server's one model, if it has one; the graph of the last round; the last metrics.
    """
    built = build(resolve(config, data.source), data)
    algorithm = built.algorithm
    clients = config.clients
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(clients))
    evaluate = jaxfl.make_evaluate(algorithm, built.task, after="none")
    of_server = jaxfl.make_evaluate(fedavg(built.task), built.task, after="none")

    def run(key, federation):
        state = algorithm.init(jax.random.fold_in(key, 0), federation.train)
        state, (info, _) = rounds(
            jax.random.fold_in(key, 1), federation, state, 0, length=config.rounds
        )
        everyone = jnp.arange(clients)
        deployed = evaluate(jax.random.fold_in(key, 2), federation, state, everyone)
        found = {"accuracy": deployed.deployed.test}
        if config.algorithm == "fedavg_ft":
            # FedAvg trains alike, and deploys the server's model.
            alike = State(Clients(), state.server)
            deployed = of_server(jax.random.fold_in(key, 2), federation, alike, everyone)
            found["fedavg"] = deployed.deployed.test
        last = jax.tree.map(lambda leaf: leaf[-1], (info.weights, info.metrics))
        return found, last, info.batches.sum(axis=0), (info.up + info.down).sum(axis=0)

    return jax.jit(jax.vmap(run))


def main(
    methods: tuple[str, ...] = METHODS,
    families: tuple[str, ...] = tuple(FAMILIES),
    data_dir: str | None = None,
    rounds: int = 20,
    local_steps: int = 40,
    seeds: int = 3,
    first_seed: int = 0,
    val: float = 0.2,
    out: Path = Path("runs/never_worse"),
) -> None:
    """Runs what has no result yet, prints the table, and writes it with a picture.

    Args:
      methods: of `METHODS`, `safe_graph` and the others.
      families: of `FAMILIES`.
      data_dir: folder of NAME.npz files; that of JAXFL_DATA_DIR if not given.
      rounds: communication rounds.
      local_steps: local steps per round.
      seeds: how many.
      first_seed: the first of them.
      val: the share of a client's examples on which it validates.
      out: directory to write; results that it holds already are not computed again.
    """
    file = out / "accuracy.json"
    options = {"rounds": rounds, "local_steps": local_steps, "seeds": seeds, "val": val}
    options |= {"first_seed": first_seed}
    results = partial_results.load(file, options)
    save = partial(partial_results.save, file, options, results)
    console = Console()
    for family in families:
        base = Config(
            data_dir=data_dir,
            model="mlp",
            augment="none",
            rounds=rounds,
            local_steps=local_steps,
            batch_size=32,
            clients=int(family.split()[-2]),
            seeds=seeds,
            seed=first_seed,
            val=val,
        )
        configs = {name: replace(base, **one) for name, one in FAMILIES[family].items()}
        wanted = [
            (method, name)
            for method in methods
            for name in configs
            if f"{family}, {name}, {method}" not in results
        ]
        if not wanted:
            continue
        source = small(resolve(next(iter(configs.values()))).source)
        resolved = {name: resolve(config, source) for name, config in configs.items()}
        data = {name: gather(one) for name, one in resolved.items()}
        whole = side_by_side([one.federation for one in data.values()])
        first = next(iter(configs))
        programs: dict[str, Any] = {}
        for method, name in wanted:
            began = time.perf_counter()
            if method not in programs:
                algorithm, _, hyper = method.partition(":")
                pairs = (pair.split("=") for pair in hyper.split(",") if pair)
                config = replace(configs[first], algorithm=algorithm, hyper=dict(pairs))
                programs[method] = program(config, data[first])
            place = list(configs).index(name) * seeds
            one = jax.tree.map(lambda x, place=place: x[place : place + seeds], whole)
            keys = jax.vmap(jax.random.key)(first_seed + jnp.arange(seeds))
            found, (weights, metrics), batches, floats = programs[method](keys, Federation(*one))
            entry: dict[str, Any] = dict(found)
            entry["batches"], entry["floats"] = batches.mean(), floats.mean()
            if weights is not None:
                graphs = [
                    jaxfl.measure_graph(np.asarray(w), true_groups(resolved[name].config, source, s))
                    for s, w in enumerate(weights)
                ]
                for measure in ("collaborators", "group_agreement"):
                    entry[measure] = [one[measure] for one in graphs if measure in one]
            if metrics:
                entry["metrics"] = metrics
            results[f"{family}, {name}, {method}"] = jax.tree.map(np.asarray, entry)
            save()
            seconds = time.perf_counter() - began
            console.print(
                f"{family}, {name}, {method}: {100 * found['accuracy'].mean():.1f} "
                f"{100 * found['fedavg'].mean() if 'fedavg' in found else 0:.1f} {seconds:.0f} s",
                highlight=False,
            )


if __name__ == "__main__":
    tyro.cli(main)
