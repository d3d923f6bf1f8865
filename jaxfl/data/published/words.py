"""Texts as rows of word ids, with a vocabulary of the most frequent words."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

from jaxfl.core.options import POSITIVE, check_range

PADDING = 0  # the id that fills up short texts
UNKNOWN = 1  # the id of a word outside the vocabulary
RESERVED = 2  # the id of the first word of the vocabulary

# Letters and digits of any script, with apostrophes inside.
WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def find_words(text: str) -> list[str]:
    """The words of a text in lower case; punctuation and underscores separate them."""
    return WORD.findall(text.lower())


def build_vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """The most frequent words, most frequent first; ties are in alphabetical order.

    Args:
      texts: the training texts.
      size: largest number of words. Word i has the id i + 2: 0 is padding, 1 an unknown word.

    Raises:
      InputError: `size` is not positive.
    """
    check_range(POSITIVE, size=size)
    counts = Counter()
    for text in texts:
        counts.update(find_words(text))
    return sorted(counts, key=lambda word: (-counts[word], word))[:size]


def tokenise(
    texts: Iterable[str], words: Sequence[str], length: int
) -> Int[np.ndarray, "n length"]:
    """The ids of the first `length` words of each text, padded with 0.

    Args:
      texts: [N].
      words: of `build_vocabulary`; any other word has the id 1.
      length: words kept of each text.

    Returns:
      int32 [N, length].

    Raises:
      InputError: `length` is not positive.
    """
    check_range(POSITIVE, length=length)
    ids = {word: RESERVED + i for i, word in enumerate(words)}
    rows = []
    for text in texts:
        row = np.full(length, PADDING, np.int32)
        tokens = [ids.get(word, UNKNOWN) for word in find_words(text)[:length]]
        row[: len(tokens)] = tokens
        rows.append(row)
    return np.stack(rows) if rows else np.zeros((0, length), np.int32)
