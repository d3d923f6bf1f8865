import gzip
import hashlib
import re
from collections import Counter
from functools import partial

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data import load
from jaxfl.data.published.originals import (
    HOSPITALS,
    read_heart_disease,
    read_idx,
    read_movielens,
    read_newsgroups,
    read_shakespeare,
    read_topics_csv,
)


def fails(read, message):
    """The reader raises an `InputError` of one line."""
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read()
    assert "\n" not in str(caught.value)


# IDX


def packed(array, mark=b"\0\0\x08"):
    shape = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return gzip.compress(mark + bytes([array.ndim]) + shape + array.tobytes())


@pytest.fixture
def digits(tmp_path):
    """Four IDX files, their arrays, and a function that reads them with their true checksums."""
    rng = np.random.default_rng(0)
    held = {
        "train-images": rng.integers(0, 256, (7, 4, 3), np.uint8),
        "train-labels": rng.integers(0, 10, 7, np.uint8),
        "test-images": rng.integers(0, 256, (2, 4, 3), np.uint8),
        "test-labels": rng.integers(0, 10, 2, np.uint8),
    }
    for name, array in held.items():
        (tmp_path / name).write_bytes(packed(array))

    def read():
        sums = {
            n: hashlib.md5((tmp_path / n).read_bytes()).hexdigest()
            for n in held
            if (tmp_path / n).exists()
        }
        return read_idx(tmp_path, dict.fromkeys(held, "") | sums)

    return tmp_path, held, read


def test_idx(digits):
    _, held, read = digits
    arrays = read()
    for part in ("train", "test"):
        np.testing.assert_array_equal(arrays[f"x_{part}"], held[f"{part}-images"][..., None])
        np.testing.assert_array_equal(arrays[f"y_{part}"], held[f"{part}-labels"])
    assert (arrays["x_train"].dtype, arrays["y_train"].dtype) == (np.uint8, np.int32)


def test_idx_of_another_checksum(digits):
    folder, held, _ = digits
    fails(
        lambda: read_idx(folder, dict.fromkeys(held, "0" * 32)), "as published, download it again"
    )


def test_idx_missing(digits):
    folder, _, read = digits
    (folder / "test-labels").unlink()
    fails(read, f"{folder / 'test-labels'} is missing")


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-9],
        lambda raw: b"",
        lambda raw: gzip.compress(gzip.decompress(raw)[:-1]),
        lambda raw: gzip.compress(gzip.decompress(raw)[:6]),
        lambda raw: gzip.compress(gzip.decompress(raw) + b"x"),
        lambda raw: packed(np.zeros((7, 4, 3), np.uint8), mark=b"\0\0\x0d"),
    ],
)
def test_idx_damaged(digits, damage):
    folder, _, read = digits
    file = folder / "train-images"
    file.write_bytes(damage(file.read_bytes()))
    fails(read, f"{file} does not hold an IDX array of bytes")


def test_idx_of_other_lengths(digits):
    folder, _, read = digits
    (folder / "test-labels").write_bytes(packed(np.zeros(3, np.uint8)))
    fails(read, "have shape (2, 4, 3), the labels (3,)")


# Yahoo! Answers, AG's news

TRAIN = '"5","why is ""it"" so?","","one\\ntwo, three"\n"10","ünï","code","x"\n'
TEST = '"1","a","b","c"\n'


@pytest.fixture
def yahoo(tmp_path):
    (tmp_path / "train.csv").write_bytes(TRAIN.encode())
    (tmp_path / "test.csv").write_bytes(TEST.encode())
    return tmp_path, partial(read_topics_csv, tmp_path, classes=10, fields=3)


def test_topics(yahoo):
    _, read = yahoo
    arrays = read()
    assert arrays["x_train"] == ['why is "it" so?  one two, three', "ünï code x"]
    assert arrays["x_test"] == ["a b c"]
    np.testing.assert_array_equal(arrays["y_train"], [4, 9])
    np.testing.assert_array_equal(arrays["y_test"], [0])


def test_topics_of_news(tmp_path):
    for part in ("train", "test"):
        (tmp_path / f"{part}.csv").write_text('"4","title","said \\$5"\n')
    arrays = read_topics_csv(tmp_path, classes=4, fields=2)
    assert arrays["x_train"] == ["title said \\$5"]
    np.testing.assert_array_equal(arrays["y_train"], [3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRAIN[:-5], "train.csv, line 2: expected a class from 1 to 10 and 3 texts"),
        (TRAIN[:-2], "train.csv is not a csv file (unexpected end of data): it may be cut off"),
        (TRAIN + '"3","only a tit', "train.csv is not a csv file"),
        (TRAIN + '"11","a","b","c"\n', "train.csv, line 3: expected a class from 1 to 10"),
        (TRAIN + '"0","a","b","c"\n', "train.csv, line 3: expected a class from 1 to 10"),
        (TRAIN + "\n", "train.csv, line 3: expected"),
        ("", "train.csv is empty"),
    ],
)
def test_topics_damaged(yahoo, text, message):
    folder, read = yahoo
    (folder / "train.csv").write_bytes(text.encode())
    fails(read, message)


