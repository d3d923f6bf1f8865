"""A data set from its published files, or from TensorFlow Datasets, to one `NAME.npz` of plain arrays."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Timer
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from jaxfl.data import originals, text, tfds
from jaxfl.data.originals import Arrays, Track
from jaxfl.errors import InputError, check, check_positive

MOST_WORDS = 100_000
DELAY = 2.0  # seconds before progress is shown
IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
MNIST = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
FASHION_MNIST = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)


class Recipe(NamedTuple):
    """How a set is prepared: from its published files if they are there, else by TensorFlow Datasets if it has it."""

    about: str
    # where the published files lie, below the data folder; or they lie in the manual folder itself
    folder: str = ""
    files: Sequence[str] = ()  # files or folders below `folder`
    read: Callable[..., Arrays] | None = None  # (folder, track) -> arrays
    tfds: bool = True  # has TensorFlow Datasets the set?
    fields: Sequence[str] = ()  # text features to join


def grey(checksums: Sequence[str]) -> Callable[..., Arrays]:
    """The reader of MNIST or of a set in its format."""
    return partial(originals.idx, checksums=dict(zip(IDX_FILES, checksums, strict=True)))


RECIPES = {
    "mnist": Recipe(
        "handwritten digits, 60,000 + 10,000 images 28x28", "mnist", IDX_FILES, grey(MNIST)
    ),
    "fashion_mnist": Recipe(
        "clothes, 60,000 + 10,000 images 28x28", "fashion_mnist", IDX_FILES, grey(FASHION_MNIST)
    ),
    "svhn_cropped": Recipe("house numbers, 73,257 + 26,032 colour images 32x32"),
    "cifar10": Recipe("ten kinds of things, 50,000 + 10,000 colour images 32x32"),
    "cifar100": Recipe("a hundred kinds of things, 50,000 + 10,000 colour images 32x32"),
    "20newsgroups": Recipe(
        "posts on 20 topics, 11,314 + 7,532 texts",
        "20newsgroups",
        ("20news-bydate-train", "20news-bydate-test"),
        originals.newsgroups,
        tfds=False,
    ),
    "yahoo_answers": Recipe(
        "questions with answers on 10 topics, 1,400,000 + 60,000 texts",
        "yahoo_answers_csv",
        ("train.csv", "test.csv"),
        partial(originals.topics_csv, classes=10, fields=3),
        tfds=False,
    ),
    "ag_news_subset": Recipe(
        "news on 4 topics, 120,000 + 7,600 texts",
        "ag_news_csv",
        ("train.csv", "test.csv"),
        partial(originals.topics_csv, classes=4, fields=2),
        fields=("title", "description"),
    ),
    "yelp_polarity_reviews": Recipe("good and bad reviews, 560,000 + 38,000 texts"),
    "imdb_reviews": Recipe("good and bad film reviews, 25,000 + 25,000 texts"),
    "movielens/100k-ratings": Recipe(
        "100,000 ratings of 1,682 films by 943 users",
        "ml-100k",
        ("u.data",),
        partial(originals.movielens, name="u.data", separator="\t"),
    ),
    "movielens/1m-ratings": Recipe(
        "1,000,209 ratings of 3,706 films by 6,040 users",
        "ml-1m",
        ("ratings.dat",),
        partial(originals.movielens, name="ratings.dat", separator="::"),
    ),
    "heart_disease": Recipe(
        "whether patients of four hospitals have a heart disease, 920 rows of 13 findings",
        "heart_disease",
        originals.HOSPITALS,
        originals.heart_disease,
        tfds=False,
    ),
    "shakespeare": Recipe(
        "next characters of Shakespeare's roles, about 100,000 windows of 80",
        "tinyshakespeare",
        ("input.txt",),
        originals.shakespeare,
        tfds=False,
    ),
}


def at_hand(name: str, folder: Path) -> bool:
    """Whether the published files of a set of `RECIPES` are below the folder."""
    recipe = RECIPES[name]
    return bool(recipe.files) and all(
        (folder / recipe.folder / file).exists() for file in recipe.files
    )


def stem(name: str) -> str:
    """The name of a set's file, without `.npz`: a slash becomes a hyphen.

    Raises:
      InputError: the name holds anything but letters, digits, `_ . -` and single slashes between
        them.
    """
    plain = (
        re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*", name)
        and ".." not in name
    )
    plain = plain and len(name) <= 100
    check(
        bool(plain),
        f"{name!r:.80} is no name of a data set: expected letters, digits, '_', '-', '.' and '/'",
    )
    return name.replace("/", "-")


def prepare(
    name: str,
    directory: str | os.PathLike,
    *,
    manual_dir: str | os.PathLike | None = None,
    words: int = 10_000,
    length: int = 128,
) -> Path:
    """Writes `directory/NAME.npz`, unless it is there already.

    Published files are looked for in `directory` and in `manual_dir`: in a folder of the set's own
    (`RECIPES`), or in `manual_dir` itself. Without them TensorFlow Datasets prepares the set,
    downloading what `manual_dir` does not hold.

    The file holds `x_train y_train x_test y_test`. Images: x uint8 [N, h, w, channel], y int32.
    Texts: x int32 [N, length] ids of words, y int32, `vocabulary` [1] and the `words` with ids from
    2 on. Ratings: x int32 [N, 2] (user, item), y float32, `vocabulary` [2], `owners` int32 [N].
    Shakespeare: x int32 [N, 80], y int32, `vocabulary`, `words` (characters with ids from 0 on),
    `owners`, and no test examples.

    Args:
      name: of `RECIPES`, or of another set for image or text classification that TensorFlow
        Datasets has.
      directory: folder of the data sets; made if need be.
      manual_dir: folder with files that were fetched by hand.
      words: size of the vocabulary, the most frequent words of the training texts.
      length: words kept of each text.

    Returns:
      The file.

    Raises:
      InputError: unknown name, missing or damaged files, TensorFlow Datasets is needed and not
        installed, no network.
    """
    check_positive(words=words, length=length)
    check(
        length <= MOST_WORDS,
        f"length is {length!r:.40}: expected at most {MOST_WORDS:,} words of a text",
    )
    directory, target = Path(directory), Path(directory) / f"{stem(name)}.npz"
    if target.exists():
        return target
    manual = Path(manual_dir) if manual_dir else None
    check(
        manual is None or manual.is_dir(),
        f"the folder {manual} of files fetched by hand does not exist: mend --tfds-manual-dir",
    )
    with folder(directory), progress(f"preparing {name}") as track:
        arrays = collect(name, directory, manual, track)
        if isinstance(arrays.get("x_train"), list):
            arrays = numbered(arrays, words, length, track)
        write(target, arrays)
    return target


@contextlib.contextmanager
def folder(directory: Path) -> Iterator[None]:
    """Makes a folder, and removes what it made of it if nothing comes of it."""
    try:
        made = [path for path in (directory, *directory.parents) if not path.exists()]
        directory.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot make the data folder {directory} ({error}): choose another --data-dir"
        ) from error
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # it is not empty
            for path in made:
                path.rmdir()
        raise


def collect(name: str, directory: Path, manual: Path | None, track: Track) -> Arrays:
    """The arrays of a set, from where it is."""
    recipe = RECIPES.get(name, Recipe(""))
    folders = [directory / recipe.folder, *([manual / recipe.folder, manual] if manual else [])]
    if recipe.read:
        for folder in folders:
            if any((folder / file).exists() for file in recipe.files):
                try:
                    return recipe.read(folder, track=track)
                except OSError as error:
                    raise InputError(f"cannot read {name} in {folder}: {error}") from error
    check(
        recipe.tfds,
        f"{name} is not at hand: expected {' and '.join(recipe.files)}, as published, in {folders[0]}, "
        "or in a folder FILES that is given as --tfds-manual-dir FILES",
    )
    if manual and recipe.folder and (manual / recipe.folder).is_dir():
        manual = manual / recipe.folder
    with tempfile.TemporaryDirectory(
        dir=directory, prefix=f".{stem(name)}.", ignore_cleanup_errors=True
    ) as work:
        return tfds.read(name, Path(work), manual_dir=manual, fields=recipe.fields, track=track)


def numbered(arrays: Arrays, words: int, length: int, track: Track) -> Arrays:
    """The arrays with ids of words in the place of texts."""
    train, test = arrays["x_train"], arrays["x_test"]
    chosen = text.vocabulary(track(train, "counting words", len(train)), words)
    return arrays | {
        "x_train": text.tokenise(track(train, "numbering words", len(train)), chosen, length),
        "x_test": text.tokenise(track(test, "numbering words", len(test)), chosen, length),
        "vocabulary": np.array([len(chosen) + text.RESERVED]),
        "words": np.array(chosen, str),
    }


def write(target: Path, arrays: Arrays) -> None:
    """Writes a file of arrays as a whole or not at all."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        with part.open("xb") as file:  # a new file: a link that lies in its place is not followed
            np.savez(file, **arrays)
        os.replace(part, target)
    except OSError as error:
        raise InputError(
            f"cannot write {target} ({error}): make room or choose another --data-dir"
        ) from error
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def progress(title: str) -> Iterator[Track]:
    """Gives a function that passes items on and shows how many of them are done.

    It shows nothing in the first two seconds, nor where standard error is no terminal.
    """
    console = Console(file=sys.stderr)
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    task = bar.add_task(title, total=None)
    timer = Timer(DELAY, bar.start)
    timer.daemon = True

    def track(items: Iterable, text: str, total: int | None = None) -> Iterable:
        bar.update(task, description=f"{title}: {text}", total=total, completed=0)
        return counted(items)

    def counted(items: Iterable) -> Iterator:
        for done, item in enumerate(items):
            if done % 64 == 0:
                bar.update(task, completed=done)
            yield item

    if console.is_terminal:
        timer.start()
    try:
        yield track
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if bar.live.is_started:
            bar.stop()
