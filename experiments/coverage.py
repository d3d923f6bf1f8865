"""Do sets hold the truth at each site? Three ways to calibrate them, over many splits.

`python -m experiments.coverage [--data-dir DIR] [--splits 100]`: four hospitals, and digits that
half of the clients see rotated. Each seed divides the examples anew. For FedAvg, pFedGraph and
local training the table has the coverage of each client and the size of its sets, calibrated on the
client's own validation examples, on those of all clients, and on these by the weights of the graph.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.command import command
from experiments.seeds import mean_text
from jaxfl import experiment
from jaxfl.experiment import execute
from jaxfl.experiment.reading.conformal import CALIBRATIONS, calibrate

ALPHA = 0.1
SETTINGS: dict[str, dict[str, Any]] = {
    "four hospitals": {"dataset": "heart_disease", "rounds": 20, "lr": 0.1, "local_steps": 20},
    "digits, half rotated": {
        "partition": "iid",
        "clients": 6,
        "concept": "rotation",
        "max_examples": 120,
        "rounds": 10,
        "local_steps": 50,
    },
}
METHODS = ("fedavg", "pfedgraph", "local")


def main(data_dir: str | None = None, splits: int = 100) -> None:
    """Coverage and size of sets of 90 % by site.

    Args:
      data_dir: folder of NAME.npz files; the environment's JAXFL_DATA_DIR if not given.
      splits: of the examples.
    """
    console = Console(width=150)
    for name, options in SETTINGS.items():
        table = Table("method", "client", "validation", *CALIBRATIONS, title=name)
        for method in METHODS:
            with tempfile.TemporaryDirectory() as folder:
                config = experiment.Config(
                    algorithm=method,
                    seeds=splits,
                    score_after="none",
                    data_dir=data_dir,
                    **options,
                )
                out = Path(folder) / "run"
                execute(config, out)
                for row in rows_of(experiment.load(out), splits):
                    table.add_row(method, *row)
        console.print(table)


def rows_of(run: experiment.FinishedRun, splits: int) -> list[list[str]]:
    """A row for each client: coverage in percent and size, means and deviations over the splits."""
    clients = range(run.config.clients or 0)
    found = [calibrate(run, seed=run.config.seed + split) for split in range(splits)]
    rows = []
    for client in clients:
        cells = [run.names[client] if run.names else str(client)]
        cells.append(f"{np.mean([len(one.scores[client]) for one in found]):.0f}")
        for way in CALIBRATIONS:
            each = [one.coverage(client, way, ALPHA) for one in found]
            covered = mean_text([100 * one.covered for one in each])
            cells.append(f"{covered} %, {np.mean([one.size for one in each]):.2f}")
        rows.append(cells)
    return rows


if __name__ == "__main__":
    command(main)
