"""FEMNIST and Shakespeare: stand-ins in the format of LEAF."""

import json

import numpy as np
import pytest
from refusals import fails

from jaxfl.core.errors import RunWarning
from jaxfl.data import load
from jaxfl.data.published.prepare_published import prepare

RNG = np.random.default_rng(0)


def write(path, users, /, **changes):
    """A file of LEAF: users with their x and y."""
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content | changes))


# FEMNIST


@pytest.fixture
def writers(tmp_path):
    """Bytes and labels of three writers, in two files of LEAF's folder all_data."""
    held = {}
    for name, labels in {"f10_1": [0, 10, 36], "f2_5": [61, 0], "f9_0": [10] * 4}.items():
        held[name] = (RNG.integers(0, 256, (len(labels), 784)), labels)
    scaled = {name: ((x / 255).tolist(), y) for name, (x, y) in held.items()}
    folder = tmp_path / "femnist" / "all_data"
    write(folder / "all_data_0.json", {name: scaled[name] for name in ("f10_1", "f9_0")})
    write(folder / "all_data_1.json", {"f2_5": scaled["f2_5"]})
    return tmp_path, held


def examples_of(source, name):
    """x and the names of the labels of an owner."""
    mine = source.owners == source.owner_names.index(name)
    return source.x_train[mine], [source.class_names[label] for label in source.y_train[mine]]


@pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")
def test_femnist_has_the_bytes_and_characters_of_each_writer(writers):
    folder, held = writers
    assert prepare("femnist", folder) == folder / "femnist.npz"
    source = load("femnist", folder)
    assert source.owner_names == ("f2_5", "f9_0", "f10_1")
    assert source.class_names == ("0", "A", "a", "z")
    assert source.x_train.shape == (9, 28, 28, 1)
    for name, characters in {"f10_1": "0Aa", "f2_5": "z0", "f9_0": "AAAA"}.items():
        x, labels = examples_of(source, name)
        assert x.dtype == np.uint8
        np.testing.assert_array_equal(x.reshape(-1, 784), held[name][0])
        assert labels == list(characters)


@pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")
def test_the_two_parts_of_leaf_are_joined_by_user(tmp_path):
    """Also where a user of `user_data` has no examples and is not among the users."""
    pixels = [[1.0] * 784, [0.0] * 784, [0.2] * 784]
    place = tmp_path / "files" / "data"
    more = {"user_data": {"b": {"x": pixels[:2], "y": [3, 4]}, "gone": {"x": [], "y": []}}}
    write(place / "train" / "one.json", {"b": (pixels[:2], [3, 4])}, **more)
    write(place / "test" / "one.json", {"b": (pixels[2:], [4]), "a": (pixels[:1], [3])})
    prepare("femnist", tmp_path / "data", manual_dir=place)
    source = load("femnist", tmp_path / "data")
    assert source.owner_names == ("a", "b")
    assert source.x_train[:, 0, 0, 0].tolist() == [255, 255, 0, 51]
    assert source.owners is not None
    assert source.owners.tolist() == [0, 1, 1, 1]
    assert len(source.y_test) == 0


X = [[1.0] * 784, [0.0] * 784]
BAD = [
    ({"a": (X, [0, 62])}, {}, "holds labels other than 0 to 61"),
    ({"a": (X, [0, -1])}, {}, "holds labels other than 0 to 61"),
    ({"a": (X, [0, 1.5])}, {}, "holds labels other than 0 to 61"),
    ({"a": (X, [0, "1"])}, {}, "holds labels other than 0 to 61"),
    ({"a": (X, [0, [1]])}, {}, "holds labels other than 0 to 61"),
    ({"a": (X, [True, False])}, {}, "holds labels other than 0 to 61"),
    ({"a": (X, [0])}, {}, "does not hold 1 examples x and labels y of the user 'a'"),
    ({"a": (X, [0, 1])}, {"num_samples": [3]}, "does not hold 3 examples x and labels y"),
    ({"a": (X, [0, 1])}, {"num_samples": [2, 2]}, "holds 1 users and 2 numbers of examples"),
    ({"a": (X, [0, 1])}, {"users": ["b"]}, "of the user 'b', as it says"),
    ({"a": (X, [0, 1])}, {"users": [[1]]}, "of the user [1], as it says"),
    ({"a": (X, [0, 1])}, {"users": 5}, "does not hold users, num_samples and user_data"),
    ({"a": ([X[0], X[1][1:]], [0, 1])}, {}, "expected 784 numbers each"),
    ({"a": ([["1.0"] * 784] * 2, [0, 1])}, {}, "expected 784 numbers each"),
    ({"a": ([[10**40] * 784] * 2, [0, 1])}, {}, "expected 784 numbers each"),
    ({"a": ([[255.0] * 784] * 2, [0, 1])}, {}, "pixels that are no bytes divided by 255"),
    ({"a": ([[0.123] * 784] * 2, [0, 1])}, {}, "pixels that are no bytes divided by 255"),
    ({"a": (X, [7, 7])}, {}, "all examples have the label '7'"),
    ({"a": ([], [])}, {}, "the files hold no examples"),
    ({"a\nb": (X, [0, 1])}, {}, "owner_names of femnist hold"),
]


