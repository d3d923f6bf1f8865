"""Data sets by name: an embedded one, and any `NAME.npz` in a folder of the user's."""

import os
from pathlib import Path

import numpy as np

from jaxfl.data.arrays import Source, from_npz
from jaxfl.data.heart import heart_disease
from jaxfl.errors import check, check_name


def digits() -> Source:
    """scikit-learn's handwritten digits: 1,797 grey images 8x8, 10 classes; a stratified fifth is the test set."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 8, 8, 1).astype(np.uint8)  # values 0 .. 16
    x_train, x_test, y_train, y_test = train_test_split(
        x, y.astype(np.int32), test_size=0.2, stratify=y, random_state=0
    )
    return Source(x_train, y_train, x_test, y_test, classes=10, scale=16.0)


SOURCES = {"digits": digits}
READERS = {"heart_disease": heart_disease}  # of files with arrays of their own


def data_dir(given: str | os.PathLike | None = None) -> Path | None:
    """The folder of the user's data sets: the given one, else the environment's `JAXFL_DATA_DIR`, else none."""
    chosen = given or os.environ.get("JAXFL_DATA_DIR")
    return Path(chosen) if chosen else None


def names(directory: str | os.PathLike | None = None) -> dict[str, str]:
    """All data sets that `load` finds, with a line of description each."""
    found = {name: function.__doc__.splitlines()[0] for name, function in SOURCES.items()}
    folder = data_dir(directory)
    if folder:
        check(folder.is_dir(), f"the data folder {folder} does not exist: mend --data-dir or JAXFL_DATA_DIR")
        found = {file.stem: f"{file.name} in {folder}" for file in sorted(folder.glob("*.npz"))} | found
    return found


def load(name: str, directory: str | os.PathLike | None = None) -> Source:
    """Loads a data set by name.

    Args:
      name: an embedded set, or the stem of a file `NAME.npz` with `x_train y_train x_test y_test`.
      directory: where the files are; the environment's `JAXFL_DATA_DIR` if None.

    Raises:
      InputError: unknown name, or a file that is damaged or holds something else than examples with labels.
    """
    known = names(directory)
    check_name("data set", name, known)
    if name in SOURCES:
        return SOURCES[name]()
    read = READERS.get(name, from_npz)
    return read(data_dir(directory) / f"{name}.npz")
