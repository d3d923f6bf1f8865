"""The states of the clients in a file: a row for each client that has taken part.

The state of a run is then small: `State(places [C, 2], server)`, where the places say in which row
of the file each client's state lies and by which round it was written. A state that is protected
stays readable however many rounds follow: later rounds write its clients into other rows. This is
what checkpoints need.
"""

import json
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int, PyTree

from jaxfl.core.errors import InputError, check
from jaxfl.core.file_locks import open_in_place
from jaxfl.core.types import Algorithm, PRNGKey, State
from jaxfl.simulation.on_disk.federation import StoredFederation
from jaxfl.simulation.on_disk.initial import First, initial_state

ROWS = "clients.bin"
LAYOUT = "layout.json"
# A row begins with the id of its client and the number of rounds done when it was written.
HEAD = np.dtype([("client", "<i4"), ("round", "<i4")])
# The file grows by so many rows at least.
MORE = 256


@contextmanager
def using(file: Path) -> Iterator[None]:
    """Within, an error of the system is an `InputError`: a file that is gone, or a full disk."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot use the clients' states in {file} ({error.strerror or error}): they must stay "
            "there while the run is under way, free or choose another place"
        ) from error


class Leaf(NamedTuple):
    """An array of a client's state within the bytes of a row."""

    begin: int
    end: int
    shape: tuple[int, ...]
    dtype: np.dtype


