"""All methods on five partitions: what a method gains where clients differ in different ways.

`python -m experiments.partitions [METHOD ...] [--dataset fashion_mnist --data-dir DIR]`: ten
clients and an MLP. Clients hold two labels each, or a Dirichlet division of the labels, or all
labels with their images rotated, with labels swapped, or in unequal quantities. All partitions and
seeds of a method are one program. Results accumulate in `experiments/results/partitions`, one file
for each method; methods that have one are left out. `python docs/partitions.py` writes
docs/results/partitions.md from them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments.command import command
from experiments.seeds import mean_text
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import check, check_name
from jaxfl.core.types import Dataset, Federation, Pool
from jaxfl.data import Source
from jaxfl.experiment import Config, build, gather, resolve
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.gather import Data, true_groups
from jaxfl.experiment.session.history import versions
from jaxfl.experiment.store import files

PARTITIONS: dict[str, dict[str, Any]] = {
    "labels": {"partition": "pathological"},
    "Dirichlet .1": {"partition": "dirichlet", "beta": 0.1},
    "rotation": {"partition": "iid", "concept": "rotation"},
    "swapped labels": {"partition": "iid", "concept": "swapped_labels"},
    "quantity": {"partition": "quantity"},
}
RESULTS = Path(__file__).parent / "results" / "partitions"
# Of larger data sets the first examples alone are taken.
TRAIN, TEST = 6_000, 2_000
GROUPS = "groups.json"
# Below this second singular value the rows of a graph count as equal.
SAME = 1e-3
# Rounds between two evaluations.
STRETCH = 2
SMOKE = {
    "methods": ("local", "pfedgraph"),
    "rounds": 2,
    "seeds": 2,
    "local_steps": 1,
}


def first_examples(source: Source) -> Source:
    """The data set with at most `TRAIN` and `TEST` examples."""
    return source._replace(
        x_train=source.x_train[:TRAIN],
        y_train=source.y_train[:TRAIN],
        x_test=source.x_test[:TEST],
        y_test=source.y_test[:TEST],
    )


def side_by_side(federations: list[Federation]) -> Federation:
    """Federations [S, C, n, ...] of several partitions in one shape, as one [P * S, C, n, ...]."""

    def own_rows(data: Dataset | Pool) -> Dataset:
        mask = jnp.asarray(data.weights if isinstance(data, Pool) else data.mask)
        x, y = jnp.asarray(data.x), jnp.asarray(data.y)
        if isinstance(data, Pool):  # the examples of a pool are those of every client
            x, y = (jnp.broadcast_to(a[:, None], (*mask.shape[:2], *a.shape[1:])) for a in (x, y))
        return Dataset(x, y, mask)

    def join(*parts: Dataset | Pool) -> Dataset:
        rows = [own_rows(federation) for federation in parts]
        most = max(federation.mask.shape[2] for federation in rows)

        def pad(x: Array) -> Array:
            return jnp.pad(x, [(0, most - n if axis == 2 else 0) for axis, n in enumerate(x.shape)])

        return jax.tree.map(lambda *leaves: jnp.concatenate([*map(pad, leaves)]), *rows)

    return Federation(
        join(*(one.train for one in federations)),
        join(*(one.val for one in federations)),
        join(*(one.test for one in federations)),
    )


def scores(config: Config, data: Data, federation: Federation) -> dict[str, Any]:
    """What a method reaches on all partitions.

    Args:
      config: of the method.
      data: clients of one partition, of which the task is made.
      federation: all partitions and seeds [P * S, C, n, ...].

    Returns:
      accuracy: mean over the clients, deployed, at each evaluation [P * S, E]; worst: that of the
      worst client at the end [P * S]; batches: that a client has computed by then [P * S, E];
      weights: of the last round [P * S, C, C], by part of the model, or None.
    """
    built = build(resolve(config, data.source), data)
    algorithm = built.algorithm
    clients = federation.train.mask.shape[1]
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(clients))
    evaluate = jaxfl.make_evaluate(algorithm, built.task, after="none")

    def run(key, federation):
        state = algorithm.init(jax.random.fold_in(key, 0), federation.train)

        def stretch(state, start):
            state, (info, _) = rounds(
                jax.random.fold_in(key, 1), federation, state, start, length=STRETCH
            )
            evaluation = evaluate(
                jax.random.fold_in(key, 2), federation, state, jnp.arange(clients)
            )
            last = jax.tree.map(lambda w: w[-1], info.weights)
            return state, (evaluation.deployed.test, info.batches.sum(axis=0).mean(), last)

        starts = jnp.arange(0, config.rounds, STRETCH)
        _, (tests, batches, weights) = jax.lax.scan(stretch, state, starts)
        last = jax.tree.map(lambda w: w[-1], weights)
        return tests.mean(axis=1), tests[-1].min(), jnp.cumsum(batches), last

    partitions = federation.train.mask.shape[0] // config.seeds
    keys = jax.vmap(jax.random.key)(jnp.tile(jnp.arange(config.seeds), partitions))
    accuracy, worst, batches, weights = jax.jit(jax.vmap(run))(keys, federation)
    return {
        "accuracy": np.asarray(accuracy),
        "worst": np.asarray(worst),
        "batches": np.asarray(batches),
        "weights": None if weights is None else jax.tree.map(np.asarray, weights),
    }


def record(
    arrays: dict[str, Any], config: Config, groups: dict[str, list[np.ndarray | None]]
) -> dict[str, Any]:
    """What is kept of a method: by partition, its scores and what its graph is like.

    `accuracy` [S] is that after all rounds; `equal` [S] that of the last evaluation by which a
    client has computed no more batches than one training of each round takes.

    Args:
      arrays: of `scores`.
      config: of the method.
      groups: the true groups of each partition and seed; None where all clients differ.
    """
    steps = cast(int, config.local_steps)  # `resolve` has filled it in
    budget = config.rounds * steps
    results = {}
    for place, (name, true) in enumerate(groups.items()):
        rows = slice(place * config.seeds, (place + 1) * config.seeds)
        batches, accuracy = arrays["batches"][rows], arrays["accuracy"][rows]
        last = np.maximum((batches <= budget + 0.5).sum(axis=1) - 1, 0)
        results[name] = {
            "accuracy": np.round(accuracy[:, -1], 4).tolist(),
            "equal": np.round(accuracy[np.arange(len(last)), last], 4).tolist(),
            "worst": np.round(arrays["worst"][rows], 4).tolist(),
            "batches": round(float(batches[:, -1].mean()), 1),
        }
        if arrays["weights"] is None:
            continue
        weights = jax.tree.map(lambda w, rows=rows: w[rows], arrays["weights"])
        parts = weights if isinstance(weights, dict) else {"": weights}
        # The part that clients mix most; what every client keeps is the identity.
        matrices = min(parts.values(), key=lambda w: np.trace(w[0]))
        measures = [
            jaxfl.measure_graph(w, labels) for w, labels in zip(matrices, true, strict=True)
        ]
        results[name]["graph"] = {
            number: [one[number] for one in measures] for number in measures[0]
        }
        results[name]["weights"] = np.round(matrices[0].astype(float), 3).tolist()
    return results


def load(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, list[int] | None]]:
    """All results of a folder, by method and partition, and the true groups of the first seed."""
    results = {file.stem: json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))}
    true = results.pop(Path(GROUPS).stem)
    return {name: one["partitions"] for name, one in results.items() if name in ALGORITHMS}, true


def ranked(results: dict[str, dict[str, Any]]) -> list[str]:
    """The methods by their mean accuracy over all partitions, the best first."""

    def mean(method: str) -> float:
        return float(np.mean([one["accuracy"] for one in results[method].values()]))

    return sorted(results, key=mean, reverse=True)


def has_graph(partitions: dict[str, Any]) -> bool:
    """Whether the clients receive different mixtures in any of the partitions."""
    graphs = [one["graph"] for one in partitions.values() if "graph" in one]
    return any(max(graph["second_singular_value"]) > SAME for graph in graphs)


def picture(results: dict[str, dict[str, Any]], true: dict[str, list[int] | None]) -> bytes:
    """The weights of the last round of each method, first seed, below the true groups.

    Methods have the order of `ranked` in two blocks side by side, and partitions are columns.
    Methods in which all clients receive the same are left out. In the first row a client shares its
    weight with its group alone.
    """
    methods = [name for name in ranked(results) if has_graph(results[name])]
    half = -(-len(methods) // 2)
    size = (1.24 * len(true) + 3, 0.62 * (half + 1))
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(half + 1, 2 * len(true), squeeze=False)
    for panel in grid.flat:
        panel.set(xticks=[], yticks=[])
    blocks = np.split(grid, 2, axis=1)
    for rows, names in zip(blocks, (methods[:half], methods[half:]), strict=True):
        for panels, name in zip(rows, ["true groups", *names], strict=False):
            panels[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
            for panel, partition in zip(panels, true, strict=True):
                weights = true_weights(true[partition])
                if name != "true groups":
                    weights = np.array(results[name][partition]["weights"])
                if weights is not None:
                    panel.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-9))
                else:
                    panel.text(0.5, 0.5, "none", ha="center", va="center", fontsize=7)
                    panel.spines[:].set_visible(False)
        for panels in rows[len(names) + 1 :]:
            for panel in panels:
                panel.set_axis_off()
        for panel, partition in zip(rows[0], true, strict=True):
            panel.set_title(partition.replace(" ", "\n"), fontsize=7)
    return drawing.render(figure)


def true_weights(groups: list[int] | None) -> np.ndarray | None:
    """Equal weights within each group; None if there are no groups."""
    if groups is None:
        return None
    same = np.equal.outer(groups, groups)
    return same / same.sum(axis=1, keepdims=True)


def main(
    methods: tyro.conf.Positional[tuple[str, ...]] = (),
    dataset: str = "digits",
    data_dir: str | None = None,
    rounds: int = 20,
    local_steps: int = 50,
    seeds: int = 3,
    again: bool = False,
    out: Path | None = None,
) -> None:
    """Runs the methods that have no result yet, and prints the table of all that have one.

    Args:
      methods: names of methods; all if none is named.
      dataset: name of the data set; of a large one, the first 6,000 examples.
      data_dir: folder of NAME.npz files; that of JAXFL_DATA_DIR if not given.
      rounds: communication rounds.
      local_steps: local steps per round.
      seeds: partitions and initial models.
      again: run methods that have a result too.
      out: directory of the results; `experiments/results/partitions/DATASET` if not given.
    """
    for name in methods:
        check_name("method", name, ALGORITHMS)
    check(
        rounds > 0 and rounds % STRETCH == 0,
        f"--rounds is {rounds}: expected a multiple of {STRETCH}, the rounds between evaluations",
    )
    base = Config(
        dataset=dataset,
        data_dir=data_dir,
        model="mlp",
        augment="none",
        clients=10,
        rounds=rounds,
        local_steps=local_steps,
        seeds=seeds,
    )
    source = first_examples(resolve(base).source)
    configs = {
        name: resolve(replace(base, **options), source).config
        for name, options in PARTITIONS.items()
    }
    data = {name: gather(resolve(config, source)) for name, config in configs.items()}
    federation = side_by_side([one.federation for one in data.values()])
    groups = {
        name: [true_groups(configs[name], source, place) for place in range(seeds)]
        for name in PARTITIONS
    }
    first = next(iter(PARTITIONS))
    out = RESULTS / dataset if out is None else out
    files.make_directory(out)
    first_seed = {name: one[0] for name, one in groups.items()}
    labels = {name: None if one is None else one.tolist() for name, one in first_seed.items()}
    files.write_json(out / GROUPS, labels)
    for method in methods or ALGORITHMS:
        file = out / f"{method}.json"
        if file.exists() and not again:
            if methods:
                print(f"{method} has a result, {file}: --again runs it once more")
            continue
        config = replace(configs[first], algorithm=method)
        entries = record(scores(config, data[first], federation), config, groups)
        settings = {"rounds": rounds, "local_steps": local_steps, "seeds": seeds}
        # On one line: thousands of weights would be as many lines.
        content = settings | {"versions": versions(), "partitions": entries}
        files.write_file(file, json.dumps(content) + "\n")
        text = ", ".join(f"{100 * np.mean(one['accuracy']):.1f}" for one in entries.values())
        print(f"{method}: {text}", flush=True)
    results, true = load(out)
    table = Table("", *PARTITIONS, title=dataset)
    for method in ranked(results):
        cells = (100 * np.asarray(one["accuracy"]) for one in results[method].values())
        table.add_row(method, *map(mean_text, cells))
    Console().print(table)
    files.write_file(out / "graphs.png", picture(results, true))


if __name__ == "__main__":
    command(main)