def test_topics_missing_or_of_another_encoding(yahoo):
    folder, read = yahoo
    (folder / "train.csv").write_bytes(TRAIN.encode("latin-1"))
    fails(read, "train.csv is not a csv file ('utf-8' codec")
    (folder / "train.csv").write_bytes(TRAIN.encode())
    (folder / "test.csv").unlink()
    fails(read, f"{folder / 'test.csv'} is missing")


# MovieLens

RATINGS = [
    (7, 30, 5, 1),
    (7, 10, 3, 2),
    (7, 20, 1, 3),
    (7, 40, 4, 4),
    (7, 50, 2, 5),
    (2, 20, 4, 6),
    (2, 50, 1, 7),
]


def ratings(folder, name, separator, rows=RATINGS, end="\n"):
    (folder / name).write_text("\n".join(separator.join(map(str, row)) for row in rows) + end)
    return partial(read_movielens, folder, name=name, separator=separator)


@pytest.mark.parametrize(("name", "separator"), [("u.data", "\t"), ("ratings.dat", "::")])
def test_movielens(tmp_path, name, separator):
    arrays = ratings(tmp_path, name, separator)()
    users, items = {2: 0, 7: 1}, {10: 0, 20: 1, 30: 2, 40: 3, 50: 4}
    truth = Counter((users[u], items[i], float(r)) for u, i, r, _ in RATINGS)
    both = [(arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test")]
    assert (
        Counter((*x, y) for xs, ys in both for x, y in zip(xs.tolist(), ys.tolist(), strict=True))
        == truth
    )
    np.testing.assert_array_equal(arrays["vocabulary"], [2, 5])
    np.testing.assert_array_equal(arrays["owners"], arrays["x_train"][:, 0])
    np.testing.assert_array_equal(arrays["x_test"][:, 0], [1])  # a fifth of five; none of two
    assert (arrays["x_train"].dtype, arrays["y_train"].dtype) == (np.int32, np.float32)


def test_ten_million_ratings_have_half_stars_and_a_recipe(tmp_path):
    folder = tmp_path / "ml-10M100K"
    folder.mkdir()
    rows = [
        (user, item, (user + item) % 10 / 2 + 0.5, 838985046)
        for user in (3, 8)
        for item in range(5)
    ]
    ratings(folder, "ratings.dat", "::", rows)
    source = load("movielens/10m-ratings", tmp_path)
    assert (source.classes, source.vocabulary) == (0, (2, 5))
    assert set(source.y_train) | set(source.y_test) == {(3 + i) % 10 / 2 + 0.5 for i in range(10)}
    np.testing.assert_array_equal(source.owners, [0] * 4 + [1] * 4)
    assert (tmp_path / "movielens-10m-ratings.npz").exists()


def test_the_split_is_a_fifth_of_each_user_by_chance_and_of_the_ratings_not_of_their_order(
    tmp_path,
):
    rng = np.random.default_rng(0)
    rows = [
        (u, i, rng.integers(1, 6), 0)
        for u in range(1, 31)
        for i in rng.permutation(80)[: rng.integers(20, 80)]
    ]
    one = ratings(tmp_path, "u.data", "\t", rows)()
    rng.shuffle(rows)
    two = ratings(tmp_path, "u.data", "\t", rows)()
    for key in one:
        np.testing.assert_array_equal(one[key], two[key])
    counts = np.array([sum(u == user for u, *_ in rows) for user in range(1, 31)])
    np.testing.assert_array_equal(np.bincount(one["x_test"][:, 0]), counts // 5)
    assert 30 < one["x_test"][:, 1].mean() < 49  # not always a user's first or last items


@pytest.mark.parametrize(
    ("rows", "end", "message"),
    [
        (RATINGS, "", "ratings.dat is cut off in the middle of a line"),
        ([*RATINGS, (7, 30)], "\n", "ratings.dat holds no ratings"),
        ([*RATINGS, (7, 30, "five", 1)], "\n", "ratings.dat holds no ratings"),
        ([(1, 2, 3)], "\n", "ratings.dat has 3 columns"),
    ],
)
def test_movielens_damaged(tmp_path, rows, end, message):
    fails(ratings(tmp_path, "ratings.dat", "::", rows, end), message)


def test_movielens_missing(tmp_path):
    fails(lambda: read_movielens(tmp_path, "u.data", "\t"), f"{tmp_path / 'u.data'} is missing")


# 20 Newsgroups


@pytest.fixture
def posts(tmp_path):
    for part, topic, number, text in [
        ("train", "sci.space", "9", "From: a@b\nSubject: x\n\nto orbit\n\nand back\n"),
        ("train", "sci.space", "10", "From: a\n\n"),
        ("train", "alt.x", "3", "From: a\r\nLines: 1\r\n\r\ncaf\xe9\r\n"),
        ("test", "sci.space", "7", "From: a\n\nlaunch"),
    ]:
        folder = tmp_path / f"20news-bydate-{part}" / topic
        folder.mkdir(parents=True, exist_ok=True)
        (folder / number).write_bytes(text.encode("latin-1"))
    (tmp_path / "20news-bydate-test" / "alt.x").mkdir()
    return tmp_path


def test_newsgroups(posts):
    arrays = read_newsgroups(posts)
    assert arrays["x_train"] == ["café\n", "", "to orbit\n\nand back\n"]
    np.testing.assert_array_equal(arrays["y_train"], [0, 1, 1])
    assert arrays["x_test"] == ["launch"]
    np.testing.assert_array_equal(arrays["y_test"], [1])


def test_newsgroups_damaged_or_missing(posts):
    file = posts / "20news-bydate-test" / "sci.space" / "7"
    file.write_bytes(b"From: a\nSub")
    fails(lambda: read_newsgroups(posts), f"{file} has no blank line after its header")
    file.unlink()
    fails(lambda: read_newsgroups(posts), "holds no posts")
    (posts / "20news-bydate-test" / "alt.x").rmdir()
    fails(lambda: read_newsgroups(posts), f"{posts / '20news-bydate-test' / 'alt.x'} is missing")
    fails(lambda: read_newsgroups(posts / "20news-bydate-test"), "20news-bydate-train is missing")


# Shakespeare

PLAY = "BOB:\nabcabc\nso: he\n\nANN:\nxyxyxyxyx\n\nMUTE:\nno\n\nBOB:\nand thus:\nd\n"


def test_shakespeare(tmp_path):
    (tmp_path / "input.txt").write_text(PLAY)
    arrays = read_shakespeare(tmp_path, length=4)
    speeches = ["xyxyxyxyx", "abcabc\nso: he\nand thus:\nd"]  # ANN, BOB; MUTE says too little
    windows = [
        (s[i : i + 4], s[i + 4], role) for role, s in enumerate(speeches) for i in range(len(s) - 4)
    ]
    words = arrays["words"]
    found = [
        ("".join(words[x]), words[y], owner)
        for x, y, owner in zip(arrays["x_train"], arrays["y_train"], arrays["owners"], strict=True)
    ]
    assert found == windows
    np.testing.assert_array_equal(
        np.unique(arrays["y_train"]), np.arange(arrays["y_train"].max() + 1)
    )  # no gaps
    assert set(words) == set("".join(speeches))
    np.testing.assert_array_equal(arrays["vocabulary"], [len(words)])
    assert (arrays["x_test"].shape, arrays["y_test"].shape) == ((0, 4), (0,))
    assert all(
        arrays[key].dtype == np.int32
        for key in ("x_train", "y_train", "x_test", "y_test", "owners")
    )


def test_shakespeare_is_thinned_to_about_so_many_examples(tmp_path):
    (tmp_path / "input.txt").write_text("A:\n" + "ab" * 500 + "\n\nB:\n" + "cd" * 500 + "\n")
    arrays = read_shakespeare(tmp_path, examples=200)
    assert 150 < len(arrays["x_train"]) < 260
    assert arrays["x_train"].shape[1] == 80


def test_shakespeare_damaged_or_missing(tmp_path):
    fails(lambda: read_shakespeare(tmp_path), f"{tmp_path / 'input.txt'} is missing")
    for text, message in [
        (PLAY[:-1], "input.txt is cut off"),
        ("Once upon a time\n", "does not start with a line 'NAME:'"),
        (PLAY, "says more than 80 characters"),
    ]:
        (tmp_path / "input.txt").write_text(text)
        fails(lambda: read_shakespeare(tmp_path), message)


def test_heart_disease(tmp_path):
    row = "63.0,1.0,1.0,145.0,?,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,{}"
    for number, name in enumerate(HOSPITALS):
        (tmp_path / name).write_text(
            "".join(row.format(disease) + "\n" for disease in (0, number + 1))
        )
    arrays = read_heart_disease(tmp_path)
    assert arrays["x"].shape == (8, 13)
    assert np.isnan(arrays["x"][:, 4]).all()
    assert arrays["x"][0, 9] == np.float32(2.3)
    assert arrays["y"].tolist() == [0, 1] * 4
    assert arrays["hospital"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    (tmp_path / HOSPITALS[2]).write_text("1,2,x\n")
    with pytest.raises(InputError, match="expected 14 numbers or question marks a row"):
        read_heart_disease(tmp_path)
    (tmp_path / HOSPITALS[2]).unlink()
    with pytest.raises(InputError, match="is missing"):
        read_heart_disease(tmp_path)