class ClientStates:
    """The file of the clients' states.

    One thread at a time may use it.

    Attributes:
      first: the states before the first round.
      row_bytes: what the state of a client takes in the file.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> stored = jaxfl.on_disk.write_federation("its-data", federation)
      >>> algorithm = jaxfl.algorithms.local(jaxfl.regression(jaxfl.models.linear(), np.zeros(3)))
      >>> first = jaxfl.on_disk.initial.initial_state(algorithm, jax.random.key(0), stored)
      >>> clients = ClientStates("its-states", first)
      >>> state = clients.start()
      >>> ids = np.array([7, 9])
      >>> models = clients.read(state.clients, ids)
      >>> clients.write(state.clients, ids, models, 1)
      >>> state.clients[ids].tolist()
      [[0, 1], [1, 1]]
    """

    def __init__(self, directory: Path | str, first: First, *, keep: int = 2, resume: bool = False):
        """Opens the file in a directory, or makes a new one in place of one that is there.

        Args:
          directory: of the file.
          first: the states before the first round, `initial_state` of the algorithm.
          keep: how many protected states stay readable, the newest ones.
          resume: go on with the file that is there.

        Raises:
          InputError: there is no file to go on with, or it is of another method or model.
        """
        self.first = first
        self._directory = Path(directory)
        self._file = self._directory / ROWS
        leaves, self._structure = jax.tree.flatten(first.row)
        self._leaves: list[Leaf] = []
        end = HEAD.itemsize
        for leaf in leaves:
            size = int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize
            self._leaves.append(Leaf(end, end + size, leaf.shape, np.dtype(leaf.dtype)))
            end += size
        self.row_bytes = end
        # A new file is made when its first row is written.
        self._exists = resume
        if resume:
            self._check_layout()
        # Rows of an earlier process are not used again before `keep` new states are protected.
        self._end = self._capacity()
        self._protected = deque([np.arange(self._end)], maxlen=keep)
        self._is_protected = np.ones(self._end, bool)
        self._free: list[int] = []

    def start(self) -> State:
        """The state before the first round: no client has a row."""
        return State(np.full((self.first.clients, 2), -1, np.int32), self.first.server)

    def first_of(self, places: Int[np.ndarray, "c 2"], ids: Int[np.ndarray, "m"]) -> PyTree:
        """The states [M, ...] before their first round; None if all of the clients have rows.

        Args:
          places: `clients` of the state.
          ids: of the clients.
        """
        return None if (places[ids, 0] >= 0).all() else self.first.rows(ids)

    def read(
        self, places: Int[np.ndarray, "c 2"], ids: Int[np.ndarray, "m"], first: PyTree = None
    ) -> PyTree:
        """The states of some clients [M, ...] as NumPy arrays.

        Args:
          places: `clients` of the state.
          ids: of the clients.
          first: `first_of` these clients, if it is known; it is changed.

        Raises:
          InputError: the row of a client was written over since, or the file is damaged or gone.
        """
        places = np.asarray(places)[ids]
        mask = places[:, 0] >= 0
        leaves = self._read_rows(places[mask], ids[mask])
        if mask.all():
            return jax.tree.unflatten(self._structure, leaves)
        others = jax.tree.leaves(self.first.rows(ids) if first is None else first)
        for leaf, rows in zip(others, leaves, strict=True):
            leaf[mask] = rows
        return jax.tree.unflatten(self._structure, others)

    def _read_rows(self, places: np.ndarray, ids: np.ndarray) -> list[np.ndarray]:
        """The leaves of clients that have rows."""
        rows = np.empty((ids.size, self.row_bytes), np.uint8)
        if ids.size:
            slots = places[:, 0]
            check(
                slots.max() < self._capacity(),
                f"{self._file} has {self._capacity()} rows, the state names row {slots.max()}: "
                "the file was cut or belongs to another run, run anew",
            )
            with using(self._file), self._file.open("rb") as file:
                for slot, row in zip(slots.tolist(), rows, strict=True):
                    file.seek(slot * self.row_bytes)
                    check(
                        file.readinto(row.data) == self.row_bytes,
                        f"{self._file} ends within row {slot}: the file was cut, run anew",
                    )
        heads = np.ascontiguousarray(rows[:, : HEAD.itemsize]).view(HEAD)[:, 0]
        wrong = (heads["client"] != ids) | (heads["round"] != places[:, 1])
        check(
            not wrong.any(),
            f"{self._file} holds a newer state of client {ids[wrong][:1]} than was asked for: only "
            "the newest state and protected ones can be read",
        )
        return [
            np.ascontiguousarray(rows[:, leaf.begin : leaf.end])
            .view(leaf.dtype)
            .reshape(ids.size, *leaf.shape)
            for leaf in self._leaves
        ]

    def write(
        self,
        places: Int[np.ndarray, "c 2"],
        ids: Int[np.ndarray, "m"],
        clients: PyTree,
        count: int,
    ) -> None:
        """Writes the states of some clients, and their new places into `places`.

        Args:
          places: `clients` of the state, a NumPy array that is changed.
          ids: of the clients.
          clients: their states [M, ...].
          count: the number of rounds done.
        """
        if not self._exists:
            self._create()
        slots = np.array([self._slot(int(slot)) for slot in places[ids, 0]], np.int64)
        if self._end > self._capacity():
            with using(self._file), open_in_place(self._file, "rb+") as file:
                file.truncate((self._end + max(MORE, self._end // 4)) * self.row_bytes)
        heads = np.zeros(ids.size, HEAD)
        heads["client"] = ids
        heads["round"] = count
        rows = np.empty((ids.size, self.row_bytes), np.uint8)
        rows[:, : HEAD.itemsize] = heads[:, None].view(np.uint8)
        for leaf, values in zip(self._leaves, jax.tree.leaves(clients), strict=True):
            flat = np.ascontiguousarray(values).reshape(ids.size, -1)
            rows[:, leaf.begin : leaf.end] = flat.view(np.uint8)
        # Not through a mapping: its pages are made one by one, which takes longer than the copies.
        with using(self._file), open_in_place(self._file, "rb+") as file:
            for slot, row in zip(slots.tolist(), rows, strict=True):
                file.seek(slot * self.row_bytes)
                file.write(row.data)
        places[ids, 0] = slots
        places[ids, 1] = count

    def _slot(self, old: int) -> int:
        """Where to write a client whose newest row is `old`, -1 if it has none."""
        if old >= 0 and not (old < self._is_protected.size and self._is_protected[old]):
            return old
        if self._free:
            return self._free.pop()
        self._end += 1
        return self._end - 1

    def protect(self, state: State) -> None:
        """Keeps a state readable until `keep` later states are protected.

        All rows of it are on the disk when the function returns, so that a checkpoint of the state
        may be written then.

        Args:
          state: the newest one.
        """
        if self._exists:
            with using(self._file), open_in_place(self._file, "rb+") as file:
                os.fsync(file.fileno())
        slots = np.asarray(state.clients)[:, 0]
        self._protected.append(slots[slots >= 0])
        self._is_protected = np.zeros(self._end, bool)
        for rows in self._protected:
            self._is_protected[rows] = True
        # The last one first, so that the rows are taken in their order.
        self._free = np.flatnonzero(~self._is_protected)[::-1].tolist()

    def _capacity(self) -> int:
        if not self._exists:
            return 0
        with using(self._file):
            return self._file.stat().st_size // self.row_bytes

    def _layout(self) -> dict:
        """What the bytes of a row are, as JSON."""
        leaves = [[leaf.begin, list(leaf.shape), str(leaf.dtype)] for leaf in self._leaves]
        return {"clients": self.first.clients, "bytes": self.row_bytes, "leaves": leaves}

    def _create(self) -> None:
        with using(self._file):
            self._directory.mkdir(parents=True, exist_ok=True)
            open_in_place(self._file, "wb").close()
            with open_in_place(self._directory / LAYOUT, "w") as file:
                json.dump(self._layout(), file, indent=1)
        self._exists = True

    def _check_layout(self) -> None:
        path = self._directory / LAYOUT
        try:
            layout = json.loads(path.read_text())
            self._file.stat()
        except (OSError, ValueError) as error:
            raise InputError(
                f"cannot read the clients' states in {self._directory} ({error!r:.200}): run anew"
            ) from error
        check(
            layout == json.loads(json.dumps(self._layout())),
            f"{path} names other arrays than the clients of this method and model have: go on with "
            "the method, model and number of clients of before, or run anew",
        )


def open_clients(
    directory: Path | str,
    algorithm: Algorithm,
    key: PRNGKey,
    federation: StoredFederation,
    *,
    keep: int = 2,
    resume: bool = False,
) -> tuple[ClientStates, State]:
    """The file of the clients' states in a directory, and the state before the first round.

    A client gets a row in the file when it first takes part. The state is small: its `clients` say
    where each client's row is [C, 2]. Before a checkpoint of it, call `protect`:

        clients.protect(state)
        jaxfl.simulation.checkpoint.save(path, round, state)

    After the process has ended, go on with `resume=True` and `checkpoint.restore(path, like)`,
    where `like` is the state that this function returns.

    Args:
      directory: of the file.
      algorithm: has `init`.
      key: for it.
      federation: the data of all clients.
      keep: how many protected states stay readable, the newest ones.
      resume: go on with the file that is there; otherwise a new one takes its place.

    Raises:
      InputError: there is no such file, it is of another method or model, or the first states of
        the method's clients depend on all clients at once and do not fit into memory.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> stored = jaxfl.on_disk.write_federation("my-data", federation)
      >>> algorithm = jaxfl.algorithms.local(jaxfl.regression(jaxfl.models.linear(), np.zeros(3)))
      >>> clients, state = open_clients("my-states", algorithm, jax.random.key(0), stored)
      >>> state.clients.shape, state.clients[0].tolist()
      ((150, 2), [-1, -1])
    """
    clients = ClientStates(
        directory, initial_state(algorithm, key, federation), keep=keep, resume=resume
    )
    return clients, clients.start()


def check_places(places: Array | np.ndarray, clients: int) -> None:
    """Raises an `InputError` unless these are the places of so many clients [C, 2]."""
    shape = np.shape(places)
    check(
        shape == (clients, 2),
        f"the state has places of shape {shape}: expected ({clients}, 2), the state of "
        "jaxfl.simulation.on_disk for this federation",
    )
