"""Digests of arrays and files, by which `resume` knows that what a run reads has not changed."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core.errors import InputError, check
from jaxfl.core.ragged import is_ragged
from jaxfl.experiment.config import Config
from jaxfl.experiment.config.paths import files_of
from jaxfl.experiment.store.records import Digests
from jaxfl.simulation import mesh


def digest_arrays(tree: PyTree) -> str:
    """The SHA-256 of the arrays of a pytree: of their types, shapes and bytes.

    The digest of a `Ragged` array is that of the padded array, which is made client by client. If
    several processes run together, each must call it.
    """
    return _digest(map(mesh.fetch, jax.tree.leaves(tree, is_leaf=is_ragged)))


def digest_own(tree: PyTree) -> str:
    """The digest of the arrays that this process alone has, which it may ask for alone.

    Example:
      >>> digest_own(np.zeros(2)) == digest_arrays(np.zeros(2))
      True
    """
    return _digest(jax.tree.leaves(tree, is_leaf=is_ragged))


def _digest(arrays: Iterable[Any]) -> str:
    """The SHA-256 of arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape}".encode())
        pieces = [array]
        if is_ragged(array):
            pieces = (array[client].padded() for client in np.ndindex(array.start.shape))
        for piece in pieces:
            # An array is a buffer, which the types of Python 3.11 cannot say.
            digest.update(np.ascontiguousarray(piece))  # pyright: ignore[reportArgumentType]
    return digest.hexdigest()


def digest_files(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder, by its path there.

    Raises:
      OSError: a file cannot be read.
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in paths}


def digest_file(path: Path) -> str:
    """The SHA-256 of a file.

    Raises:
      OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_inputs(config: Config) -> dict[str, str]:
    """The SHA-256 of each file that a run reads beside its data set, by the option that names it.

    Raises:
      InputError: a file cannot be read.
    """
    digests = {}
    for name, path in files_of(config).items():
        try:
            digests[name] = digest_file(path)
        except OSError as error:
            raise InputError(
                f"the file of {name}, {path}, cannot be read ({error.strerror}): restore it"
            ) from error
    return digests


def changed_inputs(was: dict[str, str], now: dict[str, str]) -> list[str]:
    """Which of the files that a run reads are others than before, in words.

    Args:
      was: `digest_inputs` of the run when it began.
      now: of the run now.
    """
    changes = []
    for name in sorted(was.keys() | now.keys()):
        if name not in now:
            changes.append(f"{name} was given and is not")
        elif name not in was:
            changes.append(f"{name} was not given and is")
        elif was[name] != now[name]:
            changes.append(f"what the file of {name} holds has changed")
    return changes


def digests_of(configs: list[Config], data: list[str]) -> Digests:
    """The digests of all that some runs read.

    Args:
      configs: of the runs.
      data: the digests of their clients' data.
    """
    files = {}
    for config in configs:
        digests = digest_inputs(config)
        for name, path in files_of(config).items():
            # Runs of one search may name several graphs; a plug-in may move.
            key = name if name.startswith("--plugin") else f"{name} ({path})"
            files[key] = digests[name]
    return {"data": sorted(set(data)), "files": files}


def check_inputs(place: Path, was: Digests, now: Digests) -> None:
    """Checks that what a run or several runs read is what it was when they began.

    Args:
      place: the file that says what it was.
      was: the digests in that file.
      now: those of now.

    Raises:
      InputError: an example or a file has changed; the message names it.
    """
    changes = changed_inputs(was["files"], now["files"])
    if was["data"] != now["data"]:
        changes.append("the examples of the clients have changed")
    check(
        not changes,
        f"{'; '.join(changes)} since {place} was written: restore it, or run anew with --overwrite",
    )
