"""Turns published files, or a set of TensorFlow Datasets, into one `NAME.npz` of plain arrays."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.core.options import POSITIVE, check_range
from jaxfl.data.arrays import from_arrays
from jaxfl.data.published import tfds
from jaxfl.data.published import words as vocabularies
from jaxfl.data.published.originals import Arrays
from jaxfl.data.published.reading_progress import Track, show_progress
from jaxfl.data.published.recipes import RECIPES, Recipe, file_stem, holds
from jaxfl.data.tokens import check_length, encoded, padded, read_tokenizer, vocabulary_of
from jaxfl.data.write import new_folder, write_npz


def prepare(
    name: str,
    directory: str | os.PathLike,
    *,
    manual_dir: str | os.PathLike | None = None,
    words: int = 10_000,
    length: int = 128,
    tokenizer: Path | None = None,
) -> Path:
    """Writes `directory/NAME.npz`, unless it already exists.

    Published files are looked for in `directory` and in `manual_dir`: in the set's own folder
    (`RECIPES`), or in `manual_dir` itself. Without them TensorFlow Datasets prepares the set and
    downloads what `manual_dir` does not hold.

    The file holds `x_train y_train x_test y_test`. Images: x uint8 [N, h, w, channel], y int32.
    Texts: x int32 [N, length] word ids, y int32, `vocabulary` [1] and the `words` with ids from
    2 on. Ratings: x int32 [N, 2] (user, item), y float32, `vocabulary` [2], `owners` int32 [N].
    Shakespeare: x int32 [N, 80], y int32, `vocabulary`, `words` (characters with ids from 0 on),
    `owners`, and no test examples; `shakespeare/next` has y int32 [N, 80] with the ids of x. Data
    of LEAF: `owners`, `owner_names` and `class_names`, and no test examples.

    Args:
      name: of `RECIPES`, or of another set for image or text classification in TensorFlow
        Datasets.
      directory: folder of the data sets; made if it does not exist.
      manual_dir: folder with files that were downloaded by hand.
      words: size of the vocabulary, the most frequent words of the training texts.
      length: words kept of each text.
      tokenizer: a tokenizer.json that gives the ids of texts in place of a vocabulary: -1 then
        fills up shorter ones, and `words` are not there.

    Returns:
      The path of the file.

    Raises:
      InputError: the name is unknown, files are missing or damaged,
        TensorFlow Datasets is needed and not installed, or there is no network.
    """
    check_range(POSITIVE, words=words)
    check_length(length)
    reader = None if tokenizer is None else read_tokenizer(tokenizer)
    directory = Path(directory)
    target = directory / f"{file_stem(name)}.npz"
    if os.path.exists(target):
        check(
            reader is None,
            f"{target} is there already, and its ids may be of another tokenizer: remove it first",
        )
        return target
    manual = Path(manual_dir) if manual_dir else None
    check(
        manual is None or os.path.isdir(manual),
        f"the folder {manual} of files downloaded by hand does not exist: "
        "correct --tfds-manual-dir",
    )
    with new_folder(directory), show_progress(f"preparing {name}") as track:
        arrays = _read(name, directory, manual, track)
        is_text = isinstance(arrays.get("x_train"), list)
        check(is_text or reader is None, f"{name} has no texts to number: leave out --tokenizer")
        if is_text:
            arrays = (
                _tokenise(arrays, words, length, track)
                if reader is None
                else _encoded(arrays, reader, length)
            )
        if "owner_names" in arrays:
            # Refuses names that no reader would take.
            from_arrays(**{k: v for k, v in arrays.items() if k != "words"}, name=name)
        write_npz(target, arrays)
    return target


def _read(name: str, directory: Path, manual: Path | None, track: Track) -> Arrays:
    """The arrays of a set, from its published files or from TensorFlow Datasets."""
    recipe = RECIPES.get(name, Recipe(""))
    folders = [directory / recipe.folder]
    if manual:
        folders += [manual / recipe.folder, manual]
    if recipe.read:
        for folder in folders:
            if any(holds(folder, file) for file in recipe.files):
                try:
                    return recipe.read(folder, track=track)
                except OSError as error:
                    raise InputError(f"cannot read {name} in {folder}: {error}") from error
    check(
        recipe.tfds,
        f"the files of {name} were not found: expected "
        f"{(' or ' if recipe.any_of else ' and ').join(recipe.files)}, as published, "
        f"in {folders[0]}, or in a folder FILES that is given as --tfds-manual-dir FILES",
    )
    if manual and recipe.folder and (manual / recipe.folder).is_dir():
        manual = manual / recipe.folder
    with tempfile.TemporaryDirectory(
        dir=directory, prefix=f".{file_stem(name)}.", ignore_cleanup_errors=True
    ) as work:
        return tfds.read(name, Path(work), manual_dir=manual, fields=recipe.fields, track=track)


def _tokenise(arrays: Arrays, words: int, length: int, track: Track) -> Arrays:
    """The arrays with word ids in place of texts."""
    train = arrays["x_train"]
    test = arrays["x_test"]
    vocabulary = vocabularies.build_vocabulary(track(train, "counting words", len(train)), words)
    return arrays | {
        "x_train": vocabularies.tokenise(
            track(train, "tokenising", len(train)), vocabulary, length
        ),
        "x_test": vocabularies.tokenise(track(test, "tokenising", len(test)), vocabulary, length),
        "vocabulary": np.array([len(vocabulary) + vocabularies.RESERVED]),
        "words": np.array(vocabulary, str),
    }


def _encoded(arrays: Arrays, reader: Any, length: int) -> Arrays:
    """The arrays with the ids of a tokenizer in place of texts."""
    rows = {split: encoded(arrays[split], reader, length=length) for split in ("x_train", "x_test")}
    longest = max(len(row) for some in rows.values() for row in some)
    ids = {split: padded(some, longest) for split, some in rows.items()}
    return arrays | ids | {"vocabulary": np.array([vocabulary_of(reader)])}
