"""Two data sets of FLamby beside its published numbers: survival in six regions, four hospitals.

`python -m experiments.flamby --tcga DIR --heart FILE [--published FILE]`: DIR has the six CSV files
of Fed-TCGA-BRCA, with the columns `E`, `T` and `split`, and FILE is `heart_disease.npz`. Protocol:
du Terrail et al., FLamby, NeurIPS 2022, and its code (https://github.com/owkin/FLamby): its parts
for training and test, steps, batches, learning rates and optimisers; five seeds. `--published` is a
table of its numbers, with the columns dataset, method, test_set, mean and std.
"""

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from sklearn.model_selection import train_test_split

import jaxfl
from experiments.command import command
from experiments.seeds import mean_text
from jaxfl.algorithms import ALGORITHMS, steps
from jaxfl.core.types import Algorithm, Cohort, Dataset, Federation, Task
from jaxfl.data.table.read import read_sheet
from jaxfl.data.table.schema import numbers
from jaxfl.simulation.client_scores import metrics_of_clients
from jaxfl.training.survival import cox

SEEDS = 5
REGIONS = ("northeast", "south", "west", "midwest", "europe", "canada")
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
LOCAL_UPDATES = 100  # of a round


class Benchmark(NamedTuple):
    """A data set with its protocol."""

    name: str  # as the published table has it
    sites: tuple[str, ...]
    federation: Federation
    task: Callable[..., Task]  # of the keyword arguments of its training
    metric: str
    batch_size: int
    epochs: int  # of local and of pooled training, by Adam
    rate: float  # of Adam
    rounds: int
    # method -> learning rate of SGD at the clients, and options of the method
    strategies: dict[str, tuple[float, dict[str, Any]]]


def padded(parts: list[tuple[np.ndarray, np.ndarray]]) -> Dataset:
    """The examples of all clients [C, n, ...]."""
    most = max(len(x) for x, _ in parts)

    def pad(array: np.ndarray) -> np.ndarray:
        return np.pad(array, [(0, most - len(array)), *[(0, 0)] * (array.ndim - 1)])

    x, y = (np.stack([pad(part[place]) for part in parts]) for place in (0, 1))
    mask = np.stack([np.arange(most) < len(x) for x, _ in parts])
    return Dataset(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))


def federation_of(train: list, test: list) -> Federation:
    """Clients without validation examples."""
    data = padded(train)
    nothing = jax.tree.map(lambda leaf: leaf[:, :1], data)
    val = nothing._replace(mask=jnp.zeros_like(nothing.mask))
    return Federation(data, val, padded(test))


