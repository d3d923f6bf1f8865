"""The examples of a client of a finished run, from the data set of the run."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.ragged import is_ragged
from jaxfl.core.types import Dataset, Federation, Pool
from jaxfl.experiment.config import Config
from jaxfl.experiment.session.gather import Data
from jaxfl.experiment.store.files import INPUTS
from jaxfl.experiment.store.read_records import read_digests


class Examples(NamedTuple):
    """Examples of a client, as NumPy arrays."""

    x: Any  # [n, ...], or a dict of arrays
    y: np.ndarray  # [n, ...]
    mask: np.ndarray  # [n], the weight of each example


# Of a client among all: its id, behind the place of its seed if there are several.
Place = tuple[int, ...]


def check_data(data: Data, directory: Path, config: Config) -> None:
    """Checks that the data are those of a run, and at hand.

    Args:
      data: of the clients now.
      directory: of the run.
      config: of the run.

    Raises:
      InputError: the data set has changed, or the clients lie on disk.
    """
    digests = read_digests(directory / INPUTS)["data"]
    check(
        data.digest in digests,
        f"the data set {config.dataset} is not what it was in the run of {directory}: the "
        "examples of its clients are not known",
    )
    check(
        data.stored is None,
        f"the clients of {directory} are on disk: read {config.store} with "
        "jaxfl.simulation.on_disk.open_federation",
    )


@checked
def examples_of(
    federation: Federation, part: Literal["train", "val", "test"], place: Place
) -> Examples:
    """The examples that train, validate or test a client.

    Returns:
      NumPy arrays x [n, ...], y [n] and mask [n], the weight of each example.
    """
    data: Dataset | Pool = getattr(federation, part)
    if not isinstance(data, Pool):
        return _those_that_count(tree.at(data.x, place), data.y[place], data.weights[place])
    shared = place[:-1]
    x, y, weight = tree.at(data.x, shared), data.y[shared], data.mask[place]
    if data.groups is not None:
        weight = weight[data.groups[shared]]
    return _those_that_count(x, y, weight)


def _those_that_count(x: Any, y: Any, weight: Any) -> Examples:
    """NumPy arrays of the examples whose weight is above 0."""
    counts = np.asarray(weight) > 0

    def counting(array: Any) -> np.ndarray:
        return np.asarray(array)[counts]

    return Examples(*jax.tree.map(counting, (x, y, weight), is_leaf=is_ragged))
