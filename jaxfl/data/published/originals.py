"""Data sets in the format in which they were published, read as plain arrays.

Each reader takes a folder and returns `x_train y_train x_test y_test`, where texts are lists of
strings. Some data also have `vocabulary` (the number of values of each integer feature), `words`
(what the ids of the features stand for) and `owners` (the natural client of each training row).
A missing or damaged file raises an `InputError`.
"""

import csv
import gzip
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.data.published.ratings import split_ratings
from jaxfl.data.published.reading_progress import Track, no_progress

Arrays = dict[str, Any]


def existing(path: Path) -> Path:
    """The path; raises an `InputError` if there is nothing."""
    check(path.exists(), f"{path} is missing: expected it in its published form")
    return path


def _read_text(file: Path, encoding: str = "utf-8") -> str:
    """A text file, which must end with a newline."""
    try:
        text = existing(file).read_bytes().decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{file} is not a text in {encoding} ({error}): download it again"
        ) from error
    check(text.endswith("\n"), f"{file} is cut off in the middle of a line: download it again")
    return text


def read_idx(folder: Path, checksums: Mapping[str, str], track: Track = no_progress) -> Arrays:
    """Images and labels in MNIST's IDX format: x uint8 [N, h, w, 1], y int32 [N].

    Args:
      folder: holds the four compressed files.
      checksums: md5 of each file, in the order train images, train labels, test images, test
        labels.
      track: shows progress.

    Raises:
      InputError: a file is missing, or differs from the published one.
    """
    contents = [
        _read_idx_array(folder / name, md5)
        for name, md5 in track(checksums.items(), "reading", len(checksums))
    ]
    arrays = {}
    for split, (x, y) in {"train": contents[:2], "test": contents[2:]}.items():
        check(
            x.ndim == 3 and y.shape == x.shape[:1],
            f"the {split} images in {folder} have shape {x.shape}, the labels {y.shape}: "
            "expected [n, h, w] and [n]",
        )
        arrays |= {f"x_{split}": x[..., None], f"y_{split}": y.astype(np.int32)}
    return arrays


def _read_idx_array(file: Path, md5: str) -> np.ndarray:
    """The array of bytes in one compressed IDX file."""
    data = existing(file).read_bytes()
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    check(
        digest == md5,
        f"{file} has the md5 {digest}: expected {md5} as published, download it again",
    )
    try:
        raw = gzip.decompress(data)
        if raw[:3] != b"\0\0\x08":  # two zeros, then the type: unsigned bytes
            raise ValueError(f"it starts with {raw[:3]}")
        shape = np.frombuffer(raw, ">u4", raw[3], offset=4)
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except Exception as error:
        raise InputError(
            f"{file} does not hold an IDX array of bytes ({error!r:.100}): download it again"
        ) from error


def read_topics_csv(folder: Path, classes: int, fields: int, track: Track = no_progress) -> Arrays:
    r"""Texts by topic, as Zhang et al. (2015) published Yahoo! Answers and AG's news.

    Each row of `train.csv` and `test.csv` is a class, from 1, and quoted texts. A quote inside is
    doubled, a line break is \n. See https://arxiv.org/abs/1509.01626.

    Args:
      folder: holds the two files.
      classes: number of topics.
      fields: number of texts in a row; they are joined to one.
      track: shows progress.
    """
    names = [str(i) for i in range(1, classes + 1)]
    arrays = {}
    for split in ("train", "test"):
        file = existing(folder / f"{split}.csv")
        texts = []
        labels = []
        try:
            with file.open(encoding="utf-8", newline="") as handle:
                rows = csv.reader(handle, strict=True)
                for row in track(rows, f"reading {file.name}", None):
                    check(
                        len(row) == 1 + fields and row[0] in names,
                        f"{file}, line {rows.line_num}: "
                        f"expected a class from 1 to {classes} and {fields} texts",
                    )
                    texts.append(" ".join(row[1:]).replace("\\n", " "))
                    labels.append(names.index(row[0]))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(
                f"{file} is not a csv file ({error}): it may be cut off, download it again"
            ) from error
        check(bool(texts), f"{file} is empty: download it again")
        arrays |= {f"x_{split}": texts, f"y_{split}": np.array(labels, np.int32)}
    return arrays


def read_newsgroups(folder: Path, track: Track = no_progress) -> Arrays:
    """20 Newsgroups, split by date: posts without headers; labels number the topics by name."""
    train = existing(folder / "20news-bydate-train")
    topics = sorted(entry.name for entry in train.iterdir() if entry.is_dir())
    check(bool(topics), f"{train} holds no topics: expected a folder for each")
    arrays = {}
    for split in ("train", "test"):
        whole = existing(folder / f"20news-bydate-{split}")
        posts = [
            (i, file)
            for i, topic in enumerate(topics)
            for file in sorted(existing(whole / topic).iterdir())
        ]
        texts = [_read_post(file) for _, file in track(posts, f"reading {whole.name}", len(posts))]
        check(bool(texts), f"{whole} holds no posts: download it again")
        arrays |= {f"x_{split}": texts, f"y_{split}": np.array([i for i, _ in posts], np.int32)}
    return arrays


