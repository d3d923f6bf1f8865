"""Texts as ids by the tokenizer that a model was trained with, a tokenizer.json of Hugging Face."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from jaxfl.core.errors import InputError, check
from jaxfl.core.options import POSITIVE, check_range, checked

# Where a shorter text has ended.
NO_ID = -1
LONGEST = 100_000  # ids kept of a text


@checked
def text_ids(
    texts: Sequence[str], tokenizer: str | Path, length: int = 128
) -> Int[np.ndarray, "n length"]:
    """The ids of each text, as `bert`, `llama`, `transformer`, `lstm` and `textcnn` take them.

    Marks that the tokenizer sets, such as [CLS] and [SEP], are among them, and stay where a text is
    cut.

    Args:
      texts: [N].
      tokenizer: the path of a tokenizer.json. The package `tokenizers` reads it.
      length: ids kept of a text.

    Returns:
      int32 [N, length], -1 where a shorter text has ended.

    Raises:
      InputError: the file is no tokenizer, or `tokenizers` is not installed.

    Example:
      >>> text_ids(["no such file"], "tokenizer.json")
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: cannot read the tokenizer tokenizer.json (...
    """
    check_length(length)
    return padded(encoded(texts, read_tokenizer(Path(tokenizer)), length=length), length)


def check_length(length: int) -> None:
    """Raises an `InputError` unless a text may be cut to so many ids.

    Args:
      length: ids kept of a text.
    """
    check_range(POSITIVE, length=length)
    check(length <= LONGEST, f"length is {length}: expected at most {LONGEST:,} ids of a text")


def read_tokenizer(file: Path) -> Any:
    """The tokenizer of a file, which neither cuts nor fills up.

    Raises:
      InputError: as `text_ids`.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise InputError(
            "a tokenizer.json is read by the package tokenizers, which is not installed: "
            "pip install 'jaxfl[text]'"
        ) from error
    try:
        tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the package has no type of its own
        raise InputError(
            f"cannot read the tokenizer {file} ({error!s:.100}): give the tokenizer.json that lies "
            "beside the weights"
        ) from error
    check(
        0 < vocabulary_of(tokenizer) < 2**31,
        f"the tokenizer {file} has no ids, or too large ones: give the tokenizer.json that lies "
        "beside the weights",
    )
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def vocabulary_of(tokenizer: Any) -> int:
    """How many ids there are: one more than the largest.

    Args:
      tokenizer: of `read_tokenizer`.
    """
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def encoded(
    texts: Sequence[str], tokenizer: Any, *, length: int | None = None, marks: bool = True
) -> list[list[int]]:
    """The ids of each text.

    Args:
      texts: [N].
      tokenizer: of `read_tokenizer`.
      length: ids kept of a text; None: all.
      marks: whether the tokenizer sets its marks, such as [CLS].
    """
    if length is not None:
        least = tokenizer.num_special_tokens_to_add(is_pair=False) if marks else 0
        check(
            length > least,
            f"length is {length}, and the tokenizer sets {least} marks in each text: give more",
        )
        tokenizer.enable_truncation(length)
    try:
        found = tokenizer.encode_batch(list(texts), add_special_tokens=marks)
    except Exception as error:  # the package has no type of its own
        raise InputError(
            f"the tokenizer cannot number these texts ({error!s:.100}): give that of the model"
        ) from error
    tokenizer.no_truncation()
    return [one.ids for one in found]


def padded(rows: Sequence[Sequence[int]], length: int) -> Int[np.ndarray, "n length"]:
    """Rows of ids as one array, -1 behind the end of each.

    Example:
      >>> padded([[5, 6], [7]], 3).tolist()
      [[5, 6, -1], [7, -1, -1]]
    """
    array = np.full((len(rows), length), NO_ID, np.int32)
    for place, row in enumerate(rows):
        array[place, : len(row)] = row
    return array
