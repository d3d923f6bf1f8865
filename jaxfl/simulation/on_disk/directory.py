"""Writes federations into directories, and opens directories of federations.

`jaxfl.on_disk.federation` describes the files.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.core.ragged import is_ragged
from jaxfl.core.types import Dataset, Federation, Pool
from jaxfl.simulation.on_disk.federation import PARTS, Part, StoredFederation, load_mapped

MANIFEST = "federation.json"
# Version 2 has groups.npy, which version 1 lacks.
VERSION = 2
READ = (1, VERSION)


def write_federation(
    directory: Path | str, federation: Federation, notes: Callable[[Path], None] | None = None
) -> StoredFederation:
    """Writes a federation that fits into memory, completely or not at all.

    What an earlier process has left of the same directory is removed. Two processes must not write
    one directory at the same time.

    Args:
      directory: to write; it must not exist, or be empty.
      federation: the data of all clients.
      notes: writes further files into the directory that it is given, which has the arrays and will
        be renamed.

    Raises:
      InputError: the directory is not empty, or the inputs are a pytree of arrays.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation
      >>> jaxfl.on_disk.write_federation(Path("stored"), federation).clients
      150
    """
    directory = Path(directory)
    occupied = directory.exists() and (not directory.is_dir() or any(directory.iterdir()))
    trees = [name for name, data in zip(PARTS, federation, strict=True) if _is_tree(data.x)]
    check(
        not trees,
        f"the inputs of {', '.join(trees)} are several arrays, and a directory holds one array of "
        "inputs: keep the federation in memory, or put them side by side in one array",
    )
    check(not occupied, f"{directory} is not empty: name a new directory for the federation")
    unfinished = directory.with_name(f".{directory.name}.part")
    if unfinished.is_symlink():
        unfinished.unlink()
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    longest = {}
    for name, data in zip(PARTS, federation, strict=True):
        folder = unfinished / name
        folder.mkdir()
        if isinstance(data, Pool):
            arrays = {"x": data.x, "y": data.y, "weights": data.mask}
            if data.groups is not None:
                arrays["groups"] = data.groups
        else:
            arrays = _flatten(data)
            longest[name] = data.mask.shape[1]
        for array_name, values in arrays.items():
            np.save(folder / f"{array_name}.npy", np.asarray(values), allow_pickle=False)
    write_manifest(unfinished, federation.train.mask.shape[0], longest)
    if notes is not None:
        notes(unfinished)
    if directory.exists():
        directory.rmdir()
    os.replace(unfinished, directory)
    return open_federation(directory)


def _is_tree(x: Any) -> bool:
    """Whether the inputs are a pytree of arrays."""
    return not (is_ragged(x) or hasattr(x, "shape"))


def _flatten(data: Dataset) -> dict[str, np.ndarray]:
    """The arrays of a part: its real examples, one client after the other."""
    mask = np.asarray(data.mask)
    real = mask != 0
    offsets = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
    # Of arrays that store no padding, the examples are read without making any.
    x = np.asarray(jax.device_get(data.x)[np.nonzero(real)])
    y = np.asarray(jax.device_get(data.y)[np.nonzero(real)])
    arrays = {"x": x, "y": y, "offsets": offsets}
    if mask.dtype != bool:
        arrays["weights"] = mask[real]
    if data.weight is not None:
        arrays["example_weights"] = np.asarray(data.weight)[real]
    return arrays


def write_manifest(directory: Path, clients: int, longest: dict[str, int]) -> None:
    """Writes `federation.json`: what the arrays of a directory must be when it is opened.

    Args:
      directory: with the arrays.
      clients: C.
      longest: by part, to how many examples of a client it is padded when it is read.
    """
    arrays = {}
    for path in sorted(directory.glob("*/*.npy")):
        array = load_mapped(path)
        arrays[path.relative_to(directory).as_posix()] = [list(array.shape), str(array.dtype)]
    content = {"version": VERSION, "clients": clients, "longest": longest, "arrays": arrays}
    (directory / MANIFEST).write_text(json.dumps(content, indent=1))


def open_federation(directory: Path | str) -> StoredFederation:
    """The federation in a directory that `write_federation` or you have written.

    Only the offsets are read now. `federation.json` is optional; where it exists, the arrays must
    be those that it names.

    Args:
      directory: with folders "train" and, if there are such examples, "val" and "test";
        `jaxfl.on_disk.federation` describes their files.

    Raises:
      InputError: a file is missing or damaged, or the arrays do not fit together.

    Example:
      >>> Path("own/train").mkdir(parents=True)
      >>> np.save("own/train/x.npy", np.zeros((5, 8), np.float32))  # three clients of 2, 0, 3
      >>> np.save("own/train/y.npy", np.array([0, 1, 1, 0, 1], np.int32))
      >>> np.save("own/train/offsets.npy", np.array([0, 2, 2, 5]))
      >>> open_federation("own").sizes.tolist()
      [2, 0, 3]
    """
    directory = Path(directory)
    check(
        (directory / "train").is_dir(),
        f"{directory} holds no federation: expected folders train, val and test with x.npy, y.npy "
        "and offsets.npy",
    )
    manifest = _read_manifest(directory)
    longest = manifest.get("longest", {})
    train = _open_part(directory / "train", longest.get("train"), None)
    parts = {"train": train}
    clients = len(train.rows_of_clients()) - 1
    for name in PARTS[1:]:
        parts[name] = _open_part(directory / name, longest.get(name), train)
    check(
        manifest.get("clients", clients) == clients,
        f"{directory / MANIFEST} names {manifest.get('clients')} clients, the offsets {clients}: "
        "write the directory again",
    )
    return StoredFederation(directory, clients, parts)


def _read_manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    if not path.exists():
        return {}
    try:
        manifest = json.loads(path.read_text())
        arrays = manifest["arrays"].items()
        version = manifest["version"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"cannot read {path} ({error!r:.200}): write the directory again, or remove this file"
        ) from error
    check(version in READ, f"{path} has version {version}: expected {READ[0]} or {READ[1]}")
    for name, expected in arrays:
        array = load_mapped(directory / name)
        layout = [list(array.shape), str(array.dtype)]
        check(
            layout == expected,
            f"{directory / name} has shape and type {layout}, {MANIFEST} names {expected}: "
            "write the directory again, or remove federation.json if the arrays are right",
        )
    return manifest


def _open_part(folder: Path, longest: int | None, train: Part | None) -> Part:
    """A part as its arrays say; without a folder, one of no examples like those of `train`."""
    if train is not None and not folder.is_dir():
        empty = np.zeros_like(train.offsets)
        train = train._replace(weighted=False, example_weights=False)
        return train._replace(folder=None, offsets=empty, longest=1)
    x = load_mapped(folder / "x.npy")
    y = load_mapped(folder / "y.npy")
    check(
        x.ndim > 0 and y.ndim > 0 and len(x) == len(y),
        f"{folder} has x.npy of shape {x.shape} and y.npy of shape {y.shape}: expected as many "
        "targets as examples",
    )
    weighted = (folder / "weights.npy").exists()
    layout = (x.shape[1:], y.shape[1:], (x.dtype, y.dtype), weighted)
    clients = None if train is None else train.rows_of_clients().size - 1
    if clients is not None and folder.name == "test" and not (folder / "offsets.npy").exists():
        groups = _count_groups(folder, weighted, len(x))
        columns = len(x) if groups is None else groups
        _check_weights(folder, weighted, (clients, columns))
        return Part(folder, None, len(x), *layout, groups)
    _check_weights(folder, weighted, (len(x),))
    own = (folder / "example_weights.npy").exists()
    _check_weights(folder, own, (len(x),), "example_weights.npy")
    offsets = np.array(load_mapped(folder / "offsets.npy"))
    valid = (
        offsets.ndim == 1
        and offsets.size > 1
        and offsets.dtype.kind in "iu"
        and offsets[0] == 0
        and offsets[-1] == len(x)
        and bool((offsets[1:] >= offsets[:-1]).all())
    )
    check(
        valid,
        f"{folder / 'offsets.npy'} has shape {offsets.shape} and type {offsets.dtype}: expected "
        f"whole numbers [clients + 1] that rise from 0 to {len(x)}, the number of examples",
    )
    check(
        clients is None or offsets.size == clients + 1,
        f"{folder / 'offsets.npy'} has {offsets.size - 1} clients, train {clients}: "
        "expected as many",
    )
    largest = max(1, int(np.diff(offsets).max()))
    check(
        longest is None or longest >= largest,
        f"{folder} is padded to {longest} examples, and a client has {largest}: remove "
        f"{MANIFEST} or write it again",
    )
    return Part(folder, offsets.astype(np.int64), longest or largest, *layout, example_weights=own)


def _count_groups(folder: Path, weighted: bool, examples: int) -> int | None:
    """The number of groups of one set; None if each example weighs for itself."""
    file = folder / "groups.npy"
    check(
        weighted or not file.exists(),
        f"{folder} has groups.npy and no weights.npy: expected both or neither",
    )
    if not weighted:
        return 1
    if not file.exists():
        return None
    groups = load_mapped(file)
    weights = load_mapped(folder / "weights.npy")
    count = weights.shape[1] if weights.ndim == 2 else 0
    valid = (
        groups.shape == (examples,)
        and groups.dtype.kind in "iu"
        and bool((groups >= 0).all() and (groups < count).all())
    )
    check(
        valid,
        f"{file} has shape {groups.shape} and type {groups.dtype}: expected {examples} whole "
        f"numbers from 0 to {count - 1}, the columns of weights.npy",
    )
    return count


def _check_weights(
    folder: Path, weighted: bool, expected: tuple[int, ...], name: str = "weights.npy"
) -> None:
    if weighted:
        array = load_mapped(folder / name)
        check(
            array.shape == expected and array.dtype.kind == "f",
            f"{folder / name} has shape {array.shape} and type {array.dtype}: expected "
            f"fractions of shape {expected}",
        )
