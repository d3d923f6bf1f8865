"""Two data sets of FLamby beside its published numbers: survival in six regions, four hospitals.

`python -m experiments.flamby --tcga DIR --heart FILE [--published FILE] [--out DIR]`: DIR has the
six CSV files of Fed-TCGA-BRCA, with the columns `E`, `T` and `split`, and FILE is
`heart_disease.npz`. The protocol is that of the presets `flamby-tcga` and `flamby-heart`. FLamby's
numbers are a CSV file with the columns dataset, method, test_set, mean and std; they stand below
ours, which are bold where they differ by more than two of its standard deviations.
"""

import csv
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from rich.console import Console
from sklearn.model_selection import train_test_split

from experiments.command import command
from experiments.seeds import mean_text
from jaxfl.core.errors import check
from jaxfl.data.table.prepare import prepare_csv
from jaxfl.data.table.summary import Choices
from jaxfl.experiment import Config, execute, load
from jaxfl.experiment.config import preset
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.store import files
from jaxfl.models import MODELS
from jaxfl.simulation.statistics import each_seed


class Benchmark(NamedTuple):
    """A data set of FLamby."""

    title: str  # as its table has it
    sites: tuple[str, ...]  # in its order
    choices: Choices
    epochs: int  # of local and of pooled training
    # method -> options other than the preset's
    changes: dict[str, dict[str, Any]]
    # further rows: the method, what is another, and the options
    variants: dict[str, dict[str, Any]]


BENCHMARKS = {
    "tcga": Benchmark(
        "fed_tcga_brca",
        ("northeast", "south", "west", "midwest", "europe", "canada"),
        Choices("T", event="E", split="split", scale=False),
        30,
        {name: {"lr": 0.01} for name in ("scaffold", "fedadam", "fedyogi")},
        {"fedavg, rate .01": {"lr": 0.01}},
    ),
    "heart": Benchmark(
        "fed_heart_disease",
        ("cleveland", "hungarian", "switzerland", "va"),
        Choices("ill", split="split", scale=False),
        50,
        {"fedadam": {"lr": 0.005}, "fedyogi": {"lr": 0.00158}},
        {
            "local, from zero": {"model": "linear"},
            "fedavg, from zero": {"model": "linear"},
            "fedavg, ten times the rate": {"lr": 0.005},
            "fedavg, ten times the rounds": {"rounds": 150},
        },
    ),
}
# FLamby's names for our methods, and methods that it has not.
THEIRS = {
    "local": "Local",
    "pooled": "Pooled Training",
    "fedavg": "FedAvg100",
    "fedprox": "FedProx100",
    "scaffold": "Scaffold100",
    "fedadam": "FedAdam100",
    "fedyogi": "FedYogi100",
}
PERSONAL = ("fedavg_ft", "ditto", "fedcedar", "gfedmtl", "pfedgraph", "pfedgat", "safe_graph")
SMOKE = {"drawn": True, "methods": ("scaffold",)}
Numbers = dict[tuple[str, str, str], tuple[float, float]]  # by data set, method and test set
Rows = dict[str, np.ndarray]  # test scores by site and together [S, C + 1]


class Linear(nn.Module):
    """One linear layer that starts as FLamby's: uniform, up to 1 / sqrt(features).

    Of two outputs the first starts at 0: their softmax is the logistic function of the second.
    """

    outputs: int
    head = "Dense_0"

    @nn.compact
    def __call__(self, x):
        """[B, F] -> [B, outputs]."""
        bound = x.shape[-1] ** -0.5

        def start(key, shape, dtype=jnp.float32):
            return jax.random.uniform(key, shape, dtype, -bound, bound).at[..., :-1].set(0)

        return nn.Dense(self.outputs, kernel_init=start, bias_init=start)(x)


cast(Any, MODELS)["flamby"] = Linear


