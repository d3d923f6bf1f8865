"""The settings of the board, and their clients' examples as plain arrays."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.partitions import PARTITIONS, side_by_side
from jaxfl.core.errors import check, check_name
from jaxfl.experiment import Config, gather, resolve
from jaxfl.experiment.config.composite import typed
from jaxfl.experiment.session.gather import true_groups, unseen
from jaxfl.experiment.store import files

CLIENTS = 10
NOBODY = np.zeros(CLIENTS, bool)  # attacks
SEEDS = 3
# Of all settings. The data are scikit-learn's digits, which everybody has.
COMMON: dict[str, Any] = {
    "dataset": "digits",
    "clients": CLIENTS,
    "seeds": SEEDS,
    "unseen": 0.2,
    "test": "own",
    "test_fraction": 0.3,
    "model": "mlp",
    "rounds": 20,
    "local_steps": 50,
    "keep_models": "none",
}
SETTINGS = PARTITIONS


class Clients(NamedTuple):
    """Who is scored in a setting."""

    tests: np.ndarray  # [S, C] test examples
    unseen: np.ndarray  # [C] who takes part in no round
    groups: bool  # whether they are of groups


def config_of(setting: str, **options: Any) -> Config:
    """The options of a run in a setting.

    Raises:
      InputError: there is no such setting.
    """
    check_name("setting", setting, SETTINGS)
    return Config(**COMMON | SETTINGS[setting] | options)


def command_of(setting: str, method: str) -> str:
    """The command line of a run in a setting."""
    options = {name: str(value) for name, value in (COMMON | SETTINGS[setting]).items()}
    words = [f"{name} {value}" for name, value in typed(options).items()]
    return f"jaxfl run {method} {' '.join(words)} --out DIR"


@cache
def clients_of(setting: str) -> Clients:
    """The clients of a setting."""
    resolved = resolve(config_of(setting))
    test = gather(resolved).federation.test
    groups = groups_of(setting)[0] is not None
    return Clients(np.asarray(test.mask).sum(axis=2), unseen(resolved.config, NOBODY), groups)


@cache
def groups_of(setting: str) -> list[np.ndarray | None]:
    """The true group of each client [C], by seed; None where there are no groups."""
    resolved = resolve(config_of(setting))
    return [true_groups(resolved.config, resolved.source, seed) for seed in range(SEEDS)]


def file_of(setting: str, seed: int) -> str:
    """The name of the file of a setting and seed."""
    return f"{setting.replace(' ', '_')}_{seed}.npz"


def write_data(setting: str, out: Path) -> list[Path]:
    """Writes what the clients of a setting train and are tested on, an npz file for each seed.

    Arrays: train_x, val_x, test_x [C, n, 8, 8, 1] of numbers from 0 to 16, train_y and so on
    [C, n], train_mask and so on [C, n] (which rows are examples), unseen [C].

    Returns:
      The files.

    Raises:
      InputError: there is no such setting, or a file is there already.
    """
    resolved = resolve(config_of(setting))
    federation = side_by_side([gather(resolved).federation])
    paths = [out / file_of(setting, seed) for seed in range(SEEDS)]
    taken = [path for path in paths if path.exists()]
    names = ", ".join(path.name for path in taken)
    check(not taken, f"{out} has {names} there already: give another --out, or remove them")
    files.make_directory(out)
    for seed, path in enumerate(paths):
        arrays = {
            f"{part}_{name}": np.asarray(array[seed])
            for part, data in federation._asdict().items()
            for name, array in data._asdict().items()
            if array is not None
        }
        files.write_npz(path, arrays | {"unseen": unseen(resolved.config, NOBODY)})
    return paths
