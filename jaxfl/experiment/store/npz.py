"""Arrays of npz files, written and read part by part, so that memory holds one part."""

import ast
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import InputError
from jaxfl.experiment.store.files import new_file

# Of the .npy format: how a file begins, the multiple of bytes after which the elements begin, and
# the bytes of the header's length by version.
MAGIC = b"\x93NUMPY"
ALIGNMENT = 64
LENGTHS = {1: 2, 2: 4, 3: 4}
LONGEST = 10_000  # bytes of a header that is parsed, as in NumPy


class Member(NamedTuple):
    """An array that is written part by part."""

    shape: tuple[int, ...]
    dtype: np.dtype
    parts: Iterable[np.ndarray]  # one after the other they are the array, in C order


def whole(array: np.ndarray) -> Member:
    """An array that is written in one part."""
    return Member(array.shape, array.dtype, [array])


def write_parts(file: Path, members: dict[str, Member], level: int | None = None) -> None:
    """Writes an npz file as `numpy.savez_compressed` does, whole or not at all.

    Args:
      file: to write.
      members: its arrays by name.
      level: of the compression, from 1 (quick) to 9; zlib's default if None.

    Raises:
      InputError: the file cannot be written.

    Example:
      >>> rows = (np.full(2, number) for number in (1.0, 2.0))
      >>> write_parts(Path("x.npz"), {"x": Member((2, 2), np.dtype(float), rows)})
      >>> np.load("x.npz")["x"].tolist()
      [[1.0, 1.0], [2.0, 2.0]]
    """
    deflated = zipfile.ZIP_DEFLATED
    with (
        new_file(file) as stream,
        zipfile.ZipFile(stream, "w", deflated, compresslevel=level) as archive,
    ):
        for name, member in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as target:
                target.write(_header(member))
                for part in member.parts:
                    target.write(part.tobytes())


def read_shapes(file: Path) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """The shape and the type of each array of an npz file.

    Raises:
      InputError: the file cannot be read.

    Example:
      >>> np.savez("x.npz", x=np.zeros((2, 3)))
      >>> read_shapes(Path("x.npz"))
      {'x': ((2, 3), dtype('float64'))}
    """
    with _opened(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        return {name: _read_header(archive, name) for name in names}


def read_parts(
    file: Path, name: str, places: Sequence[int] | None = None, *, axes: int = 1
) -> Iterator[np.ndarray]:
    """Parts of an array of an npz file, one after the other.

    Args:
      file: to read.
      name: of the array.
      places: of the parts, in ascending order; all if None.
      axes: the first axes of the array, over which its parts are numbered in C order.

    Raises:
      InputError: the file cannot be read.

    Example:
      >>> np.savez("x.npz", x=np.arange(6).reshape(3, 2))
      >>> [part.tolist() for part in read_parts(Path("x.npz"), "x", [0, 2])]
      [[0, 1], [4, 5]]
    """
    with _opened(file) as archive, archive.open(f"{name}.npy") as source:
        shape, dtype = _parse_header(source.read)
        size = dtype.itemsize * prod(shape[axes:])
        done = 0
        for place in range(prod(shape[:axes])) if places is None else places:
            source.seek((place - done) * size, os.SEEK_CUR)
            yield np.frombuffer(source.read(size), dtype).reshape(shape[axes:])
            done = place + 1


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except Exception as error:  # a damaged or hostile file raises a dozen types
        raise InputError(f"cannot read {file} ({error!r:.200}): run again") from error


def _read_header(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype]:
    with archive.open(f"{name}.npy") as source:
        return _parse_header(source.read)


def _header(member: Member) -> bytes:
    """What stands before the elements in version 1 of the .npy format."""
    description = {"descr": member.dtype.str, "fortran_order": False, "shape": member.shape}
    text = repr(description).encode()
    begin = len(MAGIC) + 2 + LENGTHS[1]
    # The header ends with a line break at a multiple of the alignment.
    size = -(-(begin + len(text) + 1) // ALIGNMENT) * ALIGNMENT - begin
    return MAGIC + bytes([1, 0]) + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"


def _parse_header(read: Callable[[int], bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and the type of the array whose elements follow.

    Args:
      read: the next so many bytes of its file.

    Raises:
      ValueError: they are no plain elements in C order.
    """
    magic = read(len(MAGIC) + 2)
    size = int.from_bytes(read(LENGTHS[magic[-2]]), "little")
    if size > LONGEST:
        raise ValueError(f"a header of {size} bytes")
    description = ast.literal_eval(read(size).decode())
    dtype = np.dtype(description["descr"])
    if magic[:-2] != MAGIC or description["fortran_order"] or dtype.hasobject:
        raise ValueError(f"no plain elements of {dtype} in the order of C")
    return tuple(description["shape"]), dtype
