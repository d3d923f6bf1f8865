"""FEMNIST, Shakespeare and CelebA: stand-ins in the format of LEAF and of CelebA's publisher."""

import json
import os

import numpy as np
import pytest
from PIL import Image
from refusals import fails

from jaxfl.core.errors import RunWarning
from jaxfl.data import load
from jaxfl.data.published.prepare import prepare

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


# CelebA


@pytest.fixture
def faces(tmp_path):
    """Five faces of one colour each, with the lists of the publisher."""
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    for number in range(1, 6):
        image = Image.new("RGB", (178, 218), (40 * number, 0, 255 - number))
        image.save(folder / "img_align_celeba" / f"00000{number}.jpg", quality=100)
    owners = [7, 120, 7, 30, 120]
    lines = [f"00000{i}.jpg {owner}\n" for i, owner in enumerate(owners, start=1)]
    (folder / "identity_CelebA.txt").write_text("".join(lines))
    signs = [(1, -1), (-1, 1), (-1, -1), (1, 1), (1, 1)]
    lines = [f"00000{i}.jpg  {a:2d} {b:2d}\n" for i, (a, b) in enumerate(signs, start=1)]
    (folder / "list_attr_celeba.txt").write_text("5\nSmiling Young \n" + "".join(lines))
    return tmp_path


def colours(source, name):
    """The number of each image of an owner, by its colour, and the name of its label."""
    x, labels = examples_of(source, name)
    assert np.ptp(x.reshape(len(x), -1, 3).astype(int), axis=1).max() <= 2
    return [(round(image[0, 0, 0] / 40), label) for image, label in zip(x, labels, strict=True)]


@pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")
def test_celeba_by_the_lists_of_its_publisher(faces):
    prepare("celeba", faces, size=6)
    source = load("celeba", faces)
    assert source.x_train.shape == (5, 6, 6, 3)
    assert source.owner_names == ("7", "30", "120")
    assert colours(source, "7") == [(1, "Smiling"), (3, "not Smiling")]
    assert colours(source, "30") == [(4, "Smiling")]
    assert colours(source, "120") == [(2, "not Smiling"), (5, "Smiling")]
    prepare("celeba", faces / "other", manual_dir=faces / "celeba", attribute="Young")
    source = load("celeba", faces / "other")
    assert source.x_train.shape == (5, 32, 32, 3)
    assert colours(source, "120") == [(2, "Young"), (5, "Young")]


@pytest.mark.filterwarnings("ignore::jaxfl.core.errors.RunWarning")
def test_celeba_by_the_files_of_leaf(faces):
    """Its labels are 0.0 and 1.0, and it leaves out some of the celebrities."""
    folder = faces / "celeba"
    (folder / "raw").mkdir()
    os.rename(folder / "img_align_celeba", folder / "raw" / "img_align_celeba")
    for name in ("identity_CelebA.txt", "list_attr_celeba.txt"):
        os.remove(folder / name)
    users = {"7": (["000001.jpg", "000003.jpg"], [1.0, 0.0]), "30": (["000004.jpg"], [1.0])}
    write(folder / "all_data" / "all_data.json", users)
    prepare("celeba", faces)
    source = load("celeba", faces)
    assert colours(source, "7") == [(1, "Smiling"), (3, "not Smiling")]
    assert colours(source, "30") == [(4, "Smiling")]
    fails(
        lambda: prepare("celeba", faces / "other", manual_dir=folder, attribute="Young"),
        "--attribute Young: LEAF's files hold Smiling alone",
        faces / "celeba",
    )
    write(folder / "all_data" / "all_data.json", {"7": (["../x.jpg"], [1])})
    os.remove(faces / "celeba.npz")
    fails(lambda: prepare("celeba", faces), "the image '../x.jpg' is not in", faces)


def change(path, old, new):
    path.write_text(path.read_text().replace(old, new))


IDENTITY, ATTRIBUTES = "identity_CelebA.txt", "list_attr_celeba.txt"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / IDENTITY).unlink(), "identity_CelebA.txt is missing"),
        (lambda f: (f / ATTRIBUTES).unlink(), "list_attr_celeba.txt is missing"),
        (lambda f: change(f / IDENTITY, " 30", ""), "lines of an image and a number of its"),
        (lambda f: change(f / IDENTITY, "000004.jpg 30\n", ""), "holds '000004.jpg 1 1': expected"),
        (lambda f: change(f / ATTRIBUTES, "5\n", "6\n"), "has 5 lines of images: expected as many"),
        (lambda f: change(f / ATTRIBUTES, "-1  1", "0 1"), "expected an image that identity"),
        (lambda f: change(f / ATTRIBUTES, "Smiling", "Smile"), "unknown attribute 'Smiling'"),
        (lambda f: (f / "img_align_celeba" / "000002.jpg").unlink(), "'000002.jpg' is not in"),
        (
            lambda f: (f / "img_align_celeba" / "000002.jpg").write_bytes(b"no"),
            "000002.jpg as an image",
        ),
    ],
)
def test_damaged_files_of_celeba_are_one_line(faces, damage, message):
    damage(faces / "celeba")
    fails(lambda: prepare("celeba", faces), message, faces)