def regions(folder: Path) -> Benchmark:
    """Survival after breast cancer in six regions; a linear model and Cox's loss."""
    train, test = [], []
    for region in REGIONS:
        sheet = read_sheet(folder / f"{region}.csv")
        names = [name for name in sheet.columns if name not in ("E", "T", "split")]
        x = np.stack([numbers(name, sheet) for name in names], axis=1).astype(np.float32)
        y = np.stack([numbers(name, sheet) for name in ("T", "E")], axis=1).astype(np.float32)
        split = np.array(sheet.columns["split"])
        train.append((x[split == "train"], y[split == "train"]))
        test.append((x[split == "test"], y[split == "test"]))
    x = train[0][0]
    rates = {
        "fedavg": (0.1, {}),
        "fedprox": (0.1, {"mu": 0.1}),
        "scaffold": (0.01, {"server_rate": 1.0}),
        "fedadam": (0.01, {"rate": 0.1}),
        "fedyogi": (0.01, {"rate": 0.1}),
        "fedadagrad": (0.01, {"rate": 1.0}),
    }
    task = partial(jaxfl.survival, jaxfl.models.linear(), x[0], loss=cox("breslow"))
    sizes = sum(len(x) for x, _ in train)
    rounds = (sizes // len(REGIONS) // 8) * 30 // LOCAL_UPDATES
    return Benchmark(
        "fed_tcga_brca",
        REGIONS,
        federation_of(train, test),
        task,
        "concordance",
        8,
        30,
        0.1,
        rounds,
        rates,
    )


def hospitals(file: Path) -> Benchmark:
    """Heart disease in four hospitals; logistic regression, patients without missing values."""
    with np.load(file, allow_pickle=False) as arrays:
        x, y, hospital = (arrays[name] for name in ("x", "y", "hospital"))
    x = np.delete(x, [10, 11, 12], axis=1)
    known = ~np.isnan(x).any(axis=1)
    x, y, hospital = x[known], y[known], hospital[known]
    # Two findings are codes: a feature for each value but the first.
    codes = [(x[:, column] == value) for column in (2, 6) for value in np.unique(x[:, column])[1:]]
    x = np.concatenate([np.delete(x, [2, 6], axis=1), np.stack(codes, axis=1)], axis=1)
    train, test = [], []
    for place in range(len(HOSPITALS)):
        own, labels = x[hospital == place], y[hospital == place]
        counts = np.bincount(labels, minlength=2)
        rows, others = train_test_split(
            np.arange(len(own)),
            test_size=1 - 0.66,
            train_size=0.66,
            random_state=43,
            stratify=labels if counts.min() > 2 else None,
        )
        mean, deviation = own[rows].mean(axis=0), own[rows].std(axis=0, ddof=1)
        own = ((own - mean) / (deviation + 1e-9)).astype(np.float32)
        train.append((own[rows], labels[rows]))
        test.append((own[others], labels[others]))
    rates = {
        "fedavg": (0.001, {}),
        "fedprox": (0.001, {"mu": 0.01}),
        "scaffold": (0.001, {"server_rate": 1.0}),
        "fedadam": (0.01, {"rate": 0.01}),
        "fedyogi": (0.003162, {"rate": 0.01}),
        "fedadagrad": (0.003162, {"rate": 0.316228}),
    }
    task = partial(jaxfl.multilabel, jaxfl.models.linear(), train[0][0][0])
    labelled = [[(x, y[:, None] > 0) for x, y in part] for part in (train, test)]
    rounds = (486 // len(HOSPITALS) // 4) * 50 // LOCAL_UPDATES
    return Benchmark(
        "fed_heart_disease",
        HOSPITALS,
        federation_of(*labelled),
        task,
        "accuracy",
        4,
        50,
        0.001,
        rounds,
        rates,
    )


def scale_by_adaptive(rate: float, kind: str) -> optax.GradientTransformation:
    """FLamby's servers, whose means of gradients and squares are not corrected for their start."""
    beta1, beta2, tau = 0.9, 0.999, 1e-8

    def init(params):
        zero = jax.tree.map(jnp.zeros_like, params)
        return zero, zero

    def update(updates, state, params=None):
        grads = updates
        mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state[0], grads)

        def square(v, g):
            if kind == "fedadagrad":
                return v + g**2
            if kind == "fedyogi":
                return v - (1 - beta2) * jnp.sign(v - g**2) * g**2
            return beta2 * v + (1 - beta2) * g**2

        squares = jax.tree.map(square, state[1], grads)
        updates = jax.tree.map(lambda m, v: -rate * m / (jnp.sqrt(v) + tau), mean, squares)
        return updates, (mean, squares)

    return optax.GradientTransformation(init, update)


def run(benchmark: Benchmark, algorithm: Algorithm, rounds: int, data: Federation) -> Any:
    """The models that the clients deploy [S, C, ...], of all seeds side by side."""
    clients = data.train.mask.shape[0]
    run_rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(clients))
    cohort = Cohort(jnp.arange(clients), data.train, data.val)

    def of_seed(key):
        state = algorithm.init(key, data.train)
        state, _ = run_rounds(key, data, state, 0, rounds)
        return algorithm.models(state, cohort)

    return jax.jit(jax.vmap(of_seed))(jax.vmap(jax.random.key)(jnp.arange(SEEDS)))


def scores_of(benchmark: Benchmark, algorithm: Algorithm, models: Any) -> np.ndarray:
    """Test scores by site, and of all predictions together [S, C + 1]; models [S, C, ...]."""
    test = benchmark.federation.test
    everybody = jnp.ones(len(benchmark.sites), bool)

    def of_seed(params):
        each, together = metrics_of_clients(
            algorithm.apply, [benchmark.metric], params, test, pooled=everybody
        )
        return jnp.append(each[benchmark.metric], together[benchmark.metric])

    return np.asarray(jax.jit(jax.vmap(of_seed))(models))


