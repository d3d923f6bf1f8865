"""The clients of a run on disk: written once from the data set, and opened by every later run."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Array

from jaxfl.core.errors import InputError, check
from jaxfl.core.types import Dataset, Federation, Pool
from jaxfl.experiment.config import parse_json
from jaxfl.experiment.store import files
from jaxfl.simulation.on_disk import StoredFederation, open_federation, write_federation
from jaxfl.simulation.on_disk.federation import PARTS, Part

# Which data set, partition and options a directory was written from.
ORIGIN = "origin.json"


def find_stored(directory: Path, origin: dict[str, Any]) -> StoredFederation | None:
    """The federation in a directory; None if nothing is there yet.

    Args:
      directory: of the clients on disk.
      origin: which data set, partition and options the federation must stem from, as JSON.

    Raises:
      InputError: the directory holds something else, or a federation of another origin.
    """
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return None
    try:
        content = parse_json((directory / ORIGIN).read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            f"--store {directory} holds no data that jaxfl run wrote ({type(error).__name__}): "
            "name a new directory; your own federation is for jaxfl.simulation.on_disk in Python"
        ) from error
    names = [name for name in origin if content.get(name) != origin[name]]
    check(
        not names,
        f"--store {directory} holds the clients of another run ({', '.join(names)} differ): "
        "name a new directory",
    )
    return open_federation(directory)


def store(directory: Path, origin: dict[str, Any], federation: Federation) -> StoredFederation:
    """Writes a federation into a directory, with what it stems from."""
    with files.writing(directory):
        files.make_directory(directory.absolute().parent)
        stored = write_federation(directory, jax.device_get(federation))
        files.write_json(directory / ORIGIN, origin)
    return stored


def outline(stored: StoredFederation) -> Federation:
    """The federation without its examples [C, n, ...]: shapes and types, and which rows are real.

    The masks of the training and the validation set are NumPy arrays.
    """
    train, val, test = (stored.parts[name] for name in PARTS)
    masks = [stored.mask(name) for name in PARTS[:2]]
    clients = stored.clients
    if test.offsets is None:
        shape = (test.longest,)
        test_data = Pool(*_examples(test, shape), _shape((clients, *shape), np.float32))
    else:
        shape = (clients, test.longest)
        mask = _shape(shape, np.float32 if test.weighted else bool)
        test_data = Dataset(*_examples(test, shape), mask)
    parts = [
        Dataset(*_examples(part, mask.shape), cast(Array, mask))
        for part, mask in zip((train, val), masks, strict=True)
    ]
    return Federation(parts[0], parts[1], test_data)


def digest_stored(stored: StoredFederation) -> str:
    """The SHA-256 of all arrays of a federation on disk."""
    digest = hashlib.sha256()
    for path in sorted(stored.directory.glob("*/*.npy")):
        digest.update(path.relative_to(stored.directory).as_posix().encode())
        with path.open("rb") as file:
            for block in iter(partial(file.read, 2**20), b""):
                digest.update(block)
    return digest.hexdigest()


def _examples(part: Part, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Shapes that stand for the arrays x and y."""
    return (
        _shape((*shape, *part.feature), part.types[0]),
        _shape((*shape, *part.target), part.types[1]),
    )


def _shape(shape: tuple[int, ...], dtype: Any) -> Any:
    """A shape that stands for the array."""
    return jax.ShapeDtypeStruct(shape, dtype)
