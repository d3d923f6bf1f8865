"""Small random data in the formats of the real sets, with which a table is tried out in seconds.

A stand-in shows that a table runs; its numbers mean nothing.
"""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from experiments.tables import results
from experiments.tables.specification import Cell
from jaxfl.core.errors import check
from jaxfl.experiment import Config

# data set -> shape of an image, classes
IMAGES = {
    "cifar10": ((32, 32, 3), 10),
    "cifar100": ((32, 32, 3), 100),
    "fashion_mnist": ((28, 28, 1), 10),
    "mnist": ((28, 28, 1), 10),
    "svhn_cropped": ((32, 32, 3), 10),
}
WORDS = 50
USERS = 60


def write(name: str, folder: Path) -> None:
    """Writes the stand-in of a data set as `NAME.npz`.

    Raises:
      InputError: there is no stand-in for this set.
    """
    rng = np.random.default_rng(0)
    if name in IMAGES:
        shape, classes = IMAGES[name]
        arrays = {}
        # As many examples as the smallest client of a hundred needs for a batch or two.
        for part, each in (("train", 2400 // classes), ("test", 200 // classes)):
            labels = rng.permutation(np.repeat(np.arange(classes), each)).astype(np.int32)
            arrays[f"x_{part}"] = rng.integers(0, 256, (len(labels), *shape)).astype(np.uint8)
            arrays[f"y_{part}"] = labels
    elif name == "yahoo_answers":
        arrays = {"vocabulary": np.array([WORDS]), "words": np.arange(WORDS).astype(str)}
        for part, each in (("train", 60), ("test", 10)):
            labels = rng.permutation(np.repeat(np.arange(10), each)).astype(np.int32)
            arrays[f"x_{part}"] = rng.integers(1, WORDS, (len(labels), 20)).astype(np.int32)
            arrays[f"y_{part}"] = labels
    else:
        check(name.startswith("movielens"), f"there is no stand-in for the data set {name}")
        users = np.repeat(np.arange(USERS), 20)
        items = rng.integers(0, 30, users.size)
        pairs = np.stack([users, items], axis=1).astype(np.int32)
        stars = rng.integers(1, 6, users.size).astype(np.float32)
        arrays = {
            "x_train": pairs,
            "y_train": stars,
            "x_test": pairs[::10],
            "y_test": stars[::10],
            "vocabulary": np.array([USERS, 30]),
            "owners": users.astype(np.int32),
        }
    np.savez(folder / f"{name.replace('/', '-')}.npz", **arrays)


def small(config: Config, folder: Path) -> Config:
    """The run of a cell with a round or two of a step on the stand-in."""
    amount = {"local_steps": 1} if config.local_epochs is None else {"local_epochs": 1}
    return dataclasses.replace(
        config, data_dir=str(folder), rounds=2, max_examples=24, batch_size=8, **amount
    )


def smoke(cells: list[Cell], console: Console) -> None:
    """Runs cells on stand-ins; nothing is kept."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for dataset in {cell.config.dataset for cell in cells}:
            write(dataset, folder)
        names = set()
        for cell in cells:
            config = small(cell.config, folder)
            # A hundred clients take a minute to compile; six a node leave each node some.
            few = 6 * config.topology if config.partition == "nodes" else 10
            config = dataclasses.replace(config, clients=min(config.clients or few, few))
            file = results.file_of(config, folder)
            if file not in names:
                results.compute(config, folder / "results", folder / "runs", cell.rule)
                names.add(file)
            console.print(f"{cell.column.name}, {cell.row.name}: runs", highlight=False)