def main(
    tcga: Path | None = None,
    heart: Path | None = None,
    published: Path | None = None,
    out: Path = Path("runs/flamby"),
    methods: tuple[str, ...] = (*THEIRS, *PERSONAL),
    drawn: bool = False,
) -> None:
    """Runs the methods on both data sets; prints and writes a table of each, numbers, a picture.

    Args:
      tcga: folder of the six CSV files of Fed-TCGA-BRCA.
      heart: file `heart_disease.npz`.
      published: table of FLamby's numbers.
      out: directory to write, with the data sets and the runs.
      methods: of these.
      drawn: take small random tables of the same form in place of the files, to try the script.
    """
    check(
        drawn or tcga is not None or heart is not None,
        "there are no data: give --tcga DIR or --heart FILE, or --drawn to try the script",
    )
    start = time.time()
    tables = {}
    if drawn:
        tables = {name: random_tables(one, out / name) for name, one in BENCHMARKS.items()}
    if tcga is not None:
        tables["tcga"] = [tcga / f"{site}.csv" for site in BENCHMARKS["tcga"].sites]
    if heart is not None:
        tables["heart"] = hospital_tables(heart, out / "heart")
    theirs = {} if published is None else published_numbers(published)
    console = Console(width=180)
    pairs = []
    for name, sheets in tables.items():
        prepare_csv(sheets, out / "data", BENCHMARKS[name].choices, name=name, overwrite=True)
        variants = [row for row in BENCHMARKS[name].variants if row.split(",")[0] in methods]
        pairs += [(name, row) for row in (*methods, *variants)]
    results: dict[str, dict[str, Rows]] = {name: {} for name in tables}  # by data set and metric
    # To compile a program keeps one core busy.
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        found = pool.map(scores_of, *zip(*pairs, strict=True), repeat(out))
        for (name, row), scores in zip(pairs, found, strict=True):
            for metric, one in scores.items():
                results[name].setdefault(metric, {})[row] = one
            console.print(f"{name}: {row}, {time.time() - start:.0f} s", markup=False)
    texts = [table(name, *one, theirs) for name in results for one in results[name].items()]
    console.print("\n".join(texts), markup=False, highlight=False)
    files.write_json(out / "flamby.json", jax.tree.map(np.ndarray.tolist, results))
    files.write_file(out / "flamby.md", "\n".join(texts))
    files.write_file(out / "flamby.png", picture(results, theirs))
    console.print(f"{time.time() - start:.0f} s; written to {out}", markup=False)


def hospital_tables(file: Path, folder: Path) -> list[Path]:
    """A CSV file for each hospital, as FLamby prepares it: patients without missing values."""
    with np.load(file, allow_pickle=False) as arrays:
        # The last three findings are missing too often.
        x, y, hospital = arrays["x"][:, :10], arrays["y"], arrays["hospital"]
    known = ~np.isnan(x).any(axis=1)
    x, y, hospital = x[known], y[known], hospital[known]
    # Two findings are codes: a feature for each value but the first.
    codes = [x[:, column] == value for column in (2, 6) for value in np.unique(x[:, column])[1:]]
    x = np.concatenate([np.delete(x, [2, 6], axis=1), np.stack(codes, axis=1)], axis=1)
    found = []
    for place, site in enumerate(BENCHMARKS["heart"].sites):
        own, labels = x[hospital == place], y[hospital == place]
        strata = labels if np.bincount(labels, minlength=2).min() > 2 else None
        rows, _ = train_test_split(
            np.arange(len(own)), test_size=0.34, train_size=0.66, random_state=43, stratify=strata
        )
        # By the hospital's own rows for training.
        own = (own - own[rows].mean(axis=0)) / (own[rows].std(axis=0, ddof=1) + 1e-9)
        found.append(write_table(folder / f"{site}.csv", own, {"ill": labels}, np.asarray(rows)))
    return found


def random_tables(benchmark: Benchmark, folder: Path) -> list[Path]:
    """A CSV file of 30 rows for each site."""
    rng = np.random.default_rng(0)
    found = []
    for site in benchmark.sites:
        x, event = rng.normal(size=(30, 5)), rng.integers(0, 2, 30)
        times = {"T": rng.exponential(1000, 30), "E": event}
        y = times if benchmark.choices.event else {"ill": event}
        found.append(write_table(folder / f"{site}.csv", x, y, np.arange(20)))
    return found


def write_table(file: Path, x: np.ndarray, y: dict[str, np.ndarray], rows: np.ndarray) -> Path:
    """Writes features and targets, and which rows train."""
    split = np.where(np.isin(np.arange(len(x)), rows), "train", "test")
    names = [*(f"x{place}" for place in range(x.shape[1])), *y, "split"]
    lines = [",".join(map(str, line)) for line in zip(*x.T, *y.values(), split, strict=True)]
    files.make_directory(file.parent)
    files.write_file(file, "\n".join([",".join(names), *lines]))
    return file


