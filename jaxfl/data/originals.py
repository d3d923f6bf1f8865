"""Data sets in the format in which they were published, read as plain arrays.

Each reader takes a folder and returns `x_train y_train x_test y_test`, of texts as lists of
strings, and where the data have them `vocabulary` (how many values each integer feature takes),
`words` (what the ids of the features stand for) and `owners` (the natural client of each training
row). A missing or damaged file is an `InputError`.
"""

import csv
import gzip
import hashlib
import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.errors import InputError, check

Arrays = dict[str, Any]
# (items, what is done with them, how many they are) -> the same items; shows how far the caller is
Track = Callable[[Iterable, str, int | None], Iterable]


def untracked(items: Iterable, text: str, total: int | None = None) -> Iterable:
    """Shows nothing."""
    return items


def expect(path: Path) -> Path:
    """The path, if there is such a file or folder."""
    check(path.exists(), f"{path} is missing: expected it in its published form")
    return path


def lines(file: Path, encoding: str = "utf-8") -> str:
    """A text file that must end with the end of a line."""
    try:
        text = expect(file).read_bytes().decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is no text in {encoding} ({error}): fetch it again") from error
    check(text.endswith("\n"), f"{file} is cut off in the middle of a line: fetch it again")
    return text


def idx(folder: Path, checksums: Mapping[str, str], track: Track = untracked) -> Arrays:
    """Images and labels in MNIST's IDX format: x uint8 [N, h, w, 1], y int32 [N].

    Args:
      folder: with the four compressed files.
      checksums: md5 of each file, in the order train images, train labels, test images, test
        labels.
      track: shows progress.

    Raises:
      InputError: also if a file is not the published one.
    """
    held = [
        idx_array(folder / name, md5)
        for name, md5 in track(checksums.items(), "reading", len(checksums))
    ]
    arrays = {}
    for part, (x, y) in {"train": held[:2], "test": held[2:]}.items():
        check(
            x.ndim == 3 and y.shape == x.shape[:1],
            f"the {part} images in {folder} have shape {x.shape}, the labels {y.shape}: expected [n, h, w] and [n]",
        )
        arrays |= {f"x_{part}": x[..., None], f"y_{part}": y.astype(np.int32)}
    return arrays


def idx_array(file: Path, md5: str) -> np.ndarray:
    """The array of bytes in one compressed IDX file."""
    packed = expect(file).read_bytes()
    found = hashlib.md5(packed, usedforsecurity=False).hexdigest()
    check(found == md5, f"{file} has the md5 {found}: expected {md5} as published, fetch it again")
    try:
        raw = gzip.decompress(packed)
        if raw[:3] != b"\0\0\x08":  # the mark of unsigned bytes
            raise ValueError(f"it starts with {raw[:3]}")
        shape = np.frombuffer(raw, ">u4", raw[3], offset=4)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except Exception as error:
        raise InputError(
            f"{file} holds no IDX array of bytes ({error!r:.100}): fetch it again"
        ) from error


def topics_csv(folder: Path, classes: int, fields: int, track: Track = untracked) -> Arrays:
    r"""Texts by topic, as Zhang et al. (2015) published Yahoo! Answers and AG's news.

    Each row of `train.csv` and `test.csv` is a class from 1 and texts in quotes, a quote doubled, a
    new line as \n.

    Args:
      folder: with the two files.
      classes: how many topics there are.
      fields: how many texts a row has; they are joined to one.
      track: shows progress.
    """
    known = [str(i) for i in range(1, classes + 1)]
    arrays = {}
    for part in ("train", "test"):
        file = expect(folder / f"{part}.csv")
        texts, labels = [], []
        try:
            with file.open(encoding="utf-8", newline="") as opened:
                rows = csv.reader(opened, strict=True)
                for row in track(rows, f"reading {file.name}", None):
                    check(
                        len(row) == 1 + fields and row[0] in known,
                        f"{file}, line {rows.line_num}: expected a class from 1 to {classes} and {fields} texts",
                    )
                    texts.append(" ".join(row[1:]).replace("\\n", " "))
                    labels.append(known.index(row[0]))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(
                f"{file} is no csv file ({error}): it may be cut off, fetch it again"
            ) from error
        check(bool(texts), f"{file} is empty: fetch it again")
        arrays |= {f"x_{part}": texts, f"y_{part}": np.array(labels, np.int32)}
    return arrays


def newsgroups(folder: Path, track: Track = untracked) -> Arrays:
    """20 Newsgroups sorted by date: the posts without their headers, and the topic's number by alphabet."""
    trained = expect(folder / "20news-bydate-train")
    topics = sorted(entry.name for entry in trained.iterdir() if entry.is_dir())
    check(bool(topics), f"{trained} holds no topics: expected a folder for each")
    arrays = {}
    for part in ("train", "test"):
        whole = expect(folder / f"20news-bydate-{part}")
        posts = [
            (i, file)
            for i, topic in enumerate(topics)
            for file in sorted(expect(whole / topic).iterdir())
        ]
        texts = [body(file) for _, file in track(posts, f"reading {whole.name}", len(posts))]
        check(bool(texts), f"{whole} holds no posts: fetch it again")
        arrays |= {f"x_{part}": texts, f"y_{part}": np.array([i for i, _ in posts], np.int32)}
    return arrays


def body(file: Path) -> str:
    """A post without its header, which ends at the first blank line."""
    text = file.read_bytes().decode("latin-1").replace("\r\n", "\n")
    _, blank, rest = text.partition("\n\n")
    check(
        bool(blank), f"{file} has no blank line after its header: it may be cut off, fetch it again"
    )
    return rest


