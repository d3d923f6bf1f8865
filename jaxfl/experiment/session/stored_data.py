"""The clients of a run on disk: written once from the data set, and opened by every later run."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Array

from jaxfl.core.errors import InputError, check
from jaxfl.core.types import Dataset, Federation, Pool
from jaxfl.experiment.config import parse_json
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.digests import digest_files
from jaxfl.simulation.on_disk import StoredFederation, open_federation, write_federation
from jaxfl.simulation.on_disk.federation import PARTS, Part

# Which data set, partition and options a directory was written from, and under FILES the SHA-256 of
# each other file in it.
ORIGIN = "origin.json"
FILES = "files"


def open_stored(
    directory: Path, origin: dict[str, Any], make: Callable[[], Federation]
) -> StoredFederation:
    """The federation in a directory, which is written if nothing is there yet.

    While a process writes it, others that want it wait.

    Args:
      directory: of the clients on disk.
      origin: which data set, partition and options the federation must stem from, as JSON.
      make: makes the federation.

    Raises:
      InputError: the directory holds something else, a federation of another origin, or one that
        has changed since it was written.
    """
    stored = _find(directory, origin)
    if stored is not None:
        return stored
    with files.writing(directory, "--store"), locks.alone(directory, "--store"):
        stored = _find(directory, origin)  # another process may have written it
        if stored is not None:
            return stored

        def add_origin(folder: Path) -> None:
            files.write_json(folder / ORIGIN, origin | {FILES: digest_files(folder)})

        return write_federation(directory, jax.device_get(make()), add_origin)


def _find(directory: Path, origin: dict[str, Any]) -> StoredFederation | None:
    """The federation in a directory, whose files are those that were written; None if it is new."""
    if not os.path.exists(directory):
        return None
    if directory.is_dir() and not any(directory.iterdir()):
        return None
    content = _read_origin(directory)
    # What only one of the two knows of, such as an attack on the labels, differs too.
    names = [n for n in {**origin, **content} if n != FILES and content.get(n) != origin.get(n)]
    check(
        not names,
        f"--store {directory} holds the clients of another run ({', '.join(names)} differ): "
        "name a new directory",
    )
    was = content[FILES]
    digests = digest_files(directory)
    # Other files beside the arrays are of no concern.
    now = {name: d for name, d in digests.items() if name in was or name.endswith(".npy")}
    changes = sorted(name for name in was | now if was.get(name) != now.get(name))
    check(
        not changes,
        f"--store {directory}: {', '.join(changes[:1])} is not what was written there: remove the "
        "directory, and it is made anew",
    )
    return open_federation(directory)


def _read_origin(directory: Path) -> dict[str, Any]:
    try:
        content = parse_json((directory / ORIGIN).read_text())
        if not isinstance(content, dict) or not isinstance(content.get(FILES), dict):
            raise ValueError("no digests of files")
    except (OSError, ValueError) as error:
        raise InputError(
            f"--store {directory} holds no data that jaxfl run wrote ({type(error).__name__}): "
            "name a new directory; your own federation is for jaxfl.simulation.on_disk in Python"
        ) from error
    return content


def outline(stored: StoredFederation) -> Federation:
    """The federation without its examples [C, n, ...]: shapes and types, and which rows are real.

    The masks of the training and the validation set are NumPy arrays.
    """
    train, val, test = (stored.parts[name] for name in PARTS)
    masks = [stored.mask(name) for name in PARTS[:2]]
    clients = stored.clients
    if test.offsets is None:
        shape = (test.longest,)
        columns = test.longest if test.groups is None else test.groups
        weights = _shape((clients, columns), np.float32)
        groups = None if test.groups is None else _shape(shape, np.int32)
        test_data = Pool(*_examples(test, shape), weights, groups)
    else:
        shape = (clients, test.longest)
        mask = _shape(shape, np.float32 if test.weighted else bool)
        test_data = Dataset(*_examples(test, shape), mask)
    parts = [
        Dataset(
            *_examples(part, mask.shape),
            cast(Array, mask),
            _shape(mask.shape, np.float32) if part.example_weights else None,
        )
        for part, mask in zip((train, val), masks, strict=True)
    ]
    return Federation(parts[0], parts[1], test_data)


def digest_stored(stored: StoredFederation) -> str:
    """The digest of a federation on disk: that of the digests of its files, as they were written.

    `open_stored` has compared these with the files.
    """
    content = json.dumps(_read_origin(stored.directory)[FILES], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _examples(part: Part, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Shapes that stand for the arrays x and y."""
    return (
        _shape((*shape, *part.feature), part.types[0]),
        _shape((*shape, *part.target), part.types[1]),
    )


def _shape(shape: tuple[int, ...], dtype: Any) -> Any:
    """A shape that stands for the array."""
    return jax.ShapeDtypeStruct(shape, dtype)
