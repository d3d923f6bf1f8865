import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data.published.words import build_vocabulary, find_words, tokenise

TEXTS = ["The cat, the DOG.", "A cat's dog: don't!", ""]


def test_words_are_lower_case_and_of_any_script():
    assert find_words("Don't STOP__me 3.5 (Größe, 東京)") == [
        "don't",
        "stop",
        "me",
        "3",
        "5",
        "größe",
        "東京",
    ]
    assert find_words("'quoted' --- ___") == ["quoted"]


def test_the_most_frequent_words_come_first_and_ties_by_alphabet():
    words = ["dog", "the", "a", "cat", "cat's", "don't"]
    assert build_vocabulary(TEXTS, 100) == words
    assert build_vocabulary(reversed(TEXTS), 4) == words[:4]
    assert build_vocabulary([], 4) == []


def test_ids_of_words():
    ids = tokenise(TEXTS, ["dog", "the", "cat"], 3)
    assert ids.dtype == np.int32
    # the cat the (dog is cut off); a cat's dog; nothing
    np.testing.assert_array_equal(ids, [[3, 4, 3], [1, 1, 2], [0, 0, 0]])
    np.testing.assert_array_equal(tokenise(TEXTS[:1], ["dog"], 6), [[1, 1, 1, 2, 0, 0]])
    assert tokenise([], ["dog"], 3).shape == (0, 3)


def test_ids_and_words_are_inverse():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.zipf(1.5, 30) % 50) for _ in range(200)]
    words = build_vocabulary(texts, 1000)
    back = [" ".join(words[i - 2] for i in row) for row in tokenise(texts, words, 30)]
    assert back == texts


def test_sizes_are_positive():
    with pytest.raises(InputError, match="size is 0"):
        build_vocabulary(TEXTS, 0)
    with pytest.raises(InputError, match="length is 0"):
        tokenise(TEXTS, ["a"], 0)