def movielens(folder: Path, name: str, separator: str, track: Track = untracked) -> Arrays:
    """MovieLens ratings: lines of user, item, rating and time.

    Args:
      folder: with the file.
      name: `u.data` of ml-100k, `ratings.dat` of ml-1m.
      separator: between the four numbers.
      track: shows progress.
    """
    file = folder / name
    text = lines(file, "latin-1").replace(separator, "\t")
    track((), f"reading {name}", None)
    try:
        rows = np.loadtxt(io.StringIO(text), delimiter="\t", ndmin=2, comments=None)
    except ValueError as error:
        raise InputError(f"{file} holds no ratings ({error!s:.200}): fetch it again") from error
    check(
        rows.shape[1] == 4,
        f"{file} has {rows.shape[1]} columns: expected user, item, rating and time, separated by {separator!r}",
    )
    return rated(rows[:, 0], rows[:, 1], rows[:, 2])


def rated(
    user: np.ndarray, item: np.ndarray, rating: np.ndarray, *, test: float = 0.2, seed: int = 0
) -> Arrays:
    """Ratings as arrays, a fifth of each user's for testing.

    Users and items are numbered from 0 in the order of their published numbers, and rows are sorted
    by them, so the split does not depend on the order in the file.

    Args:
      user: [N] published numbers.
      item: [N].
      rating: [N].
      test: fraction of each user's ratings that tests, rounded down.
      seed: of the choice.

    Returns:
      x int32 [N, 2] (user, item), y float32 rating, the vocabulary (users, items), and each
      training row's user.
    """
    user, users = renumbered(user)
    item, items = renumbered(item)
    order = np.lexsort((item, user))
    x, y = np.stack([user, item], axis=1)[order], rating[order].astype(np.float32)
    counts = np.bincount(x[:, 0])
    shuffled = np.lexsort((np.random.default_rng(seed).random(len(x)), x[:, 0]))  # within each user
    place = np.empty(len(x), int)
    place[shuffled] = np.arange(len(x)) - np.repeat(np.cumsum(counts) - counts, counts)
    tests = place < (counts * test).astype(int)[x[:, 0]]
    return {
        "x_train": x[~tests],
        "y_train": y[~tests],
        "x_test": x[tests],
        "y_test": y[tests],
        "vocabulary": np.array([users, items]),
        "owners": x[~tests, 0],
    }


def renumbered(numbers: np.ndarray) -> tuple[np.ndarray, int]:
    """The rank of each number among the different ones, and how many these are."""
    different, ranks = np.unique(numbers, return_inverse=True)
    return ranks.astype(np.int32), len(different)


HOSPITALS = tuple(
    f"processed.{name}.data" for name in ("cleveland", "hungarian", "switzerland", "va")
)


def heart_disease(folder: Path, track: Track = untracked) -> Arrays:
    """UCI's four hospitals: x float32 [920, 13] (NaN where missing), y int32 (0 healthy, 1 not), hospital int32.

    Raises:
      InputError: a file is missing, or a row has not 14 numbers or question marks.
    """
    rows, hospital = [], []
    for number, name in enumerate(track(HOSPITALS, "reading", len(HOSPITALS))):
        for line in lines(folder / name).split():
            try:
                row = [np.nan if value == "?" else float(value) for value in line.split(",")]
            except ValueError:
                row = []
            check(
                len(row) == 14,
                f"{folder / name} holds {line!r:.60}: expected 14 numbers or question marks a row",
            )
            rows.append(row)
            hospital.append(number)
    table = np.array(rows, np.float32)
    disease = (table[:, 13] > 0).astype(np.int32)
    return {"x": table[:, :13], "y": disease, "hospital": np.array(hospital, np.int32)}


def shakespeare(
    folder: Path, track: Track = untracked, *, length: int = 80, examples: int = 100_000
) -> Arrays:
    """Tiny Shakespeare: predict a role's next character from the `length` before; roles are the natural clients.

    A line `NAME:` at the start of a paragraph begins a speech. A role's speeches are joined and cut
    in overlapping windows, of all roles together about `examples`. Characters are numbered by how
    often they are to be predicted, so the labels have no gaps; `words` holds them in that order.
    There is no test set: clients test on their own windows.
    """
    text = lines(expect(folder / "input.txt"))
    speeches: dict[str, list[str]] = {}
    role = None
    for paragraph in track(text.strip().split("\n\n"), "reading input.txt", None):
        first, _, rest = paragraph.strip("\n").partition("\n")
        if first.endswith(":"):
            role, paragraph = first[:-1], rest
        check(
            role is not None,
            f"{folder / 'input.txt'} does not start with a line 'NAME:': fetch it again",
        )
        speeches.setdefault(role, []).append(paragraph)
    joined = ["\n".join(speeches[role]) for role in sorted(speeches)]
    joined = [speech for speech in joined if len(speech) > length]
    check(
        bool(joined),
        f"no role in {folder / 'input.txt'} says more than {length} characters: fetch it again",
    )
    stride = max(1, round(sum(len(speech) - length for speech in joined) / examples))
    cuts = [
        (i, start)
        for i, speech in enumerate(joined)
        for start in range(0, len(speech) - length, stride)
    ]
    said = Counter(joined[i][start + length] for i, start in cuts)
    characters = sorted(set("".join(joined)), key=lambda c: (-said[c], c))
    ids = {character: i for i, character in enumerate(characters)}
    coded = [np.array([ids[c] for c in speech], np.int32) for speech in joined]
    return {
        "x_train": np.stack([coded[i][start : start + length] for i, start in cuts]),
        "y_train": np.array([coded[i][start + length] for i, start in cuts], np.int32),
        "x_test": np.zeros((0, length), np.int32),
        "y_test": np.zeros(0, np.int32),
        "vocabulary": np.array([len(characters)]),
        "words": np.array(characters),
        "owners": np.array([i for i, _ in cuts], np.int32),
    }
