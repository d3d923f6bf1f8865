"""How files of the data folder are written: whole, or not at all."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from jaxfl.core.errors import InputError


@contextlib.contextmanager
def new_folder(directory: Path) -> Iterator[None]:
    """Makes the folder; removes what it made if an exception leaves it empty.

    Raises:
      InputError: it cannot be made.
    """
    try:
        folders = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot make the data folder {directory} ({error}): choose another --data-dir"
        ) from error
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            for path in folders:
                path.rmdir()
        raise


def write_npz(target: Path, arrays: dict[str, Any]) -> None:
    """Writes arrays as an npz file.

    Raises:
      InputError: it cannot be written.
    """
    _write(target, lambda file: np.savez(file, **arrays))


def write_utf8(target: Path, text: str) -> None:
    """Writes a text as UTF-8.

    Raises:
      InputError: it cannot be written.
    """
    _write(target, lambda file: file.write(text.encode()))


def _write(target: Path, content: Callable[[BinaryIO], object]) -> None:
    """Writes the whole file, or nothing."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:  # a new file: an existing link in its place is not followed
            content(file)
        os.replace(draft, target)
    except OSError as error:
        raise InputError(
            f"cannot write {target} ({error}): make room or choose another --data-dir"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
