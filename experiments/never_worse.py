"""Is a graph never worse than no graph? 48 settings in which clients differ or do not.

`python -m experiments.never_worse [--data-dir DIR] [--weights FILE]`: `safe_graph` beside local
training, FedAvg, FedAvg with fine-tuning and pFedGraph, on digits, on MNIST and Fashion-MNIST of
14 x 14 pixels, on the four hospitals, on numbers to predict, and on what a frozen network finds in
images of CIFAR-10. The network is EfficientNet-Lite0, whose weights are given;
docs/results/adapters.md says how to make the file. Families of `FRESH` had no part in the making of
the method. Results accumulate in the folder `--out`; what it has is
not computed again. `--first-seed 100` gives the seeds on which the method was developed.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import unflatten_dict
from rich.console import Console
from rich.table import Table

import jaxfl
from experiments import partial_results
from experiments.command import command
from experiments.partitions import side_by_side
from experiments.seeds import mean_text
from jaxfl.algorithms import fedavg
from jaxfl.core.messages import Clients
from jaxfl.core.types import Dataset, Federation, State
from jaxfl.data import Source
from jaxfl.experiment import Config, build, gather, resolve
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.session.gather import Data, true_groups
from jaxfl.experiment.store import files
from jaxfl.experiment.store.weights_file import read_weights
from jaxfl.models.efficientnet_lite import EfficientNetLite
from jaxfl.models.pretrained import pretrained

IMAGES: dict[str, Any] = {"dataset": "fashion_mnist"}
FROZEN: dict[str, Any] = {"dataset": "cifar10", "max_examples": 100}
MNIST: dict[str, Any] = {"dataset": "mnist"}
# Settings by name, in families of one shape of data; what some of the clients have says `changed`.
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "digits, 10 clients": {
        "labels, 40 examples": {"partition": "pathological", "max_examples": 40},
        "Dirichlet .1": {"partition": "dirichlet", "beta": 0.1},
        "rotation, 100 examples": {"partition": "iid", "concept": "rotation", "max_examples": 100},
        "swapped labels, 100 examples": {
            "partition": "iid",
            "concept": "swapped_labels",
            "max_examples": 100,
        },
        "IID, 40 examples": {"partition": "iid", "max_examples": 40},
        "quantity": {"partition": "quantity"},
        "random labels in 5, IID, 100 examples": {
            "partition": "iid",
            "max_examples": 100,
            "random_labels": 5,
        },
    },
    "digits, 30 clients": {
        "labels, 8 examples": {"partition": "pathological", "max_examples": 8},
    },
    "Fashion-MNIST, 10 clients": {
        "rotation, 500 examples": IMAGES
        | {"partition": "iid", "concept": "rotation", "max_examples": 500},
        "Dirichlet .1, 500 examples": IMAGES
        | {"partition": "dirichlet", "beta": 0.1, "max_examples": 500},
        "labels, 100 examples": IMAGES | {"partition": "pathological", "max_examples": 100},
        "400 and 40 examples, Dirichlet .3": IMAGES
        | {"partition": "dirichlet", "beta": 0.3, "max_examples": 400, "few": 40},
    },
    "Fashion-MNIST, 50 clients": {
        "Dirichlet .5, 100 examples": IMAGES
        | {"partition": "dirichlet", "beta": 0.5, "max_examples": 100},
        "swapped labels, 100 examples": IMAGES
        | {"partition": "iid", "concept": "swapped_labels", "max_examples": 100},
        "IID, 40 examples": IMAGES | {"partition": "iid", "max_examples": 40},
    },
    "CIFAR-10 features, 10 clients": {
        "labels, 100 examples": FROZEN | {"partition": "pathological"},
        "Dirichlet .1, 100 examples": FROZEN | {"partition": "dirichlet", "beta": 0.1},
        "swapped labels, 100 examples": FROZEN | {"partition": "iid", "concept": "swapped_labels"},
    },
    "digits, 20 clients": {
        "Dirichlet .3": {"partition": "dirichlet", "beta": 0.3},
        "IID, 8 examples": {"partition": "iid", "max_examples": 8},
        "rotation, 40 examples": {"partition": "iid", "concept": "rotation", "max_examples": 40},
        "random labels in 6, Dirichlet 1": {
            "partition": "dirichlet",
            "beta": 1.0,
            "random_labels": 6,
        },
        "80 and 16 examples, IID": {"partition": "iid", "max_examples": 80, "few": 16},
    },
    "Fashion-MNIST, 20 clients": {
        "rotation, 60 examples": IMAGES
        | {"partition": "iid", "concept": "rotation", "max_examples": 60},
        "Dirichlet 1, 150 examples": IMAGES
        | {"partition": "dirichlet", "beta": 1.0, "max_examples": 150},
        "random labels in 10, labels, 100 examples": IMAGES
        | {"partition": "pathological", "max_examples": 100, "random_labels": 10},
        "300 and 30 examples, Dirichlet .3": IMAGES
        | {"partition": "dirichlet", "beta": 0.3, "max_examples": 300, "few": 30},
        "noise in features, 100 examples": IMAGES
        | {"partition": "iid", "concept": "feature_noise", "max_examples": 100},
    },
    "MNIST, 30 clients": {
        "labels, 8 examples": MNIST | {"partition": "pathological", "max_examples": 8},
        "swapped labels, 60 examples": MNIST
        | {"partition": "iid", "concept": "swapped_labels", "max_examples": 60},
        "Dirichlet .1, 60 examples": MNIST
        | {"partition": "dirichlet", "beta": 0.1, "max_examples": 60},
    },
    "heart disease, 4 hospitals": {
        "as they are": {"dataset": "heart_disease", "partition": "natural", "clients": None},
    },
    "regression, 12 clients": {
        "three groups": {"partition": "natural", "clients": None, "model": "linear"},
    },
}
# Families that had no part in the making of the method.
FRESH: dict[str, dict[str, dict[str, Any]]] = {
    "MNIST, 10 clients": {
        "Dirichlet .5, 80 examples": MNIST
        | {"partition": "dirichlet", "beta": 0.5, "max_examples": 80},
        "rotation, 80 examples": MNIST
        | {"partition": "iid", "concept": "rotation", "max_examples": 80},
        "IID, 80 examples": MNIST | {"partition": "iid", "max_examples": 80},
        "random labels in 3, IID, 80 examples": MNIST
        | {"partition": "iid", "max_examples": 80, "random_labels": 3},
        "200 and 20 examples, Dirichlet .5": MNIST
        | {"partition": "dirichlet", "beta": 0.5, "max_examples": 200, "few": 20},
    },
    "MNIST, 40 clients": {
        "labels, 30 examples": MNIST | {"partition": "pathological", "max_examples": 30},
        "Dirichlet .2, 40 examples": MNIST
        | {"partition": "dirichlet", "beta": 0.2, "max_examples": 40},
        "swapped labels, 40 examples": MNIST
        | {"partition": "iid", "concept": "swapped_labels", "max_examples": 40},
        "IID, 15 examples": MNIST | {"partition": "iid", "max_examples": 15},
        "random labels in 10, rotation, 40 examples": MNIST
        | {"partition": "iid", "concept": "rotation", "max_examples": 40, "random_labels": 10},
    },
    "digits, 15 clients": {
        "Dirichlet .2": {"partition": "dirichlet", "beta": 0.2},
        "IID, 60 examples": {"partition": "iid", "max_examples": 60},
        "noise in features": {"partition": "iid", "concept": "feature_noise"},
        "rotation, 60 examples": {"partition": "iid", "concept": "rotation", "max_examples": 60},
        "60 and 12 examples, swapped labels": {
            "partition": "iid",
            "concept": "swapped_labels",
            "max_examples": 60,
            "few": 12,
        },
    },
}
FAMILIES |= FRESH
BASELINES = ("local", "fedavg", "fedavg_ft")
METHODS = ("local", "fedavg_ft", "pfedgraph", "safe_graph")
COLUMNS = ("local", "fedavg", "fedavg_ft", "pfedgraph", "safe_graph")
# Of larger data sets the first examples alone are taken.
TRAIN, TEST = 6_000, 2_000
# The frozen network takes images of so many pixels a side.
SIDE = 64
SMOKE = {
    "methods": ("local", "fedavg_ft", "safe_graph"),
    "families": ("digits, 10 clients",),
    "rounds": 1,
    "local_steps": 1,
    "seeds": 2,
}


def three_groups(clients: int = 12, examples: int = 30, features: int = 10) -> Source:
    """Numbers that are linear in the inputs, in another way in each of three groups.

    The targets have the variance 1, a tenth of which is noise.
    """
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(3, features))
    truth *= np.sqrt(0.9) / np.linalg.norm(truth, axis=1, keepdims=True)
    owners = np.repeat(np.arange(clients), examples)
    x = rng.normal(size=(owners.size, features)).astype(np.float32)
    y = np.einsum("nf,nf->n", x, truth[owners % 3]) + np.sqrt(0.1) * rng.normal(size=owners.size)
    return jaxfl.data.from_arrays(
        x, y.astype(np.float32), owners=owners, name="numbers of three groups"
    )


def changed(federation: Federation, val: float, random_labels: int = 0, few: int = 0) -> Federation:
    """A federation some of whose clients have other data for training and validation.

    Args:
      federation: with seeds first [S, C, n, ...].
      val: the share of a client's examples that are for validation.
      random_labels: so many clients, the first ones, have labels at random.
      few: the second half of the clients keep so many examples; 0 for all.
    """
    rng = np.random.default_rng(0)

    def change(data: Dataset, share: float) -> Dataset:
        mask, y = np.array(data.mask), np.array(data.y)
        if random_labels:
            part = y[:, :random_labels]
            y[:, :random_labels] = rng.integers(0, y.max() + 1, part.shape)
        if few:
            mask[:, mask.shape[1] // 2 :, round(few * share) :] = False
        return data._replace(mask=mask, y=y)

    return federation._replace(
        train=change(federation.train, 1 - val), val=change(federation.val, val)
    )


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


def features(source: Source, weights: Path) -> Source:
    """Images as what enters the last layer of EfficientNet-Lite0 [1280]."""
    module, arrays = pretrained(EfficientNetLite(source.classes, SIDE), read_weights(weights))
    params = jax.tree.map(jnp.float32, unflatten_dict(arrays, sep="/"))

    @jax.jit
    def last(images):
        return module.apply(params, (images.astype(jnp.float32) - 127) / 128, method="features")

    def all_of(images: np.ndarray) -> np.ndarray:
        parts = [np.asarray(last(images[at : at + 200])) for at in range(0, len(images), 200)]
        return np.concatenate(parts)

    return jaxfl.data.from_arrays(
        all_of(source.x_train),
        source.y_train,
        all_of(source.x_test),
        source.y_test,
        name="what enters the last layer",
    )


def program(config: Config, data: Data) -> Callable:
    """The runs of a method on federations of one shape.

    Returns:
      (keys [S], federations [S, C, n, ...]) -> what is kept, with seeds first: `accuracy` of the
      deployed models [S, C]; `fedavg`, that of the server's model, with FedAvg-FT; `batches` and
      `floats` of a client; the graph of the last round and its metrics.
    """
    built = build(resolve(config, data.source), data)
    algorithm, task = built.algorithm, built.task
    clients = data.federation.train.mask.shape[-2]
    everyone = jnp.arange(clients)
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(clients))
    evaluate = jaxfl.make_evaluate(algorithm, task, after="none")
    of_server = jaxfl.make_evaluate(fedavg(task), task, after="none")

    def run(key, federation):
        state = algorithm.init(jax.random.fold_in(key, 0), federation.train)
        state, (info, _) = rounds(
            jax.random.fold_in(key, 1), federation, state, 0, length=config.rounds
        )
        key = jax.random.fold_in(key, 2)
        scores = evaluate(key, federation, state, everyone).deployed.test
        # Of numbers the score is the negative squared error, and R2 is 1 less that.
        r2 = jnp.issubdtype(federation.train.y.dtype, jnp.floating)
        kept = {"accuracy": scores + r2}
        if config.algorithm == "fedavg_ft":
            # FedAvg trains alike, and deploys the server's model.
            alike = State(Clients(), state.server)
            kept["fedavg"] = of_server(key, federation, alike, everyone).deployed.test + r2
        kept["batches"] = info.batches.sum(axis=0).mean()
        kept["floats"] = (info.up + info.down).sum(axis=0).mean()
        return kept, *jax.tree.map(lambda leaf: leaf[-1], (info.weights, info.metrics))

    return jax.jit(jax.vmap(run))


def graph_numbers(weights: np.ndarray, groups: list[np.ndarray | None]) -> dict[str, list]:
    """How many clients collaborate, and whether they are of one group, by seed."""
    measures = [
        jaxfl.measure_graph(one, labels) for one, labels in zip(weights, groups, strict=True)
    ]
    names = ("collaborators", "group_agreement")
    return {name: [one[name] for one in measures] for name in names if name in measures[0]}


def run_family(
    family: str,
    base: Config,
    methods: tuple[str, ...],
    weights: Path | None,
    results: dict[str, Any],
    save: Callable,
) -> None:
    """Fills in what the results lack of a family, one setting and method after the other."""
    changes = {
        name: {key: one[key] for key in ("random_labels", "few") if key in one}
        for name, one in FAMILIES[family].items()
    }
    configs = {
        name: replace(base, **{key: one[key] for key in one if key not in changes[name]})
        for name, one in FAMILIES[family].items()
    }
    wanted = [
        (method, name)
        for method in methods
        for name in configs
        if method not in results.get(f"{family}, {name}", {})
    ]
    if not wanted:
        return
    first = next(iter(configs))
    given = three_groups() if "regression" in family else None
    source = small(resolve(configs[first], given).source)
    if weights is not None and "features" in family:
        source = features(source, weights)
    resolved = {name: resolve(config, source) for name, config in configs.items()}
    data = {name: gather(one) for name, one in resolved.items()}
    # In one shape, so that a method is one program for the whole family.
    whole = side_by_side(
        [
            changed(side_by_side([one.federation]), base.val, **changes[name])
            for name, one in data.items()
        ]
    )
    keys = jax.vmap(jax.random.key)(base.seed + jnp.arange(base.seeds))
    programs: dict[str, Callable] = {}
    for method, name in wanted:
        began = time.perf_counter()
        if method not in programs:
            config = replace(configs[first], algorithm=method)
            programs[method] = program(config, data[first])
        place = list(configs).index(name) * base.seeds
        federation = jax.tree.map(lambda x, p=place: x[p : p + base.seeds], whole)
        kept, mixing, metrics = programs[method](keys, federation)
        entry = kept | ({"metrics": metrics} if metrics else {})
        config = resolved[name].config
        groups = [true_groups(config, source, seed) for seed in range(base.seeds)]
        if mixing is not None:
            entry |= graph_numbers(np.asarray(mixing), groups)
        setting = results.setdefault(f"{family}, {name}", {})
        setting[method] = jax.tree.map(np.asarray, entry)
        save()
        text = f"{family}, {name}, {method}: {100 * kept['accuracy'].mean():.1f}"
        print(f"{text} ({time.perf_counter() - began:.0f} s)", flush=True)


def accuracies(setting: dict[str, Any]) -> dict[str, np.ndarray]:
    """By method the mean accuracy of the clients in % [S]; FedAvg is that of FedAvg-FT's server."""
    found = {name: 100 * np.mean(one["accuracy"], axis=1) for name, one in setting.items()}
    if "fedavg_ft" in setting:
        found["fedavg"] = 100 * np.mean(setting["fedavg_ft"]["fedavg"], axis=1)
    return found


