"""The clients of a run on disk: written once from the data set, and opened by every later run."""

import dataclasses
import hashlib
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Array

from jaxfl.core.errors import InputError, check
from jaxfl.core.types import Dataset, Federation, Pool
from jaxfl.data import Source
from jaxfl.experiment.config import DataOptions, Setting, parse_json
from jaxfl.experiment.config.fields import seed_of_data, value_of
from jaxfl.experiment.store import files
from jaxfl.experiment.store.manifest import digest_arrays
from jaxfl.simulation.on_disk import StoredFederation, open_federation, write_federation
from jaxfl.simulation.on_disk.federation import PARTS, Part
from jaxfl.uplink import FLIPPED

# Which data set, partition and options a directory was written from.
ORIGIN = "origin.json"


def origin_of(setting: Setting, source: Source) -> dict[str, Any]:
    """What the clients' data depend on, as JSON."""
    names = [field.name for field in dataclasses.fields(DataOptions) if field.name != "data_dir"]
    if setting.attack in FLIPPED:
        names += ["attack", "attack_ratio", "attack_seed", "malicious"]
    options = {name: getattr(setting, name) for name in names} | {"seed": seed_of_data(setting)}
    arrays = [source.x_train, source.y_train, source.x_test, source.y_test]
    return {name: list(v) if isinstance(v, tuple) else v for name, v in options.items()} | {
        "examples": digest_arrays([x for x in arrays if x is not None])
    }


def find_stored(setting: Setting, source: Source) -> StoredFederation | None:
    """The federation in the directory of the setting; None if nothing is there yet.

    Raises:
      InputError: the directory holds something else, or the federation of another setting.
    """
    directory = Path(value_of(setting.store))
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return None
    try:
        found = parse_json((directory / ORIGIN).read_text())
    except (OSError, ValueError) as error:
        raise InputError(
            f"--store {directory} holds no data that jaxfl run wrote ({type(error).__name__}): "
            "name a new directory; your own federation is for jaxfl.simulation.on_disk in Python"
        ) from error
    expected = origin_of(setting, source)
    changed = [name for name in expected if found.get(name) != expected[name]]
    check(
        not changed,
        f"--store {directory} holds the clients of another run ({', '.join(changed)} differ): "
        "name a new directory",
    )
    return open_federation(directory)


def store(setting: Setting, source: Source, federation: Federation) -> StoredFederation:
    """Writes the federation of a setting into its directory."""
    directory = Path(value_of(setting.store))
    with files.writing(directory):
        files.make_directory(directory.absolute().parent)
        stored = write_federation(directory, jax.device_get(federation))
        files.write_json(directory / ORIGIN, origin_of(setting, source))
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
        held_out = Pool(*_examples(test, shape), _shape((clients, *shape), np.float32))
    else:
        shape = (clients, test.longest)
        mask = _shape(shape, np.float32 if test.weighted else bool)
        held_out = Dataset(*_examples(test, shape), mask)
    parts = [
        Dataset(*_examples(part, mask.shape), cast(Array, mask))
        for part, mask in zip((train, val), masks, strict=True)
    ]
    return Federation(parts[0], parts[1], held_out)


def digest_stored(stored: StoredFederation) -> str:
    """The SHA-256 of all arrays of a federation on disk."""
    found = hashlib.sha256()
    for path in sorted(stored.directory.glob("*/*.npy")):
        found.update(path.relative_to(stored.directory).as_posix().encode())
        with path.open("rb") as file:
            for block in iter(partial(file.read, 2**20), b""):
                found.update(block)
    return found.hexdigest()


def _examples(part: Part, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Shapes that stand for the arrays x and y."""
    return (
        _shape((*shape, *part.feature), part.types[0]),
        _shape((*shape, *part.target), part.types[1]),
    )


def _shape(shape: tuple[int, ...], dtype: Any) -> Any:
    """A shape that stands for the array."""
    return jax.ShapeDtypeStruct(shape, dtype)