@pytest.mark.parametrize(("users", "changes", "message"), BAD)
def test_files_that_do_not_fit_are_one_line(tmp_path, users, changes, message):
    write(tmp_path / "femnist" / "all_data" / "a.json", users, **changes)
    fails(lambda: prepare("femnist", tmp_path), message, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        '{"users": ["a"], "num_samples": [1',
        '{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": [[NaN]], "y": [0]}}}',
        '{"users": ["a"], "num_samples": [%s], "user_data": {}}' % ("9" * 1_000_000),
        "[" * 200_000,
        "",
    ],
    ids=["cut", "NaN", "a long number", "deep", "empty"],
)
def test_hostile_json_is_one_line(tmp_path, text):
    folder = tmp_path / "femnist" / "all_data"
    folder.mkdir(parents=True)
    (folder / "all_data_0.json").write_text(text)
    fails(lambda: prepare("femnist", tmp_path), "all_data_0.json is no JSON", tmp_path)


def test_files_that_are_missing_are_named(tmp_path):
    fails(
        lambda: prepare("femnist", tmp_path),
        "expected train/*.json or all_data/*.json or *.json, as published, in",
        tmp_path,
    )
    write(tmp_path / "femnist" / "train" / "a.json", {"a": (X, [0, 1])})
    fails(lambda: prepare("femnist", tmp_path), "test is missing", tmp_path)


# Shakespeare


LINE = "The quick brown fox; [jumps] & 'runs' over: 1st (lazy) dog, then sleeps? Yes. At}"


@pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")
def test_shakespeare_has_the_text_of_each_role(tmp_path):
    text = " " * 80 + LINE + "\n"
    held = {
        "PLAY_ROLE": [(text[i : i + 80], text[i + 80]) for i in range(len(LINE) + 1)],
        "PLAY_FOOL": [(text[i : i + 80], text[i + 80]) for i in range(9)],
    }
    users = {name: [list(part) for part in zip(*w, strict=True)] for name, w in held.items()}
    write(tmp_path / "leaf_shakespeare" / "all_data" / "all_data.json", users)
    file = prepare("leaf_shakespeare", tmp_path)
    with np.load(file) as arrays:
        words = arrays["words"].tolist()
    # LEAF's alphabet has 80 characters, the first of which is a line break.
    assert (len(words), words[0], words[1], words[-1]) == (80, "\n", " ", "}")
    assert words == sorted(words)
    source = load("leaf_shakespeare", tmp_path)
    assert source.vocabulary == (80,)
    for name, windows in held.items():
        x, labels = examples_of(source, name)
        assert ["".join(words[c] for c in row) for row in x] == [before for before, _ in windows]
        names = {"newline": "\n", "space": " "}
        assert [names.get(label, label) for label in labels] == [after for _, after in windows]


@pytest.mark.filterwarnings("ignore:.* sites have fewer than 10")
def test_characters_that_leaf_lacks_have_numbers_of_their_own(tmp_path):
    users = {"R": (["é" + "a" * 79, "b" * 80], ["b", "é"])}
    write(tmp_path / "leaf_shakespeare" / "x.json", users)
    with pytest.warns(RunWarning, match="that LEAF's alphabet lacks, such as 'é'"):
        prepare("leaf_shakespeare", tmp_path)
    source = load("leaf_shakespeare", tmp_path)
    assert (source.vocabulary, source.class_names) == ((81,), ("b", "é"))
    assert source.x_train[:, 0].tolist()[0] == 80


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (["a" * 79], ["b"], "holds texts of other lengths than 80 in x and 1 in y"),
        (["a" * 80], ["bc"], "holds texts of other lengths than 80 in x and 1 in y"),
        ([7], ["b"], "holds texts of other lengths"),
        (["\ud800" * 80], ["b"], "holds no characters"),
    ],
)
def test_other_texts_are_one_line(tmp_path, x, y, message):
    write(tmp_path / "leaf_shakespeare" / "x.json", {"R": (x, y)})
    fails(lambda: prepare("leaf_shakespeare", tmp_path), message, tmp_path)
