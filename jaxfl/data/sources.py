"""Data sets by name: an embedded one, and any `NAME.npz` in a folder of the user's."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxfl.errors import InputError, check, check_name


class Source(NamedTuple):
    """A labelled data set as it is on disk, before any client exists."""

    x_train: np.ndarray  # [N, *feature] uint8 or float32
    y_train: np.ndarray  # [N] int32 in 0 .. classes - 1
    x_test: np.ndarray  # [N', *feature]
    y_test: np.ndarray  # [N']
    classes: int
    scale: float  # divide x by it to get inputs of order 1


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
    return from_npz(data_dir(directory) / f"{name}.npz")


def from_npz(file: Path) -> Source:
    """A data set from a file with `x_train y_train x_test y_test`; never unpickles."""
    keys = ("x_train", "y_train", "x_test", "y_test")
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            held = {key: arrays[key] for key in keys if key in arrays}
    except Exception as error:  # NumPy stumbles in a dozen ways over a damaged or hostile file
        raise InputError(
            f"cannot read {file} as plain npz arrays ({error!r:.200}): write it with numpy.savez"
        ) from error
    missing = [key for key in keys if key not in held]
    check(not missing, f"{file} lacks {', '.join(missing)}: expected arrays {', '.join(keys)}")
    return from_arrays(**held, name=str(file))


def from_arrays(
    x_train: np.ndarray, y_train: np.ndarray, x_test: np.ndarray, y_test: np.ndarray, name: str = "the data"
) -> Source:
    """A data set from arrays in memory.

    Args:
      x_train: [N, *feature], uint8 (divided by 255 when used) or real numbers.
      y_train: [N] integers from 0; the largest one tells the number of classes.
      x_test: [N', *feature].
      y_test: [N'].
      name: what to call it in messages.

    Raises:
      InputError: NaN or infinity, labels that are not integers of the range, shapes that do not fit.
    """
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        check(x.ndim >= 2 and x.size > 0, f"x_{part} of {name} has shape {x.shape}: expected [examples, *feature]")
        check(y.shape == (len(x),), f"y_{part} of {name} has shape {y.shape}: expected ({len(x)},), a label an example")
        check(x.dtype.kind in "uif", f"x_{part} of {name} has type {x.dtype}: expected real numbers")
        check(y.dtype.kind in "ui", f"y_{part} of {name} has type {y.dtype}: expected integer labels")
        with np.errstate(over="ignore"):
            bad = 0 if x.dtype.kind != "f" else int((~np.isfinite(x.astype(np.float32))).sum())
        check(bad == 0, f"x_{part} of {name} holds {bad} NaN or infinite values: remove or replace them")
    check(
        x_train.shape[1:] == x_test.shape[1:],
        f"examples of {name} have shape {x_train.shape[1:]} in train and {x_test.shape[1:]} in test: expected the same",
    )
    classes = int(y_train.max()) + 1
    for part, y in (("train", y_train), ("test", y_test)):
        low, high = int(y.min()), int(y.max())
        outside = low if low < 0 else high
        check(
            low >= 0 and high < classes,
            f"y_{part} of {name} holds the label {outside}: expected 0 to {classes - 1}, the largest label of y_train",
        )
    held = len(np.unique(y_train))
    check(held == classes, f"y_train of {name} holds {held} of the labels 0 to {classes - 1}: number them without gaps")
    kind, scale = (np.uint8, 255.0) if x_train.dtype == np.uint8 else (np.float32, 1.0)
    return Source(
        x_train.astype(kind), y_train.astype(np.int32), x_test.astype(kind), y_test.astype(np.int32), classes, scale
    )