def scores_of(name: str, row: str, out: Path) -> Rows:
    """Test scores by metric, of a row by site and of all patients together [S, C + 1]."""
    benchmark, protocol = BENCHMARKS[name], preset(f"flamby-{name}")
    algorithm = row.split(",")[0]
    options: dict[str, Any] = protocol.options_of(algorithm) | {"model": "flamby"}
    options |= benchmark.changes.get(algorithm, {}) | benchmark.variants.get(row, {})
    if algorithm in ("local", "pooled"):
        del options["momentum"], options["local_steps"]
        options |= {"optimizer": "adam", "rounds": 1, "local_epochs": benchmark.epochs}
    elif algorithm in ("pfedgat", "safe_graph"):
        options["val"] = 0.2  # of the rows for training
    options |= {"eval_every": options["rounds"], "data_dir": str(out / "data")}
    config = Config(**options, algorithm=algorithm, hyper=protocol.hyper.get(algorithm, {}))
    folder = out / "runs" / name / row.replace(", ", "-").replace(" ", "_")
    execute(config, folder, overwrite=True, draw=lambda *_: None)
    run = load(folder)
    order = [run.client_id(site) for site in benchmark.sites]
    first, *further = config.metric
    finals = {first: run.summary["final"]}
    finals |= {metric: run.summary.get("scores", {})[metric]["final"] for metric in further}
    found = {}
    for metric, final in finals.items():
        each = run.clients["deployed_test" + f"_{metric}" * (metric != first)][:, -1, order]
        together = [one["deployed"].get("pooled") for one in each_seed(final)]
        found[metric] = np.column_stack([each, np.array(together, float)])
    return found


def published_numbers(file: Path) -> Numbers:
    """FLamby's means and standard deviations."""
    with file.open(newline="") as stream:
        rows = [[*row.values()] for row in csv.DictReader(stream)]
    return {(row[0], row[1], row[2]): (float(row[3]), float(row[4])) for row in rows}


def published_row(benchmark: Benchmark, row: str, theirs: Numbers) -> list:
    """FLamby's numbers of one of our methods by site and together; None where it has none."""
    name = THEIRS.get(row, "")
    found = []
    for place in range(len(benchmark.sites)):
        # Of the models that each site has trained alone, that of the site itself.
        own = f"{name} {place}" if row == "local" else name
        found.append(theirs.get((benchmark.title, own, f"client_test_{place}")))
    # Its pooled hospitals are scaled by the means of all, which is another test set.
    other = benchmark.title == "fed_heart_disease"
    return [*found, None if other else theirs.get((benchmark.title, name, "Pooled Test"))]


def table(name: str, metric: str, rows: Rows, theirs: Numbers) -> str:
    """A Markdown table, in which ours are bold where they are not within two deviations."""
    benchmark = BENCHMARKS[name]
    titles = ["method", *benchmark.sites, "all together"]
    lines = [f"| {' | '.join(titles)} |", f"|---|{'--:|' * (len(titles) - 1)}"]
    near, count = 0, 0
    for row, scores in rows.items():
        cells = [mean_text(column, ".3f") for column in scores.T]
        others = published_row(benchmark, row, {} if metric == "auc" else theirs)
        for place, other in enumerate(others):
            if other is None:
                continue
            # The published numbers have four digits.
            within = abs(scores[:, place].mean() - other[0]) <= 2 * other[1] + 5e-5
            near, count = near + within, count + 1
            cells[place] = cells[place] if within else f"**{cells[place]}**"
        lines.append(f"| {row} | {' | '.join(cells)} |")
        if any(others):
            numbers = [f"{one[0]:.3f} ±{one[1]:.3f}" if one else "-" for one in others]
            lines.append(f"| *published* | {' | '.join(numbers)} |")
    said = f"\n{near} of {count} numbers are within two standard deviations.\n" if count else ""
    return "\n".join([f"## {benchmark.title}, {metric}\n", *lines, said])


def picture(results: dict[str, dict[str, Rows]], theirs: Numbers) -> bytes:
    """The scores of all patients together, ours and those of FLamby, with their deviations."""
    figure, panels = drawing.canvas(len(results), width=5.6, height=4.8)
    for panel, (name, by_metric) in zip(panels, results.items(), strict=True):
        metric, rows = next(iter(by_metric.items()))
        style: dict[str, Any] = {"fmt": "o", "capsize": 2}
        for place, (row, scores) in enumerate(rows.items()):
            ours, deviation = scores[:, -1].mean(), scores[:, -1].std(ddof=1)
            panel.errorbar(ours, place, xerr=deviation, color=drawing.COLOURS[0], **style)
            other = published_row(BENCHMARKS[name], row, theirs)[-1]
            if other:
                panel.errorbar(other[0], place + 0.25, xerr=other[1], color="0.5", **style)
        panel.set_yticks(range(len(rows)), list(rows))
        panel.invert_yaxis()
        panel.set(title=f"{BENCHMARKS[name].title} (grey: published)", xlabel=metric)
        panel.grid(alpha=0.25)
    return drawing.render(figure)


if __name__ == "__main__":
    command(main)
