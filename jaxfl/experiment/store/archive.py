"""The rounds of a run on disk, in pieces that are written once and never changed.

The mixing weights [T, M, M] of a long run would fill the memory, and checkpoints that hold them
would write each round again and again. So a run writes what it keeps of its rounds in pieces,
`rounds/FIRST.npz`, and a checkpoint has only a digest of the pieces before it.
"""

import hashlib
import itertools
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Literal

import numpy as np

from jaxfl.core.errors import warn
from jaxfl.core.options import checked
from jaxfl.experiment.store import files, npz
from jaxfl.experiment.store.npz import Member

Keep = int | Literal["auto", "all", "last"]
MOST_BYTES = 2 * 2**30  # of weights in graph.npz under `auto`
PIECE = 16 * 2**20  # bytes of weights in memory that make a piece
QUICK = 1  # the level of compression, of which weights ask no higher one
IDS = "ids"
LINES = "lines"
KEPT = "rounds"
FIRST = "0/"  # before the names of the weights of the first seed


@checked
def interval(keep: Keep, rounds: int, size: int) -> int:
    """The weights of every so many rounds are kept, beside those of the last round.

    Under `auto` it is a power of two. So a run that goes on to more rounds has kept those that it
    would have kept if it had been so long from the beginning.

    Args:
      keep: the option `--keep weights`.
      rounds: of the whole run.
      size: bytes of the weights of a round, of all parts and seeds.

    Example:
      >>> megabytes = 4 * 1000 * 1000  # of a thousand clients
      >>> interval("auto", 500, megabytes), interval("auto", 2000, megabytes)
      (1, 4)
    """
    if isinstance(keep, int):
        return keep
    if keep == "all":
        return 1
    if keep == "last":
        return rounds
    every = 1
    while every < rounds and -(-rounds // every) * size > MOST_BYTES:
        every *= 2
    return every


class Archive:
    """What a run has kept of its rounds: on disk, and in memory what the next piece will hold."""

    def __init__(self, folder: Path, keep: Keep, rounds: int):
        """Of a run before round 0.

        Args:
          folder: of the pieces.
          keep: the option `--keep weights`.
          rounds: of the whole run.
        """
        self.folder, self.rounds = folder, rounds
        self.keep: Keep = keep
        self.done = 0  # rounds that the pieces on disk cover
        self.pieces: dict[Path, list[int]] = {}  # on disk, and the rounds whose weights they hold
        self.digest = hashlib.sha256()  # of the pieces' bytes, one piece after the other
        # name -> shape and type of the weights of a round [M, M]; known with the first weights
        self.matrices: dict[str, tuple[tuple[int, ...], np.dtype]] = {}
        self.every = 1  # see `interval`; likewise
        self.size = 0  # bytes of the weights of a round, of all parts and seeds; likewise
        self.told = False  # whether it was said what is left out
        self._clear()

    def _clear(self) -> None:
        """Forgets what is in memory."""
        self.ahead = self.done  # rounds that disk and memory cover
        self.arrays: dict[str, list[np.ndarray]] = {}
        self.weights: dict[str, list[np.ndarray]] = {}  # [S, n, M, M], or one row [S, n, 1, M]
        self.kept: list[int] = []  # the rounds of these weights

    def add(
        self, number: int, arrays: dict[str, np.ndarray], weights: dict[str, np.ndarray]
    ) -> None:
        """Takes in a segment of rounds.

        Args:
          number: of its last round, from 1.
          arrays: to be kept: `ids` [S, L, M], `lines` [E], and others [S, E, ...].
          weights: by name, [S, L, M, M]. Those that `--keep weights` leaves out are not kept.
        """
        for name, array in arrays.items():
            self.arrays.setdefault(name, []).append(array)
        numbers = range(self.ahead + 1, number + 1)
        self.ahead = number
        if not weights:
            return
        if not self.matrices:
            self._learn({name: (w.shape[2:], w.dtype) for name, w in weights.items()}, arrays[IDS])
        self._tell()
        places = [place for place, one in enumerate(numbers) if self._keeps(one)]
        self.kept += [numbers[place] for place in places]
        for name, segment in weights.items():
            part = segment if len(places) == len(numbers) else segment[:, places]
            self.weights.setdefault(name, []).append(without_equal_rows(part))
        if sum(part.nbytes for parts in self.weights.values() for part in parts) >= PIECE:
            self.write()

    def write(self) -> None:
        """Writes what is in memory as a piece."""
        if self.ahead == self.done:
            return
        files.make_directory(self.folder)
        file = self.folder / f"{self.done + 1:06}.npz"
        members = {KEPT: npz.whole(np.array(self.kept, np.int32))}
        for name, parts in self.arrays.items():
            members[name] = npz.whole(np.concatenate(parts, axis=0 if name == LINES else 1))
        for name, parts in self.weights.items():
            for seed in range(len(parts[0])):
                members[_member(name, seed)] = _stack([part[seed] for part in parts])
        npz.write_parts(file, members, level=QUICK)
        _update(self.digest, file)
        self.pieces[file] = self.kept
        self.done = self.ahead
        self._clear()

    def restore(self, number: int) -> Iterator[dict[str, np.ndarray]]:
        """Goes back to the end of a round; the weights stay on disk.

        Args:
          number: of a round after which a checkpoint was written.

        Yields:
          `arrays` of each piece.
        """
        for file in files.pieces(self.folder, number):
            with np.load(file, allow_pickle=False) as members:
                arrays = {name: members[name] for name in members.files if "/" not in name}
            self.pieces[file] = arrays.pop(KEPT).tolist()
            _update(self.digest, file)
            if not self.matrices:
                shapes = npz.read_shapes(file).items()
                squares = {
                    member.removeprefix(FIRST): ((shape[-1], shape[-1]), dtype)
                    for member, (shape, dtype) in shapes
                    if member.startswith(FIRST)
                }
                self._learn(squares, arrays[IDS])
            yield arrays
        self.done = number
        self._clear()

    def drop_later(self) -> None:
        """Removes the pieces of rounds that are to come, which a stopped run has left."""
        for file in set(files.pieces(self.folder)) - self.pieces.keys():
            files.remove(file)

    def remove(self) -> None:
        """Removes the pieces, and their folder if nothing else is in it."""
        for file in self.pieces:
            files.remove(file)
        files.remove_empty(self.folder)

    def lost(self) -> list[Path]:
        """The pieces that are no longer there."""
        return [file for file in self.pieces if not file.exists()]

    def numbers(self) -> list[int]:
        """The rounds whose weights are kept, from 1."""
        kept = itertools.chain(*self.pieces.values(), self.kept)
        return [number for number in kept if self._keeps(number)]

    def read(self, name: str, seed: int = 0) -> Iterator[np.ndarray]:
        """The weights [M, M] of each of `numbers`, one after the other.

        Args:
          name: of the weights.
          seed: its place among the seeds of the run.
        """
        shape, _ = self.matrices[name]
        for file, kept in self.pieces.items():
            places = [place for place, number in enumerate(kept) if self._keeps(number)]
            for matrix in npz.read_parts(file, _member(name, seed), places) if places else ():
                yield np.broadcast_to(matrix, shape)
        for part in self.weights.get(name, []):
            for matrix in part[seed]:
                yield np.broadcast_to(matrix, shape)

    def _learn(
        self, matrices: dict[str, tuple[tuple[int, ...], np.dtype]], ids: np.ndarray
    ) -> None:
        """Learns from the weights of a round, and ids [S, ...], which rounds are to be kept."""
        self.matrices = matrices
        elements = sum(prod(shape) * dtype.itemsize for shape, dtype in matrices.values())
        self.size = len(ids) * elements
        self.every = interval(self.keep, self.rounds, self.size)

    def _tell(self) -> None:
        """Says once what `--keep weights=auto` leaves out."""
        if self.keep == "auto" and self.every > 1 and not self.told:
            size = self.rounds * self.size / 1e9
            warn(
                f"the mixing weights of {self.rounds} rounds are {size:.1f} GB: graph.npz will "
                f"have one round in {self.every}, and all with --keep weights=all"
            )
        self.told = True

    def _keeps(self, number: int) -> bool:
        return number == self.rounds or number % self.every == 0


def digest_pieces(folder: Path, number: int) -> str:
    """The SHA-256 of the pieces of the first so many rounds, one after the other.

    Raises:
      OSError: a piece cannot be read.
    """
    digest = hashlib.sha256()
    for file in files.pieces(folder, number):
        _update(digest, file)
    return digest.hexdigest()


def without_equal_rows(weights: np.ndarray) -> np.ndarray:
    """The first row alone [S, n, 1, M] of weights whose rows have the same bits in each matrix.

    Example:
      >>> without_equal_rows(np.ones((1, 5, 3, 3))).shape
      (1, 5, 1, 3)
      >>> without_equal_rows(np.eye(3)[None, None]).shape
      (1, 1, 3, 3)
    """
    bits = weights.view(f"u{weights.dtype.itemsize}")
    same = all((matrix == matrix[:1]).all() for seed in bits for matrix in seed)
    return weights[:, :, :1].copy() if same else weights


def _stack(parts: list[np.ndarray]) -> Member:
    """Weights [n, M, M] of one seed, or one row of each matrix if all are stored so."""
    rows = max(part.shape[1] for part in parts)
    shape = (sum(map(len, parts)), rows, parts[0].shape[2])
    matrices = (np.broadcast_to(matrix, shape[1:]) for part in parts for matrix in part)
    return Member(shape, parts[0].dtype, matrices)


def _member(name: str, seed: int) -> str:
    """The name of the weights of a seed in a piece."""
    return f"{seed}/{name}"


def _update(digest: "hashlib._Hash", file: Path) -> None:
    with file.open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