def methods(benchmark: Benchmark) -> dict[str, Callable[[], np.ndarray]]:
    """What gives the scores of each method."""
    adam = benchmark.task(
        optimizer=optax.adam(benchmark.rate),
        epochs=benchmark.epochs,
        batch_size=benchmark.batch_size,
    )
    data, sites = benchmark.federation, len(benchmark.sites)
    rows = [
        jax.tree.map(lambda leaf, c=c: leaf[c][data.train.mask[c]], data.train)
        for c in range(sites)
    ]
    whole = padded([(np.concatenate([r.x for r in rows]), np.concatenate([r.y for r in rows]))])
    one = Federation(whole, jax.tree.map(lambda leaf: leaf[:1], data.val), whole)

    def alone(site: int | None) -> np.ndarray:
        algorithm = ALGORITHMS["local"](adam)
        if site is None:
            models = run(benchmark, algorithm, 1, one)
        else:
            models = run(benchmark, algorithm, 1, data)
            models = jax.tree.map(lambda leaf: leaf[:, site : site + 1], models)
        models = jax.tree.map(lambda leaf: jnp.repeat(leaf, sites, axis=1), models)
        return scores_of(benchmark, algorithm, models)

    def strategy(name: str, rate: float, hyper: dict[str, Any]) -> np.ndarray:
        task = benchmark.task(
            optimizer=optax.sgd(rate), steps=LOCAL_UPDATES, batch_size=benchmark.batch_size
        )
        if name in ("fedadam", "fedyogi", "fedadagrad"):
            server = scale_by_adaptive(hyper["rate"], name)
            algorithm = steps.global_model(task, server_optimizer=server)
        else:
            algorithm = ALGORITHMS[name](task, **hyper)
        return scores_of(benchmark, algorithm, run(benchmark, algorithm, benchmark.rounds, data))

    found: dict[str, Callable[[], np.ndarray]] = {"pooled": partial(alone, None)}
    found |= {f"local {site}": partial(alone, place) for place, site in enumerate(benchmark.sites)}
    for name, (rate, hyper) in benchmark.strategies.items():
        found[name] = partial(strategy, name, rate, hyper)
    rate = benchmark.strategies["fedavg"][0]
    clusters = {"fedcedar": {"clusters": 3}}
    for name in (
        "local",
        "fedavg_ft",
        "ditto",
        "fedcedar",
        "gfedmtl",
        "pfedgraph",
        "pfedgat",
        "safe_graph",
    ):
        found[name] = partial(strategy, name, rate, clusters.get(name, {}))
    return found


def published_numbers(file: Path | None) -> dict[tuple[str, str, str], str]:
    """FLamby's numbers by data set, method and test set, as text."""
    if file is None:
        return {}
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {
        (row["dataset"], row["method"], row["test_set"]): f"{float(row['mean']):.3f} "
        f"±{float(row['std']):.3f}"
        for row in rows
    }


# What FLamby calls our methods.
THEIRS = {
    "pooled": "Pooled Training",
    "fedavg": "FedAvg100",
    "fedprox": "FedProx100",
    "scaffold": "Scaffold100",
    "fedadam": "FedAdam100",
    "fedyogi": "FedYogi100",
    "fedadagrad": "FedAdagrad100",
}


def main(tcga: Path, heart: Path, published: Path | None = None, out: Path | None = None) -> None:
    """Runs both benchmarks and prints a table of each.

    Args:
      tcga: folder of the six CSV files of Fed-TCGA-BRCA.
      heart: file `heart_disease.npz`.
      published: table of FLamby's numbers, which stand below ours.
      out: Markdown file to write; nothing is written if not given.
    """
    console = Console(width=160)
    numbers_of_theirs = published_numbers(published)
    texts = []
    for benchmark in (regions(tcga), hospitals(heart)):
        console.print(f"{benchmark.name}: {benchmark.rounds} rounds, {benchmark.metric}")
        titles = ["method", *benchmark.sites, "all together"]
        lines = [f"| {' | '.join(titles)} |", f"|---|{'--:|' * (len(titles) - 1)}"]
        for name, compute in methods(benchmark).items():
            scores = compute()
            cells = [mean_text(column, ".3f") for column in scores.T]
            lines.append(f"| {name} | {' | '.join(cells)} |")
            theirs = THEIRS.get(name, name)
            if name.startswith("local "):
                theirs = f"Local {benchmark.sites.index(name.removeprefix('local '))}"
            sets = [f"client_test_{place}" for place in range(len(benchmark.sites))]
            found = [
                numbers_of_theirs.get((benchmark.name, theirs, one))
                for one in (*sets, "Pooled Test")
            ]
            if all(found):
                lines.append(f"| *published* | {' | '.join(map(str, found))} |")
            console.print(lines[-2 if all(found) else -1], markup=False)
        texts += [f"## {benchmark.name}", "", *lines, ""]
    if out is not None:
        out.write_text("\n".join(texts))


if __name__ == "__main__":
    command(main)
