"""Data sets by name: an embedded one, and any `NAME.npz` in a folder of the user's."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from jaxfl.core.errors import InputError, check, check_name, warn
from jaxfl.data.arrays import from_npz
from jaxfl.data.data_warnings import other_images
from jaxfl.data.published.heart_disease import load_heart_disease
from jaxfl.data.published.prepare_published import prepare
from jaxfl.data.published.recipes import RECIPES, file_stem, has_published_files
from jaxfl.data.source import Source


def digits() -> Source:
    """scikit-learn's handwritten digits: 1,797 grey images 8x8, 10 classes.

    A stratified fifth is the test set.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = np.reshape(x, (-1, 8, 8, 1)).astype(np.uint8)  # values 0 .. 16
    y = np.asarray(y, np.int32)
    x_train, x_test, y_train, y_test = map(
        np.asarray, train_test_split(x, y, test_size=0.2, stratify=y, random_state=0)
    )
    return Source(x_train, y_train, x_test, y_test, classes=10, scale=16.0)


SOURCES: dict[str, Callable[[], Source]] = {"digits": digits}
READERS = {"heart_disease": load_heart_disease}  # of files with other arrays than `from_npz`


def data_dir(directory: str | os.PathLike | None = None) -> Path | None:
    """The given folder, else that of the environment variable `JAXFL_DATA_DIR`, else None."""
    path = directory or os.environ.get("JAXFL_DATA_DIR")
    return Path(path).expanduser() if path else None


def list_data_sets(directory: str | os.PathLike | None = None) -> dict[str, str]:
    """The names of all data sets that `load` finds, with a line of description each.

    Example:
      >>> list_data_sets()["digits"]
      "scikit-learn's handwritten digits: 1,797 grey images 8x8, 10 classes."
    """
    library = {name: str(source.__doc__).splitlines()[0] for name, source in SOURCES.items()}
    folder = data_dir(directory)
    if folder is None:
        return library
    check(
        os.path.isdir(folder),
        f"the data folder {folder} does not exist or is not a folder: "
        "correct --data-dir or JAXFL_DATA_DIR",
    )
    ready = {file.stem: f"{file.name} in {folder}" for file in sorted(folder.glob("*.npz"))}
    published = {
        file_stem(name): f"{recipe.about} (published files in {folder})"
        for name, recipe in RECIPES.items()
        if has_published_files(name, folder)
    }
    return published | ready | library


def load(name: str, directory: str | os.PathLike | None = None) -> Source:
    """Loads a data set by name.

    Args:
      name: an embedded set, the stem of a file `NAME.npz` (see `from_npz`), or a set of
        `recipes.RECIPES` with its published files in the folder: its `NAME.npz` is then written.
      directory: folder of the files; that of the environment variable `JAXFL_DATA_DIR` if None.

    Raises:
      InputError: the name is unknown, or the file is damaged or does not hold examples with
        targets.

    Example:
      >>> source = load("digits")
      >>> source.x_train.shape, source.y_test.shape, source.classes
      ((1437, 8, 8, 1), (360,), 10)
    """
    check_known(name, directory)
    folder = data_dir(directory)
    # Without a folder there are only the embedded sets.
    if name in SOURCES or folder is None:
        own = None if folder is None else folder / f"{name}.npz"
        check(
            own is None or not own.exists(),
            f"{name} is the name of an embedded data set, and {own} has it too: rename the file",
        )
        return SOURCES[name]()
    file = folder / f"{_file_stems().get(name, name)}.npz"
    if not file.exists():
        prepare(name, file.parent)
    source = READERS.get(name, from_npz)(file)
    message = other_images(file.stem, source)
    if message:
        warn(message)
    return source


def check_known(name: str, directory: str | os.PathLike | None = None) -> None:
    """Raises an `InputError`, which names the command to use, if `load` would not find the set."""
    names = list_data_sets(directory)
    stems = _file_stems()
    if name in stems and stems[name] not in names:
        folder = data_dir(directory)
        where = "" if folder else ", and give the same DIR with --data-dir or JAXFL_DATA_DIR"
        recipe = RECIPES[name]
        if recipe.page:
            raise InputError(
                f"data set {name} was not found: put {', '.join(recipe.files)} of {recipe.page} "
                f"into {(folder or Path('DIR')) / recipe.folder}{where}"
            )
        raise InputError(
            f"data set {name} was not found: "
            f"get it with `jaxfl prepare {name} --data-dir {folder or 'DIR'}`{where}"
        )
    check_name("data set", name, names | stems)


def _file_stems() -> dict[str, str]:
    """Names of the sets that can be prepared -> names of their files, where a slash is a hyphen."""
    return {name: file_stem(name) for name in RECIPES}