def margins(setting: dict[str, Any]) -> np.ndarray:
    """The points by which the method is above the best baseline, the one with the best mean [S]."""
    found = accuracies(setting)
    best = max(BASELINES, key=lambda name: found[name].mean())
    return found["safe_graph"] - found[best]


def rows(results: dict[str, Any]) -> list[list[str]]:
    """A row for each setting that has all methods: mean and deviation over seeds, the margin."""
    lines = []
    for name in (f"{family}, {one}" for family in FAMILIES for one in FAMILIES[family]):
        setting = results.get(name, {})
        found = accuracies(setting)
        if not {*BASELINES, "safe_graph"} <= found.keys():
            continue
        cells = [mean_text(found[m]) if m in found else "" for m in COLUMNS]
        lines.append([name, *cells, mean_text(margins(setting), "+.1f")])
    return lines


def picture(results: dict[str, Any]) -> bytes:
    """The margin of each seed over the best baseline, a line for each setting."""
    figure, (panel,) = drawing.canvas(1, width=6.5, height=4.0)
    names = [row[0] for row in rows(results)]
    for place, name in enumerate(names):
        values = margins(results[name])
        panel.plot(values, np.full(len(values), place), "o")
    panel.set_yticks(range(len(names)), names)
    for bound in (-1, 1):
        panel.axvline(bound, color="grey", linewidth=0.8)
    panel.set_xlabel("safe_graph less the best of local, FedAvg and FedAvg-FT, points")
    return drawing.render(figure)


