"""`graph.npz` of a finished run, of which only what is asked for is read."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import check
from jaxfl.experiment.store import npz
from jaxfl.experiment.store.files import read_arrays

FILE = "graph.npz"
WEIGHTS = "weights"  # their name, or its beginning where parts of the model have their own


class GraphFile(NamedTuple):
    """The mixing weights of a finished run, those of the first seed."""

    file: Path
    names: list[str]  # of the weights
    ids: np.ndarray  # [T, M] clients of the rows and columns
    rounds: np.ndarray  # [T] numbers of the rounds, from 1
    axes: int  # of the arrays before [M, M]: those of the seeds and of the rounds

    def weights(self, name: str, places: Sequence[int]) -> Iterator[np.ndarray]:
        """The weights [M, M] of some rounds, one after the other.

        Args:
          name: of the weights.
          places: of the rounds among those of the file, in ascending order.
        """
        return npz.read_parts(self.file, name, places, axes=self.axes)


def open_graph(run: Path) -> GraphFile | None:
    """The file of a finished run; None if it has none.

    Raises:
      InputError: it is damaged.
    """
    file = run / FILE
    if not file.exists():
        return None
    shapes = npz.read_shapes(file)
    names = [name for name in shapes if name.startswith(WEIGHTS)]
    arrays = read_arrays(file, "ids") | read_arrays(file, "rounds")
    ids = arrays.get("ids", np.zeros(0))
    expected = (*ids.shape, *ids.shape[-1:])
    rounds = arrays.get("rounds", np.arange(1, 1 + ids.shape[-2] if ids.ndim > 1 else 1))
    check(
        ids.ndim in (2, 3)
        and ids.size > 0
        and ids.dtype.kind in "iu"
        and rounds.shape == ids.shape[-2:-1]
        and rounds.dtype.kind in "iu"
        and all(shapes[name][0] == expected and shapes[name][1].kind == "f" for name in names),
        f"{file} does not hold the weights of the run: run again",
    )
    return GraphFile(file, names, ids if ids.ndim == 2 else ids[0], rounds, ids.ndim - 1)
