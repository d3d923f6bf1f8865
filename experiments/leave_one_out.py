"""Does the graph rank a client's senders as leaving each of them out does?

`python -m experiments.leave_one_out [--datasets NAME ...] [--data-dir DIR] [--out DIR]`

For each data set and method the federation runs without each of its clients, for five seeds side by
side. The number is the rank correlation of the weights that a receiver gives its senders and of
what it gains by each of them, the mean over receivers; beside it stands how many pairs have a gain
whose 95 % interval excludes 0. Three data sets are embedded, of digits (`EMBEDDED`); others are
files NAME.npz with owners.
"""

import json
import math
import tempfile
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from experiments.command import command
from jaxfl import experiment
from jaxfl.experiment import Config, execute, leave_one_out
from jaxfl.experiment.pictures.drawing import canvas, colour_of, literal, render
from jaxfl.experiment.store import files
from jaxfl.experiment.studies.worth_tables import rank_correlation

DIGITS = {"clients": 8, "max_examples": 120, "test": "own", "test_fraction": 0.4}
EMBEDDED: dict[str, dict[str, Any]] = {
    # Two groups, of which one sees all digits turned by half a circle
    "rotated": DIGITS | {"partition": "iid", "concept": "rotation", "concept_groups": 2},
    # Two groups, of which one has the digits 0 to 4 and the other one 5 to 9
    "labels": DIGITS | {"partition": "pathological", "classes_per_client": 5},
    "dirichlet": DIGITS | {"partition": "dirichlet", "beta": 0.3},
}
OF_OWNERS = {"lr": 0.1, "test_fraction": 0.4}
METHODS = ("fedavg", "pfedgraph", "pfedgat", "fedamp", "measured_graph")
SMOKE = {"datasets": ("labels",), "methods": ("fedavg",), "seeds": 2, "rounds": 1}


def main(
    datasets: tuple[str, ...] = tuple(EMBEDDED),
    data_dir: str | None = None,
    methods: tuple[str, ...] = METHODS,
    seeds: int = 5,
    rounds: int = 20,
    out: Path = Path("runs/leave_one_out"),
) -> None:
    """Prints a table, and writes it as leave_one_out.json with the picture leave_one_out.png.

    Args:
      datasets: of `EMBEDDED`, or names of data sets with owners.
      data_dir: folder of NAME.npz files; the environment's JAXFL_DATA_DIR if not given.
      methods: names of the registry that have weights.
      seeds: of each run.
      rounds: likewise.
      out: directory to write.
    """
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, dict[str, float]]] = {}
    table = Table("data set", "clients", *methods)
    for dataset in datasets:
        options = EMBEDDED.get(dataset, OF_OWNERS | {"dataset": dataset, "data_dir": data_dir})
        found[dataset] = {}
        for method in methods:
            config = Config(
                algorithm=method,
                rounds=rounds,
                local_steps=20,
                seeds=seeds,
                score_after="none",
                **options,
            )
            found[dataset][method] = measure(config)
        cells = []
        for one in found[dataset].values():
            rank = "-" if math.isnan(one["rank"]) else f"{one['rank']:+.2f}"
            cells.append(f"{rank}, {one['clear']:.0f} of {one['pairs']:.0f}")
        table.add_row(dataset, f"{one['clients']:.0f}", *cells)
    Console(width=120).print(table)
    files.write_file(out / "leave_one_out.json", json.dumps(found))
    files.write_file(out / "leave_one_out.png", render(draw(found)))


def measure(config: Config) -> dict[str, float]:
    """The rank correlation of a run's graph with what leaving out says.

    Args:
      config: of the run.
    """
    with tempfile.TemporaryDirectory() as folder:
        execute(config, Path(folder) / "run")
        worth = leave_one_out(experiment.load(Path(folder) / "run"))
        results = [one for row in worth.results for one in row if math.isfinite(one.difference)]
        return {
            "rank": rank_correlation(worth),
            "clear": sum(one.low > 0 or one.high < 0 for one in results),
            "pairs": len(results),
            "clients": len(worth.results),
        }


def draw(found: dict[str, dict[str, dict[str, float]]]) -> Figure:
    """The rank correlations as bars, a group for each data set."""
    figure, (panel, *_) = canvas(1, width=7.5, height=3.2)
    methods = list(next(iter(found.values())))
    for place, method in enumerate(methods):
        values = [one[method]["rank"] for one in found.values()]
        places = [group + (place - len(methods) / 2) * 0.15 for group in range(len(found))]
        panel.bar(places, values, width=0.13, color=colour_of(method), label=literal(method))
    panel.axhline(0, color="0.4", linewidth=0.8)
    panel.set_xticks(range(len(found)), [literal(name) for name in found])
    panel.set_ylabel("rank correlation of weights and gains")
    panel.legend(frameon=False, fontsize=8, ncols=3)
    return figure


if __name__ == "__main__":
    command(main)
