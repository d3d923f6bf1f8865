"""Windows of texts by their author, to predict the next character after each or at each position.

What becomes of them is as of other natural clients, see `by_owner`. Texts are code points until all
characters are known, which then have numbers from 0 on.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxfl.data.published.originals import Arrays, read_speeches
from jaxfl.data.published.owners import by_owner
from jaxfl.data.published.reading_progress import Track, no_progress

BLANKS = {"\n": "newline", " ": "space"}  # names of what cannot be seen


def number_characters(
    parts: Mapping[str, Sequence[tuple[np.ndarray, np.ndarray]]], characters: str
) -> Arrays:
    """The windows of all authors, with numbers in place of code points.

    Where each position has a label, characters that occur nowhere are left out, and those that are
    no label have the last numbers: a character has the same number in x and y.

    Args:
      parts: windows x [n, length] and the labels y [n] or [n, length] of each author, in pieces.
      characters: in the order of their numbers; all that occur, and perhaps more.

    Returns:
      x [N, length], the arrays of `by_owner`, `vocabulary`, and `words`, the characters 0, 1, ...

    Example:
      >>> x, y = np.array([[ord("b"), ord("a")]]), np.array([[ord("a"), ord("c")]])
      >>> arrays = number_characters({"ann": [(x, y)]}, "abcd")
      >>> arrays["words"].tolist(), arrays["x_train"].tolist(), arrays["y_train"].tolist()
      (['a', 'c', 'b'], [[2, 0]], [[0, 1]])
    """
    pairs = [pair for pieces in parts.values() for pair in pieces]
    if any(y.ndim == 2 for _, y in pairs):
        inputs, labels = (
            {chr(code) for pair in pairs for code in np.unique(pair[side])} for side in (0, 1)
        )
        present = [c for c in characters if c in labels]
        characters = "".join(present + [c for c in characters if c in inputs - labels])
    ids = np.zeros(1 + max(map(ord, characters)), np.uint8 if len(characters) <= 256 else np.int32)
    ids[[ord(c) for c in characters]] = np.arange(len(characters))
    numbered = {name: [(ids[x], ids[y]) for x, y in pieces] for name, pieces in parts.items()}
    return by_owner(numbered, [BLANKS.get(c, c) for c in characters]) | {
        "vocabulary": np.array([len(characters)]),
        "words": np.array(list(characters)),
    }


def each_position(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Windows with a label for each position, of windows with one label that overlap.

    A window continues the one before it if it begins with its second character and ends with its
    label. Of windows that continue each other every `length`-th is taken, so that a character is
    predicted once.

    Args:
      x: windows [n, length].
      y: the character after each [n].

    Returns:
      Windows and labels [k, length].

    Example:
      >>> x, y = np.array([[1, 2], [2, 3], [3, 4], [8, 9]]), np.array([3, 4, 5, 7])
      >>> [part.tolist() for part in each_position(x, y)]
      [[[1, 2], [3, 4], [8, 9]], [[2, 3], [4, 5], [9, 7]]]
    """
    labels = np.concatenate([x[:, 1:], y[:, None]], axis=1)
    continues = np.r_[False, (x[1:] == labels[:-1]).all(axis=1)][: len(x)]
    place = np.arange(len(x))
    begins = np.maximum.accumulate(np.where(continues, 0, place))
    rows = (place - begins) % x.shape[1] == 0
    return x[rows], labels[rows]


def read_shakespeare_next(folder: Path, track: Track = no_progress, *, length: int = 80) -> Arrays:
    """Tiny Shakespeare: the next character at each position of a window, by role.

    A role's speeches are joined and cut into windows that follow each other, of which the label of
    the last position is the first character of the next window. What is left at the end, fewer than
    `length` characters, is no window. There is no test set.

    Args:
      folder: with `input.txt`.
      track: shows progress.
      length: of a window.

    Returns:
      x and y [N, length], `vocabulary`, `words` and the arrays of `by_owner`.

    Raises:
      InputError: the file is missing or damaged.
    """
    parts = {}
    for role, speech in read_speeches(folder, track, length).items():
        codes = np.frombuffer(speech.encode("utf-32-le"), "<u4")
        windows = np.lib.stride_tricks.sliding_window_view(codes, length + 1)[::length]
        parts[role] = [(windows[:, :-1], windows[:, 1:])]
    codes = np.unique(np.concatenate([part for (pair,) in parts.values() for part in pair]))
    return number_characters(parts, "".join(map(chr, codes)))
