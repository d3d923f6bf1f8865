"""Arrays of numbers that a user gives in a NumPy file; nothing is ever unpickled."""

import os
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from jaxfl.core.errors import InputError, check

UNREADABLE = "{what} in {path} cannot be read: expected an array of numbers, saved with numpy.save"


def read_npy(file: str | Path, what: str) -> np.ndarray:
    """The array of a NumPy file (.npy).

    Args:
      file: its path.
      what: it holds, for messages, such as "the durations".

    Raises:
      InputError: there is no such file, or no array of numbers in it.

    Example:
      >>> np.save("parts.npy", np.array([1.0, 0.5]))
      >>> read_npy("parts.npy", "the parts").tolist()
      [1.0, 0.5]
    """
    path = Path(file)
    check(
        path.suffix == ".npy" and os.path.isfile(path),
        f"{what} in {path}: expected a .npy file that exists",
    )
    try:
        with path.open("rb") as handle:
            array = np.load(handle, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError, BadZipFile) as error:
        raise InputError(UNREADABLE.format(what=what, path=path)) from error
    check(isinstance(array, np.ndarray), UNREADABLE.format(what=what, path=path))
    return array
