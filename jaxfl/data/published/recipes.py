"""The data sets that `prepare` knows, and where the published files of each are expected."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from jaxfl.core.errors import check
from jaxfl.data.published import characters, images, leaf, originals
from jaxfl.data.published.originals import Arrays

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
# md5 of each of the IDX files.
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
    """How a set is prepared: from its published files, else by TensorFlow Datasets."""

    about: str  # one line of description
    folder: str = ""  # of the published files, below the data folder
    files: Sequence[str] = ()  # published files or folders, or patterns of them, below `folder`
    read: Callable[..., Arrays] | None = None  # (folder, track) -> arrays
    tfds: bool = True  # whether TensorFlow Datasets has the set
    fields: Sequence[str] = ()  # text features to join
    any_of: bool = False  # whether one of the files is enough
    page: str = ""  # where the files are published, if `prepare` cannot fetch them


def _idx_reader(checksums: Sequence[str]) -> Callable[..., Arrays]:
    return partial(originals.read_idx, checksums=dict(zip(IDX_FILES, checksums, strict=True)))


RECIPES = {
    "mnist": Recipe(
        "handwritten digits, 60,000 + 10,000 images 28x28", "mnist", IDX_FILES, _idx_reader(MNIST)
    ),
    "fashion_mnist": Recipe(
        "clothes, 60,000 + 10,000 images 28x28",
        "fashion_mnist",
        IDX_FILES,
        _idx_reader(FASHION_MNIST),
    ),
    "svhn_cropped": Recipe(
        "house numbers, 73,257 + 26,032 colour images 32x32",
        "svhn",
        images.SVHN_FILES,
        images.read_svhn,
    ),
    "cifar10": Recipe(
        "objects of ten classes, 50,000 + 10,000 colour images 32x32",
        "cifar-10-batches-bin",
        (*images.CIFAR10_TRAIN, images.CIFAR10_TEST),
        partial(
            images.read_cifar,
            train=images.CIFAR10_TRAIN,
            test=images.CIFAR10_TEST,
            labels=(10,),
        ),
    ),
    "cifar100": Recipe(
        "objects of a hundred classes, 50,000 + 10,000 colour images 32x32",
        "cifar-100-binary",
        (*images.CIFAR100_TRAIN, images.CIFAR100_TEST),
        partial(
            images.read_cifar,
            train=images.CIFAR100_TRAIN,
            test=images.CIFAR100_TEST,
            labels=(20, 100),
        ),
    ),
    "20newsgroups": Recipe(
        "posts on 20 topics, 11,314 + 7,532 texts",
        "20newsgroups",
        ("20news-bydate-train", "20news-bydate-test"),
        originals.read_newsgroups,
        tfds=False,
    ),
    "yahoo_answers": Recipe(
        "questions with answers on 10 topics, 1,400,000 + 60,000 texts",
        "yahoo_answers_csv",
        ("train.csv", "test.csv"),
        partial(originals.read_topics_csv, classes=10, fields=3),
        tfds=False,
    ),
    "ag_news_subset": Recipe(
        "news on 4 topics, 120,000 + 7,600 texts",
        "ag_news_csv",
        ("train.csv", "test.csv"),
        partial(originals.read_topics_csv, classes=4, fields=2),
        fields=("title", "description"),
    ),
    "yelp_polarity_reviews": Recipe("good and bad reviews, 560,000 + 38,000 texts"),
    "imdb_reviews": Recipe("good and bad film reviews, 25,000 + 25,000 texts"),
    "movielens/100k-ratings": Recipe(
        "100,000 ratings of 1,682 films by 943 users",
        "ml-100k",
        ("u.data",),
        partial(originals.read_movielens, name="u.data", separator="\t"),
    ),
    "movielens/1m-ratings": Recipe(
        "1,000,209 ratings of 3,706 films by 6,040 users",
        "ml-1m",
        ("ratings.dat",),
        partial(originals.read_movielens, name="ratings.dat", separator="::"),
    ),
    "movielens/10m-ratings": Recipe(
        "10,000,054 ratings of 10,677 films by 69,878 users",
        "ml-10M100K",
        ("ratings.dat",),
        partial(originals.read_movielens, name="ratings.dat", separator="::"),
        tfds=False,
    ),
    "heart_disease": Recipe(
        "heart disease of the patients of four hospitals, 920 rows of 13 findings",
        "heart_disease",
        originals.HOSPITALS,
        originals.read_heart_disease,
        tfds=False,
        page="https://archive.ics.uci.edu/dataset/45/heart+disease",
    ),
    "shakespeare": Recipe(
        "next characters in the speeches of Shakespeare's roles, about 100,000 windows of 80",
        "tinyshakespeare",
        ("input.txt",),
        originals.read_shakespeare,
        tfds=False,
    ),
    "shakespeare/next": Recipe(
        "the next character at each of 80 positions, of Shakespeare's roles, 12,695 windows",
        "tinyshakespeare",
        ("input.txt",),
        characters.read_shakespeare_next,
        tfds=False,
    ),
    "leaf_shakespeare": Recipe(
        "LEAF: next characters of Shakespeare's roles, 4,226,158 windows of 80",
        "leaf_shakespeare",
        leaf.FILES,
        leaf.read_shakespeare,
        any_of=True,
        tfds=False,
    ),
    "leaf_shakespeare/next": Recipe(
        "LEAF: the next character at each of 80 positions, of Shakespeare's roles",
        "leaf_shakespeare",
        leaf.FILES,
        partial(leaf.read_shakespeare, positions=True),
        any_of=True,
        tfds=False,
    ),
    "femnist": Recipe(
        "LEAF: digits and letters of about 3,500 writers, 805,263 images 28x28",
        "femnist",
        leaf.FILES,
        leaf.read_femnist,
        any_of=True,
        tfds=False,
    ),
}


def has_published_files(name: str, folder: Path) -> bool:
    """Whether the published files of a set of `RECIPES` are below the folder."""
    recipe = RECIPES[name]
    enough = any if recipe.any_of else all
    return bool(recipe.files) and enough(
        holds(folder / recipe.folder, file) for file in recipe.files
    )


def holds(folder: Path, file: str) -> bool:
    """Whether a file, or one with a name of this pattern, is in the folder."""
    return any(folder.glob(file))


def file_stem(name: str) -> str:
    """The name of a set's file, without `.npz`: a slash becomes a hyphen.

    Raises:
      InputError: the name holds anything but letters, digits, `_ . -` and single slashes between
        them.
    """
    word = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
    valid = len(name) <= 100 and ".." not in name and re.fullmatch(f"{word}(/{word})*", name)
    check(
        bool(valid),
        f"{name!r:.80} is not the name of a data set: "
        "expected letters, digits, '_', '-', '.' and '/'",
    )
    return name.replace("/", "-")
