"""Reads the arrays that runs have written; nothing is ever unpickled."""

from pathlib import Path

import numpy as np

from jaxfl.errors import InputError


def read_arrays(file: Path, prefix: str = "") -> dict[str, np.ndarray]:
    """The arrays of an npz file whose names begin with the prefix.

    Raises:
      InputError: the file cannot be read.
    """
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays if name.startswith(prefix)}
    except Exception as error:  # NumPy raises a dozen types for a damaged or hostile file
        raise InputError(f"cannot read {file} ({error!r:.200}): run again") from error
