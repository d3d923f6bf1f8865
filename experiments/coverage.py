"""Do sets hold the truth at each client? Three ways to calibrate them, over many splits.

`python -m experiments.coverage [--datasets NAME ...] [--data-dir DIR] [--splits 100] [--out DIR]`

Each split divides the examples of the clients anew. A table for each data set has of each client
how often its sets of 90 % hold the truth of its test examples, and how large they are: calibrated
on its own validation examples, on those of all clients, and on these by the weights of the graph.
The data set `rotated` is embedded: digits, which half of the clients see turned by half a circle.
Others are files NAME.npz with owners, such as `heart_disease`.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from experiments.command import command
from experiments.seeds import mean_text
from jaxfl import experiment
from jaxfl.experiment import Config, execute
from jaxfl.experiment.pictures.drawing import canvas, literal, render
from jaxfl.experiment.reading.conformal import CALIBRATIONS, calibrate
from jaxfl.experiment.store import files

ALPHA = 0.1
ROTATED = {
    "partition": "iid",
    "clients": 6,
    "concept": "rotation",
    "concept_groups": 2,
    "max_examples": 150,
    "test": "own",
    "test_fraction": 0.4,
}
OF_OWNERS = {"lr": 0.1, "local_steps": 20, "test_fraction": 0.4}
METHODS = ("local", "fedavg", "pfedgraph")
COLOURS = ("#000000", "#D55E00", "#0072B2")
SMOKE = {"splits": 2, "methods": ("fedavg",), "rounds": 1}

# dataset -> method -> client -> way -> its coverage and the size of its sets, by split
Found = dict[str, dict[str, dict[str, dict[str, dict[str, list[float]]]]]]


def main(
    datasets: tuple[str, ...] = ("rotated",),
    data_dir: str | None = None,
    splits: int = 100,
    rounds: int = 10,
    methods: tuple[str, ...] = METHODS,
    out: Path = Path("runs/coverage"),
) -> None:
    """Prints the tables, and writes them as coverage.json with the picture coverage.png.

    Args:
      datasets: `rotated`, or names of data sets with owners.
      data_dir: folder of NAME.npz files; the environment's JAXFL_DATA_DIR if not given.
      splits: of the examples of each client.
      rounds: of each run.
      methods: names of the registry.
      out: directory to write.
    """
    console = Console(width=110)
    out.mkdir(parents=True, exist_ok=True)
    found: Found = {}
    for dataset in datasets:
        options: dict[str, Any] = ROTATED
        if dataset != "rotated":
            options = OF_OWNERS | {"dataset": dataset, "data_dir": data_dir}
        found[dataset] = {}
        for method in methods:
            config = Config(
                algorithm=method, rounds=rounds, seeds=splits, score_after="none", **options
            )
            found[dataset][method] = coverages(config)
        console.print(table_of(dataset, found[dataset]))
    files.write_file(out / "coverage.json", json.dumps(found))
    files.write_file(out / "coverage.png", render(draw(found)))
    console.print(f"written to {out}", markup=False)


def coverages(config: Config) -> dict[str, dict[str, dict[str, list[float]]]]:
    """By client and way of calibration the coverage of each split, and the size of its sets.

    Args:
      config: of the run, whose seeds are the splits.
    """
    with tempfile.TemporaryDirectory() as folder:
        execute(config, Path(folder) / "run")
        run = experiment.load(Path(folder) / "run")
        seeds = range(config.seed, config.seed + config.seeds)
        each = [calibrate(run, seed=seed) for seed in seeds]
        names = run.names or [str(client) for client in range(run.config.clients or 0)]
        found = {}
        for client, name in enumerate(names):
            found[name] = {"validation": {"examples": [len(one.scores[client]) for one in each]}}
            for way in CALIBRATIONS:
                sets = [one.coverage(client, way, ALPHA) for one in each]
                found[name][way] = {
                    "covered": [100 * one.covered for one in sets],
                    "size": [one.size for one in sets],
                }
    return found


def table_of(dataset: str, methods: dict[str, dict[str, Any]]) -> Table:
    """The mean coverage in % and its deviation over the splits, and the mean size."""
    title = f"{dataset}: coverage in % (90 is wanted), labels in a set"
    table = Table("method", "client", "validation", *CALIBRATIONS, title=title)
    for method, clients in methods.items():
        for client, found in clients.items():
            cells = [
                f"{mean_text(found[way]['covered'])}, {np.mean(found[way]['size']):.2f}"
                for way in CALIBRATIONS
            ]
            examples = f"{np.mean(found['validation']['examples']):.0f}"
            table.add_row(method, client, examples, *cells)
    return table


def draw(found: Found) -> Figure:
    """The mean coverage of each client by the three ways, and its deviation over the splits."""
    columns = max(map(len, found.values()))
    figure, panels = canvas(columns, width=3.8, height=2.4, rows=len(found))
    for row, (dataset, methods) in enumerate(found.items()):
        for column, (method, clients) in enumerate(methods.items()):
            panel = panels[row * columns + column]
            for place, (way, colour) in enumerate(zip(CALIBRATIONS, COLOURS, strict=True)):
                covered = [np.array(one[way]["covered"]) for one in clients.values()]
                panel.errorbar(
                    np.arange(len(clients)) + 0.2 * (place - 1),
                    [one.mean() for one in covered],
                    yerr=[one.std() for one in covered],
                    fmt="o",
                    markersize=4,
                    color=colour,
                    label=way,
                )
            panel.axhline(100 * (1 - ALPHA), color="0.6", linewidth=0.8)
            panel.set_ylim(74, 102)
            panel.set_title(literal(f"{dataset}, {method}"), fontsize=9)
            panel.set_xticks(range(len(clients)), [literal(one) for one in clients], fontsize=7)
    panels[0].set_ylabel("coverage in %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, ncols=3, loc="outside lower center")
    return figure


if __name__ == "__main__":
    command(main)
