import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.data import list_data_sets, load
from jaxfl.data.arrays import from_arrays
from jaxfl.data.published.originals import HOSPITALS


def arrays(**changes):
    rng = np.random.default_rng(0)
    good = {
        "x_train": rng.random((20, 4)).astype(np.float32),
        "y_train": np.arange(20) % 3,
        "x_test": rng.random((6, 4)).astype(np.float32),
        "y_test": np.arange(6) % 3,
    }
    return good | changes


WORDS = {"x_train": np.ones((20, 4), np.int32), "x_test": np.ones((6, 4), np.int32)}


def replaced(name, place, value):
    array = arrays()[name].copy()
    array[place] = value
    return {name: array}


def test_npz_of_the_user(tmp_path):
    np.savez(tmp_path / "mine.npz", **arrays())
    source = load("mine", tmp_path)
    assert source.classes == 3
    np.testing.assert_array_equal(source.x_train, arrays()["x_train"])
    assert "mine" in list_data_sets(tmp_path)


def test_numbers_as_targets_and_owners(tmp_path):
    changes = {
        "y_train": np.linspace(0, 1, 20),
        "y_test": np.linspace(0, 1, 6),
        "owners": np.arange(20) // 5,
    }
    np.savez(tmp_path / "mine.npz", **arrays(**changes))
    source = load("mine", tmp_path)
    assert (source.classes, source.y_train.dtype) == (0, np.float32)
    np.testing.assert_array_equal(source.owners, np.arange(20) // 5)


def test_names_stay_integers_and_need_no_test_set():
    x = np.arange(40).reshape(20, 2) % np.array([4, 6])
    source = from_arrays(x, np.arange(20) % 3, vocabulary=[4, 6])
    assert (source.x_train.dtype, source.vocabulary, source.scale) == (np.int32, (4, 6), 1.0)
    assert source.x_test.shape == (0, 2)


def test_images_with_known_channels_are_normalised(tmp_path):
    images = np.zeros((20, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "cifar10.npz", **arrays(x_train=images, x_test=images[:6]))
    source = load("cifar10", tmp_path)
    assert source.mirrors
    np.savez(tmp_path / "svhn_cropped.npz", **arrays(x_train=images, x_test=images[:6]))
    assert not load("svhn_cropped", tmp_path).mirrors
    assert source.shift == pytest.approx((125.307, 122.961, 113.8575))
    assert source.scale == pytest.approx((51.5865, 50.8470, 51.2550))


def test_heart_disease_is_standardised_and_says_what_is_missing(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(3, 2, (40, 13)).astype(np.float32)
    x[:10, 4] = np.nan
    np.savez(tmp_path / "heart_disease.npz", x=x, y=np.arange(40) % 2, hospital=np.arange(40) % 4)
    source = load("heart_disease", tmp_path)
    assert source.x_train.shape == (40, 26)
    np.testing.assert_allclose(source.x_train[:, :13].mean(axis=0), 0, atol=1e-5)
    np.testing.assert_array_equal(source.x_train[:, 13 + 4], np.arange(40) >= 10)
    assert not source.x_train[:10, 4].any()
    np.testing.assert_array_equal(source.owners, np.arange(40) % 4)
    assert source.owner_names == ("cleveland", "hungarian", "switzerland", "va")
    assert source.split == "random"


def test_published_files_in_the_folder_are_prepared_when_asked_for(tmp_path):
    (tmp_path / "heart_disease").mkdir()
    for name in HOSPITALS:
        (tmp_path / "heart_disease" / name).write_text(
            ("1,2,3,4,5,6,7,8,9,10,11,12,13,0\n" + "2," * 13 + "4\n") * 3
        )
    assert "heart_disease" in list_data_sets(tmp_path)
    source = load("heart_disease", tmp_path)
    assert (source.classes, source.x_train.shape) == (2, (24, 26))
    assert (tmp_path / "heart_disease.npz").exists()


def test_bytes_are_divided_by_255_when_used():
    images = np.full((20, 2, 2, 1), 255, np.uint8)
    source = from_arrays(**arrays(x_train=images, x_test=images[:6]))
    assert (source.x_train.dtype, source.scale) == (np.uint8, 255.0)


def test_a_number_of_classes_allows_labels_that_do_not_occur():
    source = from_arrays(**arrays(y_train=np.arange(20) % 3 * 2, classes=6))
    assert (source.classes, source.y_train.max()) == (6, 4)
    names = [*"abcdef"]
    named = from_arrays(**arrays(y_train=np.arange(20) % 3 * 2, classes=6, class_names=names))
    assert named.class_names == tuple(names)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": 2}, "y_train of the data holds the label 2: expected 0 to 1, classes=2"),
        ({"classes": np.array(2.5)}, "classes of the data is 2.5: expected a positive integer"),
        ({"classes": np.array([3])}, r"classes of the data is \[3\]: expected a positive integer"),
        ({"classes": 0}, "classes of the data is 0: expected a positive integer"),
        (
            {"classes": 3, "y_train": np.ones(20) / 3, "y_test": np.ones(6)},
            "given classes=3, and its targets are numbers",
        ),
        (
            {"classes": 3, "y_train": np.ones((20, 2), bool), "y_test": np.ones((6, 2), bool)},
            "given classes=3, and y_train has 2 labels: leave it out",
        ),
        (replaced("x_train", (3, 1), np.nan), "x_train of the data holds 1 NaN or infinite values"),
        (replaced("x_test", (0, 0), np.inf), "x_test of the data holds 1 NaN or infinite values"),
        (replaced("y_test", 2, 7), "y_test of the data holds the label 7: expected 0 to 2"),
        (replaced("y_train", 2, -1), "y_train of the data holds the label -1"),
        (
            {"y_train": np.arange(20) % 3 * 2},
            "holds 3 of the labels 0 to 4: number them without gaps",
        ),
        (
            {"y_train": np.arange(19) % 3},
            r"y_train of the data has shape \(19,\): expected \(20,\)",
        ),
        ({"y_train": np.arange(20) / 20}, "type int64: expected integer labels, or numbers"),
        ({"y_train": np.array(["a"] * 20)}, "type <U1: expected integer labels, or numbers"),
        (
            {"owners": np.arange(3)},
            r"owners of the data have shape \(3,\) and type int64: expected integers \(20,\)",
        ),
        ({"groups": np.ones(20)}, r"groups of the data have shape .* float64: expected integers"),
        ({"owners": np.zeros((20, 2), int)}, r"shape \(20, 2\) and type int64: expected integers"),
        ({"owners": np.zeros(20)}, r"type float64: expected integers \(20,\)"),
        ({"vocabulary": [9]}, "expected integers, and one number of values"),
        (WORDS | {"vocabulary": ["a"]}, r"is \['a'\]: expected positive integers"),
        (WORDS | {"vocabulary": np.array(5)}, "is 5: expected positive integers, a list of them"),
        (WORDS | {"vocabulary": [np.nan]}, "expected positive integers"),
        (WORDS | {"vocabulary": [-3]}, r"is \[-3\]: expected positive integers"),
        (WORDS | {"vocabulary": [1]}, r"x_train of the data holds ids outside -1 to \[0\]"),
        (WORDS | {"vocabulary": [2**62]}, "vocabulary of the data"),
        ({"x_train": np.full((20, 4), 1e300)}, "x_train of the data holds 80 NaN or infinite"),
        ({"x_train": np.ones((20, 4), complex)}, "has type complex128: expected real numbers"),
        ({"x_train": np.zeros((20, 0)), "x_test": np.zeros((6, 0))}, r"has shape \(20, 0\)"),
        ({"x_train": np.zeros((0, 4)), "y_train": np.zeros(0, int)}, r"has shape \(0, 4\)"),
        (
            {"x_train": np.array(3.0), "y_train": np.array(3)},
            r"has shape \(\): expected \[examples",
        ),
        ({"y_train": np.full(20, 2**63, np.uint64)}, "number them without gaps"),
        ({"y_test": np.arange(6) / 2}, "y_test of the data has type float64: expected integer"),
        ({"y_train": np.full(20, np.nan), "y_test": np.zeros(6)}, "holds 20 NaN or infinite"),
        ({"y_train": np.arange(20) % 2 == 0}, "has type bool: expected integer labels"),
        ({"x_test": None}, r"y_test of the data has shape \(6,\): expected \(0,\)"),
        ({"y_test": None}, r"y_test of the data has shape \(0,\): expected \(6,\)"),
        ({"x_train": np.array([["a"] * 4] * 20)}, "expected real numbers"),
        ({"x_train": np.zeros(20)}, r"expected \[examples, \*feature\]"),
        (
            {"x_test": np.zeros((6, 5), np.float32)},
            r"have shape \(4,\) in train and \(5,\) in test",
        ),
        (
            {"x_train": np.zeros((20, 4), np.uint8)},
            "x_train of the data has type uint8 and x_test float32: expected the same",
        ),
    ],
)
def test_bad_arrays(changes, message):
    with pytest.raises(InputError, match=message):
        from_arrays(**arrays(**changes))


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_hostile_and_damaged_files_are_refused_and_never_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    objects = np.empty(20, object)
    objects[:] = [Bomb() for _ in range(20)]
    np.savez(tmp_path / "bomb.npz", **arrays(x_train=objects))
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(Bomb()))
    np.savez(tmp_path / "whole.npz", **arrays())
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:400])
    (tmp_path / "empty.npz").write_bytes(b"")
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    np.savez_compressed(tmp_path / "corrupt.npz", x_train=np.arange(4000.0), y_train=0)
    corrupt = bytearray((tmp_path / "corrupt.npz").read_bytes())
    corrupt[200:300] = bytes(100)
    (tmp_path / "corrupt.npz").write_bytes(corrupt)
    for name in ("bomb", "pickle", "half", "empty", "single", "corrupt"):
        with pytest.raises(InputError, match="as plain npz arrays"):
            load(name, tmp_path)
    np.savez(tmp_path / "partial.npz", x_train=np.zeros((2, 2)))
    with pytest.raises(InputError, match="lacks y_train"):
        load("partial", tmp_path)
    assert not Path("exploded").exists()


def test_the_nearest_name_is_offered():
    with pytest.raises(InputError, match="unknown data set 'digit': did you mean digits"):
        load("digit")


real = pytest.mark.skipif("JAXFL_DATA_DIR" not in os.environ, reason="JAXFL_DATA_DIR is not set")


@real
@pytest.mark.parametrize(
    ("name", "shape", "examples"),
    [
        ("fashion_mnist", (28, 28, 1), 60000),
        ("mnist", (28, 28, 1), 60000),
        ("cifar10", (32, 32, 3), 50000),
    ],
)
def test_real_data(name, shape, examples):
    source = load(name)
    assert source.x_train.shape == (examples, *shape)
    assert source.x_train.dtype == np.uint8
    assert (source.classes, len(source.x_test)) == (10, 10000)
