"""LEAF's data sets, from the JSON files that its scripts write: FEMNIST and Shakespeare.

LEAF: Caldas et al., 2018, https://arxiv.org/abs/1812.01097, https://github.com/TalwalkarLab/leaf.
"""

import string
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.core.errors import InputError, check, warn
from jaxfl.data.published.characters import each_position, number_characters
from jaxfl.data.published.originals import Arrays, existing
from jaxfl.data.published.owners import by_owner, read_json
from jaxfl.data.published.reading_progress import Track, no_progress

# Where the files are, below the folder `data` of a set: one of these is enough.
FILES = ("train/*.json", "all_data/*.json", "*.json")
SIDE = 28
CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
LENGTH = 80  # characters of a window
# LEAF's numbers of the characters.
ALPHABET = (
    "\n !\"&'(),-.0123456789:;>?" + string.ascii_uppercase + "[]" + string.ascii_lowercase + "}"
)


def read_users(folder: Path, track: Track = no_progress) -> Iterator[tuple[Path, str, Any, Any]]:
    """The users of LEAF's files; one that is in several files comes several times.

    A file is an object of `users`, `num_samples` and `user_data`, which holds the lists x and y of
    each user. Files of `train` and `test` are read, else those of `all_data`, else those that lie
    in the folder itself.

    Args:
      folder: that LEAF calls `data`.
      track: shows progress.

    Returns:
      The file, the user, and its x and y, lists of the same length.

    Raises:
      InputError: files are missing or damaged, or hold other numbers of examples than they say.
    """
    if (folder / "train").is_dir():
        places = [folder / "train", existing(folder / "test")]
    else:
        places = [folder / "all_data" if (folder / "all_data").is_dir() else folder]
    files = [file for place in places for file in sorted(place.glob("*.json"))]
    check(bool(files), f"{places[0]} holds no file of JSON: expected those that LEAF writes")
    for file in track(files, "reading", len(files)):
        content = read_json(file)
        content = content if isinstance(content, dict) else {}
        users, counts, data = (content.get(key) for key in ("users", "num_samples", "user_data"))
        if not (isinstance(users, list) and isinstance(counts, list) and isinstance(data, dict)):
            raise InputError(
                f"{file} does not hold users, num_samples and user_data: expected JSON that LEAF "
                "writes"
            )
        check(
            len(users) == len(counts),
            f"{file} holds {len(users)} users and {len(counts)} numbers of examples: expected as "
            "many, make or download it again",
        )
        for user, count in zip(users, counts, strict=True):
            one = data.get(user) if isinstance(user, str) else None
            one = one if isinstance(one, dict) else {}
            x, y = one.get("x"), one.get("y")
            check(
                isinstance(x, list) and isinstance(y, list) and len(x) == len(y) == count,
                f"{file} does not hold {count!r:.20} examples x and labels y of the user "
                f"{user!r:.60}, as it says: make or download it again",
            )
            yield file, user, x, y


def labels(y: list, classes: int, where: str) -> np.ndarray:
    """Labels [n], int32.

    Args:
      y: as a file has them, integers from 0 (also as 1.0).
      classes: how many there are.
      where: they stand, for the message.

    Raises:
      InputError: they are no such numbers.

    Example:
      >>> labels([0, 1.0], 2, "all_data.json").tolist()
      [0, 1]
    """
    array = _array(y)
    check(
        array.shape == (len(y),)
        and array.dtype.kind in "uif"
        and bool(np.isin(array, np.arange(classes)).all()),
        f"{where} holds labels other than 0 to {classes - 1}: make or download it again",
    )
    return array.astype(np.int32)


def _array(values: list) -> np.ndarray:
    """An array of numbers, or an empty one where the values are none."""
    try:
        return np.asarray(values)
    except (ValueError, OverflowError):  # lists of different lengths, or deeper ones
        return np.zeros(0, object)


def read_femnist(folder: Path, track: Track = no_progress) -> Arrays:
    """FEMNIST: handwritten digits and letters, whose owners are the writers.

    The values of LEAF's pixels are bytes divided by 255, and become bytes again; the background is
    255. Labels are those of LEAF: digits, capitals, small letters.

    Args:
      folder: with LEAF's files, see `read_users`.
      track: shows progress.

    Returns:
      x uint8 [N, 28, 28, 1], and the arrays of `by_owner`.

    Raises:
      InputError: a file is missing or damaged, or holds other pixels or labels.
    """
    parts = defaultdict(list)
    for file, user, x, y in read_users(folder, track):
        where = f"{file}, user {user!r:.60},"
        if not y:
            continue
        pixels = _array(x)
        check(
            pixels.shape == (len(y), SIDE * SIDE) and pixels.dtype.kind in "uif",
            f"{where} holds examples of shape {pixels.shape[1:]}: expected {SIDE * SIDE} numbers "
            "each, make or download it again",
        )
        scaled = 255 * pixels.astype(np.float64)
        whole = np.round(scaled)
        check(
            bool(((whole >= 0) & (whole <= 255) & (np.abs(scaled - whole) < 0.05)).all()),
            f"{where} holds pixels that are no bytes divided by 255: make or download it again",
        )
        image = whole.astype(np.uint8).reshape(-1, SIDE, SIDE, 1)
        parts[user].append((image, labels(y, len(CHARACTERS), where)))
    return by_owner(parts, CHARACTERS)


def read_shakespeare(
    folder: Path, track: Track = no_progress, *, positions: bool = False
) -> Arrays:
    """Shakespeare: the next character of 80, whose owners are the roles of the plays.

    Characters have LEAF's numbers, in x and, where all of them occur, in y. Characters that LEAF's
    alphabet lacks, which its scripts take for one, follow with numbers of their own.

    Args:
      folder: with LEAF's files, see `read_users`.
      track: shows progress.
      positions: each position has the character after it as its label, of windows that do not
        overlap (`characters.each_position`); only characters that occur have numbers.

    Returns:
      x [N, 80], y [N] or [N, 80], and the other arrays of `characters.number_characters`.

    Raises:
      InputError: a file is missing or damaged, or holds other texts.
    """
    parts = defaultdict(list)
    others: set[str] = set()
    for file, user, x, y in read_users(folder, track):
        where = f"{file}, user {user!r:.60},"
        codes = _codes(x, LENGTH, where)
        following = _codes(y, 1, where)[:, 0]
        others |= {chr(c) for c in np.unique(codes)} | {chr(c) for c in np.unique(following)}
        windows = each_position(codes, following) if positions else (codes, following)
        parts[user].append(windows)
    others -= set(ALPHABET)
    if others:
        warn(
            f"{folder} holds characters that LEAF's alphabet lacks, such as {min(others)!r}: their "
            "numbers follow those of LEAF's"
        )
    return number_characters(parts, ALPHABET + "".join(sorted(others)))


def _codes(texts: list, length: int, where: str) -> np.ndarray:
    """The code points [n, length] of texts of one length."""
    check(
        all(isinstance(text, str) and len(text) == length for text in texts),
        f"{where} holds texts of other lengths than {LENGTH} in x and 1 in y: make or download it "
        "again",
    )
    try:
        data = "".join(texts).encode("utf-32-le")
    except UnicodeEncodeError as error:
        raise InputError(f"{where} holds no characters ({error!s:.80}): make it again") from error
    return np.frombuffer(data, "<u4").reshape(-1, length)
