"""Words to numbers: a vocabulary of the most frequent words, and texts as rows of their ids."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

from jaxfl.errors import check_positive

PADDING, UNKNOWN, RESERVED = 0, 1, 2  # ids; words start at RESERVED
WORD = re.compile(
    r"[^\W_]+(?:'[^\W_]+)*"
)  # letters and digits of any script, with apostrophes inside


def split(text: str) -> list[str]:
    """The words of a text in lower case; punctuation and underscores separate them."""
    return WORD.findall(text.lower())


def vocabulary(texts: Iterable[str], size: int) -> list[str]:
    """The most frequent words, most frequent first, those of equal frequency by alphabet.

    Args:
      texts: the training texts.
      size: how many words at most. Word i has the id i + 2: 0 is padding, 1 an unknown word.

    Raises:
      InputError: `size` is not positive.
    """
    check_positive(size=size)
    counts = Counter()
    for text in texts:
        counts.update(split(text))
    return sorted(counts, key=lambda word: (-counts[word], word))[:size]


def tokenise(
    texts: Iterable[str], words: Sequence[str], length: int
) -> Int[np.ndarray, "n length"]:
    """The ids of the first `length` words of each text, filled up with 0.

    Args:
      texts: [N].
      words: of `vocabulary`; all others are 1.
      length: words kept of each text.

    Returns:
      int32 [N, length].

    Raises:
      InputError: `length` is not positive.
    """
    check_positive(length=length)
    ids = {word: RESERVED + i for i, word in enumerate(words)}
    rows = []
    for text in texts:
        row = np.full(length, PADDING, np.int32)
        found = [ids.get(word, UNKNOWN) for word in split(text)[:length]]
        row[: len(found)] = found
        rows.append(row)
    return np.stack(rows) if rows else np.zeros((0, length), np.int32)