def main(
    methods: tuple[str, ...] = METHODS,
    families: tuple[str, ...] = tuple(FAMILIES),
    data_dir: str | None = None,
    rounds: int = 20,
    local_steps: int = 40,
    seeds: int = 3,
    first_seed: int = 0,
    val: float = 0.2,
    weights: Path | None = None,
    out: Path = Path("runs/never_worse"),
) -> None:
    """Runs what has no result yet, prints the table, and writes it with a picture.

    Args:
      methods: of `METHODS`; the table has settings with the baselines and `safe_graph` alone.
      families: of `FAMILIES`.
      data_dir: folder of NAME.npz files; that of JAXFL_DATA_DIR if not given.
      rounds: communication rounds.
      local_steps: local steps per round.
      seeds: how many.
      first_seed: the first of them.
      val: the share of a client's examples that are for validation.
      weights: of EfficientNet-Lite0; without them the settings of its features are left out.
      out: directory to write; results that it holds already are not computed again.
    """
    options = {"rounds": rounds, "local_steps": local_steps, "seeds": seeds, "val": val}
    options |= {"first_seed": first_seed}
    file = out / "accuracy.json"
    results = partial_results.load(file, options)
    save = partial(partial_results.save, file, options, results)
    for family in families:
        if weights is None and "features" in family:
            print(f"{family}: left out, give --weights FILE")
            continue
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
        run_family(family, base, methods, weights, results, save)
    header = ["setting", *COLUMNS, "margin"]
    table = Table(*header)
    for row in rows(results):
        table.add_row(*row)
    Console().print(table)
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows(results)]
    files.write_file(out / "table.md", "".join(f"| {' | '.join(line)} |\n" for line in lines))
    files.write_file(out / "margins.png", picture(results))


if __name__ == "__main__":
    command(main)
