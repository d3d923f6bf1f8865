"""Data sets by name: an embedded one, and any `NAME.npz` in a folder of the user's."""

import os
from pathlib import Path

import numpy as np

from jaxfl.data.arrays import Source, from_npz
from jaxfl.data.heart_disease import heart_disease
from jaxfl.data.prepare import RECIPES, at_hand, prepare, stem
from jaxfl.errors import InputError, check, check_name


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
        check(
            folder.is_dir(),
            f"the data folder {folder} does not exist or is none: mend --data-dir or JAXFL_DATA_DIR",
        )
        ready = {file.stem: f"{file.name} in {folder}" for file in sorted(folder.glob("*.npz"))}
        files = {
            stem(n): f"{r.about} (published files in {folder})"
            for n, r in RECIPES.items()
            if at_hand(n, folder)
        }
        found = files | ready | found
    return found


def load(name: str, directory: str | os.PathLike | None = None) -> Source:
    """Loads a data set by name.

    Args:
      name: an embedded set, the stem of a file `NAME.npz` (see `from_npz`), or a set of
        `prepare.RECIPES` whose published files are there: its `NAME.npz` is then written.
      directory: where the files are; the environment's `JAXFL_DATA_DIR` if None.

    Raises:
      InputError: unknown name, or a file that is damaged or holds something else than examples with
        labels.
    """
    check_known(name, directory)
    if name in SOURCES:
        return SOURCES[name]()
    folder = data_dir(directory)
    file = folder / f"{_files().get(name, name)}.npz"
    if not file.exists():
        prepare(name, folder)
    return READERS.get(name, from_npz)(file)


def check_known(name: str, directory: str | os.PathLike | None = None) -> None:
    """Raises an `InputError` if `load` would find no such set, with the command that gets it if there is one."""
    known, files = names(directory), _files()
    if name in files and files[name] not in known:
        folder = data_dir(directory)
        raise InputError(
            f"data set {name} is not at hand: get it with `jaxfl prepare {name} --data-dir {folder or 'DIR'}`"
            + ("" if folder else ", and name DIR here too with --data-dir or JAXFL_DATA_DIR")
        )
    check_name("data set", name, known | files)


def _files() -> dict[str, str]:
    """Names of sets that can be prepared -> of their files, where a slash is a hyphen."""
    return {name: stem(name) for name in RECIPES}
