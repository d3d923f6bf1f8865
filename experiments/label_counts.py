"""Who holds what: the examples of each label at each of ten clients (pFedGAT, figure 2).

`python -m experiments.label_counts [--dataset cifar10] [--data-dir DIR] [--out DIR]` draws the
clients of four partitions: pathological, IID, and Dirichlet distributions with beta .1 and .5, as
the presets of pFedGAT's tables have them.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from rich.console import Console
from rich.table import Table

from experiments.command import command
from jaxfl.data import iid, load, niid_bench_dirichlet, pathological
from jaxfl.data.federate import label_counts
from jaxfl.experiment.pictures import drawing
from jaxfl.experiment.store import files

CLIENTS = 10
PARTITIONS = {
    "pathological": lambda labels, seed: pathological(labels, CLIENTS, seed),
    "IID": lambda labels, seed: iid(labels, CLIENTS, seed),
    "Dirichlet 0.1": lambda labels, seed: niid_bench_dirichlet(labels, CLIENTS, seed, beta=0.1),
    "Dirichlet 0.5": lambda labels, seed: niid_bench_dirichlet(labels, CLIENTS, seed, beta=0.5),
}
SMOKE = {"dataset": "digits"}


def main(
    out: Path = Path("runs/label_counts"),
    dataset: str = "cifar10",
    data_dir: str | None = None,
    seed: int = 0,
) -> None:
    """Divides the data, writes the picture and the counts, prints a line for each partition.

    Args:
      out: directory to write.
      dataset: with ten labels.
      data_dir: folder of the data; that of JAXFL_DATA_DIR if not given.
      seed: of the partitions.
    """
    source = load(dataset, data_dir)
    counts = {
        name: label_counts(source, divide(source.y_train, seed))
        for name, divide in PARTITIONS.items()
    }
    figure, panels = drawing.canvas(len(counts), width=3.6, height=3.6)
    for panel, (name, matrix) in zip(panels, counts.items(), strict=True):
        draw(panel, name, matrix)
    files.make_directory(out)
    files.write_file(out / "label_counts.png", drawing.render(figure))
    files.write_json(out / "label_counts.json", {k: v.tolist() for k, v in counts.items()})
    table = Table("partition", "labels a client", "examples a client")
    for name, matrix in counts.items():
        sizes = matrix.sum(axis=1)
        labels = (matrix > 0).sum(axis=1)
        table.add_row(name, f"{labels.min()} to {labels.max()}", f"{sizes.min()} to {sizes.max()}")
    Console().print(table)


def draw(panel: Axes, name: str, counts: np.ndarray) -> None:
    """A disc for each label of each client; its area stands for the number of examples.

    Args:
      panel: where.
      name: of the partition.
      counts: [clients, labels].
    """
    client, label = np.nonzero(counts)
    count = counts[client, label]
    panel.scatter(client, label, s=250 * count / counts.max(), color=drawing.COLOURS[0])
    panel.set(title=name, xlabel="client", ylabel="label")
    panel.set_xticks(range(counts.shape[0]))
    panel.set_yticks(range(counts.shape[1]))


if __name__ == "__main__":
    command(main)
