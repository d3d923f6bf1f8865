"""A federation in a directory, of which the data of a cohort are read.

The examples of all clients lie one client after the other. A part ("train", "val" or "test") is a
folder of arrays:

- `x.npy` [N, *feature] and `y.npy` [N, *target]: the examples of all clients
- `offsets.npy` [C + 1]: client c has the rows offsets[c] to offsets[c + 1] - 1
- `weights.npy` [N], if the mask of the part has weights, which count as so many examples
- `example_weights.npy` [N], what the examples weigh in losses and scores, see `Dataset.weight`

The test part may be one set for all clients instead. It then has no `offsets.npy`, and its
`weights.npy` [C, N], if there is one, weighs the examples for each client. With `groups.npy` [N],
whole numbers from 0 to K - 1, `weights.npy` is [C, K], and an example weighs what its group does. A
part without a folder has no examples; "train" must be there. Nothing is pickled.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, cast, overload

import numpy as np
from jaxtyping import Array, Int

from jaxfl.core.errors import InputError
from jaxfl.core.types import Dataset, Federation, Pool

PARTS = ("train", "val", "test")


class Part(NamedTuple):
    """What the arrays of a part say without their examples."""

    # where its arrays lie; None for a part without examples
    folder: Path | None
    # [C + 1] first row of each client; None for one set of all clients
    offsets: Int[np.ndarray, "*c"] | None
    # examples of a client in the padded arrays, or of the one set
    longest: int
    # of one example
    feature: tuple[int, ...]
    target: tuple[int, ...]
    types: tuple[np.dtype, np.dtype]
    weighted: bool
    # K of one set whose examples have the weights of their groups, else None
    groups: int | None = None
    # whether examples weigh something else than 1 in losses and scores
    example_weights: bool = False

    def mapped(self, name: str) -> np.ndarray:
        """One of its arrays, mapped.

        Raises:
          InputError: the file cannot be read, or the part has no examples.
        """
        if self.folder is None:
            raise InputError(f"a part without examples has no {name}: give it a folder of arrays")
        return load_mapped(self.folder / f"{name}.npy")

    def rows_of_clients(self) -> Int[np.ndarray, "*c"]:
        """The offsets [C + 1].

        Raises:
          InputError: the part is one set of all clients.
        """
        if self.offsets is None:
            raise InputError("the part is one set of all clients: name one with offsets.npy")
        return self.offsets


@dataclass(frozen=True)
class StoredFederation:
    """A federation in a directory, see `open_federation`.

    Attributes:
      directory: where it lies.
      clients: C, the number of clients.
      parts: of "train", "val" and "test", where their examples lie.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> stored = jaxfl.on_disk.write_federation("ridge", federation)
      >>> stored.read(np.array([7, 9])).train.x.shape[0], stored.sizes.shape
      (2, (150,))
    """

    directory: Path
    clients: int
    parts: dict[str, Part]

    def read(self, ids: Int[Array, "m"] | np.ndarray) -> Federation:
        """The data of some clients as NumPy arrays [M, n, ...], in the order of the ids.

        All parts are padded to the largest client of the federation, so that the shapes are those
        of every other cohort of M clients.
        """
        train = self.read_part("train", ids)
        return Federation(train, self.read_part("val", ids), self.read_part("test", ids))

    @overload
    def read_part(
        self, name: Literal["train", "val"], ids: Int[Array, "m"] | np.ndarray
    ) -> Dataset: ...

    @overload
    def read_part(self, name: str, ids: Int[Array, "m"] | np.ndarray) -> Dataset | Pool: ...

    def read_part(self, name: str, ids: Int[Array, "m"] | np.ndarray) -> Dataset | Pool:
        """One part of the data of some clients, see `read`."""
        part = self.parts[name]
        ids = np.asarray(ids)
        if part.offsets is None:
            return self._pool(part, ids)
        shape = (ids.size, part.longest)
        x = np.zeros((*shape, *part.feature), part.types[0])
        y = np.zeros((*shape, *part.target), part.types[1])
        mask = np.zeros(shape, np.float32 if part.weighted else bool)
        own = np.zeros(shape, np.float32) if part.example_weights else None
        if part.folder is None:
            return _dataset(x, y, mask, own)
        # Mapped anew each time, because pages of a mapping count as memory of the process.
        all_x = part.mapped("x")
        all_y = part.mapped("y")
        weights = part.mapped("weights") if part.weighted else None
        all_own = part.mapped("example_weights") if part.example_weights else None
        for place, client in enumerate(ids):
            first = part.offsets[client]
            last = part.offsets[client + 1]
            count = last - first
            x[place, :count] = all_x[first:last]
            y[place, :count] = all_y[first:last]
            mask[place, :count] = True if weights is None else weights[first:last]
            if own is not None and all_own is not None:
                own[place, :count] = all_own[first:last]
        return _dataset(x, y, mask, own)

    def _pool(self, part: Part, ids: np.ndarray) -> Pool:
        x, y, groups = self._shared
        if part.weighted:
            weights = np.array(part.mapped("weights")[ids])
        else:
            weights = np.ones((ids.size, 1), np.float32)
        return Pool(cast(Array, x), cast(Array, y), cast(Array, weights), cast(Array, groups))

    @cached_property
    def _shared(self) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        test = self.parts["test"]
        groups = None
        if not test.weighted:
            groups = np.zeros(test.longest, np.int32)
        elif test.groups is not None:
            groups = np.array(test.mapped("groups"))
        return np.array(test.mapped("x")), np.array(test.mapped("y")), groups

    @cached_property
    def sizes(self) -> Int[np.ndarray, "*c"]:
        """Examples that each client owns, train and validation together [C]."""
        return self.count("train") + self.count("val")

    def mask(self, name: str) -> np.ndarray:
        """The mask of all clients in a part with offsets [C, n]."""
        part = self.parts[name]
        real = np.arange(part.longest) < np.diff(part.rows_of_clients())[:, None]
        if not part.weighted:
            return real
        mask = np.zeros(real.shape, np.float32)
        mask[real] = part.mapped("weights")
        return mask

    def count(self, name: str) -> Int[np.ndarray, "*c"]:
        """The number of examples of each client in a part with offsets [C]."""
        part = self.parts[name]
        if part.weighted:
            weights = np.array(part.mapped("weights"), np.float64)
            sums = np.concatenate([[0.0], np.cumsum(weights)])[part.rows_of_clients()]
            return np.round(np.diff(sums)).astype(np.int64)
        return np.diff(part.rows_of_clients())


def _dataset(x: np.ndarray, y: np.ndarray, mask: np.ndarray, weight: np.ndarray | None) -> Dataset:
    """Arrays on the host stand for those of JAX until they are placed on the devices."""
    return Dataset(x, y, cast(Array, mask), cast(Array | None, weight))


def load_mapped(path: Path) -> np.ndarray:
    """An array that is mapped, not read."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        # An empty array cannot be mapped.
        if isinstance(error, ValueError) and path.is_file():
            try:
                return np.load(path, allow_pickle=False)
            except (OSError, ValueError, EOFError):
                pass
        raise InputError(
            f"cannot read {path} ({error!r:.200}): write the directory again"
        ) from error