def _read_post(file: Path) -> str:
    """A post without its header, which ends at the first blank line."""
    text = file.read_bytes().decode("latin-1").replace("\r\n", "\n")
    _, blank, rest = text.partition("\n\n")
    check(
        bool(blank),
        f"{file} has no blank line after its header: it may be cut off, download it again",
    )
    return rest


def read_movielens(folder: Path, name: str, separator: str, track: Track = no_progress) -> Arrays:
    """MovieLens ratings: lines of user, item, rating and time.

    Args:
      folder: holds the file.
      name: `u.data` of ml-100k, `ratings.dat` of ml-1m and ml-10M100K.
      separator: between the four numbers.
      track: shows progress.
    """
    file = folder / name
    lines = _read_text(file, "latin-1").replace(separator, "\t").split("\n")[:-1]
    try:
        rows = np.loadtxt(
            track(lines, f"reading {name}", len(lines)), delimiter="\t", ndmin=2, comments=None
        )
    except ValueError as error:
        raise InputError(f"{file} holds no ratings ({error!s:.200}): download it again") from error
    check(
        rows.shape[1] == 4,
        f"{file} has {rows.shape[1]} columns: "
        f"expected user, item, rating and time, separated by {separator!r}",
    )
    return split_ratings(rows[:, 0], rows[:, 1], rows[:, 2])


HOSPITALS = tuple(
    f"processed.{name}.data" for name in ("cleveland", "hungarian", "switzerland", "va")
)


def read_heart_disease(folder: Path, track: Track = no_progress) -> Arrays:
    """UCI's four hospitals: findings, diagnosis and hospital of each patient.

    Returns:
      x float32 [920, 13], NaN where a value is missing; y int32 [920], 0 for a healthy patient and
      1 otherwise; hospital int32 [920].

    Raises:
      InputError: a file is missing, or a row does not have 14 numbers or question marks.
    """
    rows = []
    hospital = []
    for number, name in enumerate(track(HOSPITALS, "reading", len(HOSPITALS))):
        for line in _read_text(folder / name).split():
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


def read_shakespeare(
    folder: Path, track: Track = no_progress, *, length: int = 80, examples: int = 100_000
) -> Arrays:
    """Tiny Shakespeare: predict a role's next character from the `length` characters before.

    Roles are the natural clients. A line `NAME:` at the start of a paragraph begins a speech. A
    role's speeches are joined and cut into overlapping windows, about `examples` for all roles
    together. Characters are numbered by their frequency as labels, most frequent first, so labels
    have no gaps; `words` holds the characters in that order. There is no test set: clients are
    tested on their own windows.
    """
    texts = list(read_speeches(folder, track, length).values())

    # Windows of `length` characters, and the character after each as its label.
    stride = max(1, round(sum(len(speech) - length for speech in texts) / examples))
    cuts = [
        (i, start)
        for i, speech in enumerate(texts)
        for start in range(0, len(speech) - length, stride)
    ]
    frequency = Counter(texts[i][start + length] for i, start in cuts)
    characters = sorted(set("".join(texts)), key=lambda c: (-frequency[c], c))
    ids = {character: i for i, character in enumerate(characters)}
    sequences = [np.array([ids[c] for c in speech], np.int32) for speech in texts]
    return {
        "x_train": np.stack([sequences[i][start : start + length] for i, start in cuts]),
        "y_train": np.array([sequences[i][start + length] for i, start in cuts], np.int32),
        "x_test": np.zeros((0, length), np.int32),
        "y_test": np.zeros(0, np.int32),
        "vocabulary": np.array([len(characters)]),
        "words": np.array(characters),
        "owners": np.array([i for i, _ in cuts], np.int32),
    }


def read_speeches(folder: Path, track: Track, length: int) -> dict[str, str]:
    """Tiny Shakespeare: what each role says that says more than `length` characters, by its name.

    A line `NAME:` at the start of a paragraph begins a speech; a role's speeches are joined.

    Args:
      folder: with `input.txt`.
      track: shows progress.
      length: in characters.

    Raises:
      InputError: the file is missing or damaged, or no role says as much.
    """
    text = _read_text(folder / "input.txt")
    speeches: dict[str, list[str]] = {}
    role = None
    for paragraph in track(text.strip().split("\n\n"), "reading input.txt", None):
        first, _, rest = paragraph.strip("\n").partition("\n")
        if first.endswith(":"):
            role = first[:-1]
            paragraph = rest
        if role is None:
            raise InputError(
                f"{folder / 'input.txt'} does not start with a line 'NAME:': download it again"
            )
        speeches.setdefault(role, []).append(paragraph)
    joined = {role: "\n".join(speeches[role]) for role in sorted(speeches)}
    joined = {role: speech for role, speech in joined.items() if len(speech) > length}
    check(
        bool(joined),
        f"no role in {folder / 'input.txt'} says more than {length} characters: download it again",
    )
    return joined
