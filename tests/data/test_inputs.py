"""Inputs that are pytrees of arrays: what is valid, and what files hold them."""

import jax
import numpy as np
import pytest

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.data.arrays import from_npz

IMAGE = np.arange(48, dtype=np.uint8).reshape(6, 2, 4)
AGE = np.arange(6.0)
Y = np.array([0, 1, 0, 1, 0, 1])


def test_each_array_is_kept_in_its_type_and_has_a_scale():
    x = {"image": IMAGE, "age": AGE, "words": np.ones((6, 3), int), "mask": np.ones((6, 3), bool)}
    source = jaxfl.data.from_arrays(x, Y, vocabulary={"words": (5,)})
    types = {name: array.dtype.name for name, array in source.x_train.items()}
    assert types == {"image": "uint8", "age": "float32", "words": "int32", "mask": "bool"}
    assert source.scale == {"image": 255.0, "age": 1.0, "words": None, "mask": None}
    assert source.vocabulary == {"words": (5,)}
    assert {name: array.shape for name, array in source.x_test.items()} == {
        "image": (0, 2, 4),
        "age": (0,),
        "words": (0, 3),
        "mask": (0, 3),
    }


@pytest.mark.parametrize(
    ("x_train", "x_test", "vocabulary", "words"),
    [
        (
            {"image": IMAGE, "age": AGE[:5]},
            None,
            (),
            "numbers of examples .age 5, image 6",
        ),
        ({"image": IMAGE, "age": AGE * np.nan}, None, (), "x_train/age of the data holds 6 NaN"),
        ({"image": IMAGE, "age": None}, None, (), "is a dict whose age is no array"),
        ({"image": {"left": 3}}, None, (), "is a dict whose image/left is no array"),
        ({}, None, (), "is a dict without arrays"),
        (((1.0, 2.0), (3.0, 4.0)), None, (), "is a tuple whose 0/0 is no array"),
        ({"age": np.array(["a"] * 6)}, None, (), "x_train/age of the data has type <U1"),
        ({"image": IMAGE}, {"age": AGE}, (), "holds image and x_test age: expected the same"),
        ({"image": IMAGE}, {"image": IMAGE[:, :1]}, (), r"image of the data have shape \(2, 4\)"),
        ({"image": IMAGE}, {"image": IMAGE / 9}, (), "x_train/image of the data has type uint8"),
        ({"image": IMAGE}, IMAGE, (), "x_test of the data is a ndarray"),
        (IMAGE, {"image": IMAGE}, (), "x_test of the data is a dict and x_train is not"),
        ({"image": IMAGE}, None, (9,), "expected a dict with the number of ids of some of the"),
        ({"image": IMAGE}, None, {"word": 9}, "expected a dict with the number of ids of some"),
        ({"image": IMAGE}, None, {"image": 9}, "x_train/image of the data holds ids outside -1 to"),
        ({"image": IMAGE}, None, {"image": 0.5}, "vocabulary/image of the data is"),
    ],
)
def test_what_is_no_input_is_refused_in_one_line(x_train, x_test, vocabulary, words):
    y_test = None if x_test is None else Y
    with pytest.raises(InputError, match=words) as refusal:
        jaxfl.data.from_arrays(x_train, Y, x_test, y_test, vocabulary=vocabulary)
    assert "\n" not in str(refusal.value)


def test_clients_hold_their_own_rows_of_every_array():
    x = {"image": IMAGE, "pair": (AGE, AGE[:, None] + 10)}
    source = jaxfl.data.from_arrays(x, Y)
    federation = jaxfl.data.federate(
        source, [np.array([5, 0, 2]), np.array([1])], test="own", test_fraction=0.4
    )
    for part, rows in (("train", [[5, 0], [1]]), ("test", [[2], []])):
        held = jax.tree.map(np.asarray, getattr(federation, part).x, is_leaf=jaxfl.ragged.is_ragged)
        for client, own in enumerate(rows):
            expected = jax.tree.map(lambda array, own=own: array[own], source.x_train)
            for array, other in zip(jax.tree.leaves(held), jax.tree.leaves(expected), strict=True):
                np.testing.assert_array_equal(array[client, : len(own)], other)


def test_examples_that_nobody_holds_are_left_out_of_every_array():
    source = jaxfl.data.from_arrays({"image": IMAGE, "age": AGE}, Y)
    x = jaxfl.data.federate(source, [np.array([3])], test="own", val=0.0, test_fraction=0.0).train.x
    assert [leaf.values.shape[0] for leaf in x.values()] == [1, 1]
    assert np.asarray(x["age"]).tolist() == [[3.0]]


def test_a_test_set_is_merged_in_every_array():
    x = {"image": IMAGE, "age": AGE}
    source = jaxfl.data.merge_test_set(jaxfl.data.from_arrays(x, Y, x, Y))
    assert source.x_train["age"].tolist() == [*AGE, *AGE]
    assert len(source.x_test["image"]) == 0


@pytest.mark.parametrize(
    ("concept", "words"),
    [("rotation", "not examples of several arrays"), ("feature_noise", "ids or several arrays")],
)
def test_concepts_refuse_several_arrays(concept, words):
    source = jaxfl.data.from_arrays({"image": IMAGE, "age": AGE}, Y)
    with pytest.raises(InputError, match=words):
        jaxfl.data.CONCEPTS[concept](source, clients=4)
    swap = jaxfl.data.CONCEPTS["swapped_labels"](source, 2, groups=2)
    with pytest.raises(InputError, match="a concept changes examples of one array"):
        jaxfl.data.federate(source, [np.arange(3), np.arange(3, 6)], test="own", concept=swap)


def test_augmentations_refuse_several_arrays():
    with pytest.raises(InputError, match="and the examples are of several arrays"):
        jaxfl.data.augment.crop_flip(jax.random.key(0), {"image": IMAGE})


def test_a_directory_of_clients_refuses_several_arrays(tmp_path):
    source = jaxfl.data.from_arrays({"image": IMAGE, "age": AGE}, Y)
    federation = jaxfl.data.federate(source, [np.arange(6)], test="own")
    with pytest.raises(InputError, match="the inputs of train, val, test are several arrays"):
        jaxfl.on_disk.write_federation(tmp_path / "stored", federation)
    assert not (tmp_path / "stored").exists()


def test_data_without_targets_have_none():
    source = jaxfl.data.from_arrays(AGE[:, None], None, AGE[:2, None])
    assert not source.targets
    assert source.classes == 0
    assert source.y_train.shape == (6, 0)
    assert source.y_test.shape == (2, 0)
    description = jaxfl.data.describe_partition(source, [np.arange(4), np.arange(4, 6)])
    assert description["targets"] == "none"
    with pytest.raises(InputError, match="the data have no labels to weigh a test set by"):
        jaxfl.data.federate(source, [np.arange(6)])
    with pytest.raises(InputError, match="has y_test and no y_train"):
        jaxfl.data.from_arrays(AGE[:, None], None, AGE[:2, None], Y[:2])
    with pytest.raises(InputError, match=r"y_train of the data has shape \(6, 0\)"):
        jaxfl.data.from_arrays(AGE[:, None], np.zeros((6, 0)))


def test_a_file_holds_a_dict_of_arrays_by_names_with_a_slash(tmp_path):
    arrays = {"x_train/image": IMAGE, "x_train/words": np.ones((6, 3), int), "y_train": Y}
    arrays |= {"x_test/image": IMAGE[:2], "x_test/words": np.zeros((2, 3), int), "y_test": Y[:2]}
    np.savez(tmp_path / "own.npz", **arrays, **{"vocabulary/words": np.array([7])})
    source = from_npz(tmp_path / "own.npz")
    assert source.scale == {"image": 255.0, "words": None}
    assert source.vocabulary == {"words": (7,)}
    np.testing.assert_array_equal(source.x_test["image"], IMAGE[:2])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x_train": IMAGE, "x_train/age": AGE}, "has x_train and x_train/...: expected one array"),
        ({"x_train/\x1b[31m": AGE}, "expected names of at most 200 letters that can be printed"),
        ({"x_trains": AGE}, "lacks x_train: expected arrays x_train, y_train"),
    ],
)
def test_a_file_of_other_names_is_refused_in_one_line(tmp_path, arrays, words):
    np.savez(tmp_path / "own.npz", **arrays, y_train=Y)
    with pytest.raises(InputError, match=words) as refusal:
        from_npz(tmp_path / "own.npz")
    assert "\n" not in str(refusal.value)
    assert "\x1b" not in str(refusal.value)


class Quantity(np.ndarray):
    """Numbers with a unit, as packages of units have them."""

    unit = "mg/dl"


NUMBERS = np.random.default_rng(0).normal(size=(12, 2))
LABELS = np.arange(12) % 2
HIDDEN_LABELS = np.ma.masked_equal(LABELS, 1)
HIDDEN = np.ma.masked_less(NUMBERS, -1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x_train": HIDDEN}, "x_train of the data has .* masked value.*fill or remove them"),
        (
            {"x_train": NUMBERS, "y_train": np.ma.masked_equal(LABELS, 1)},
            "y_train of the data has 6 masked",
        ),
        ({"x_train": NUMBERS.view(Quantity)}, "x_train of the data is a Quantity with a unit"),
        ({"x_train": {"a": NUMBERS, "b": HIDDEN}}, "x_train/b of the data has"),
        (
            {"x_train": NUMBERS, "weights": np.ma.masked_equal(LABELS, 1)},
            "weights of the data has 6 masked",
        ),
    ],
)
def test_what_carries_more_than_its_values_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        jaxfl.data.from_arrays(**{"y_train": LABELS} | given)


def test_categories_are_refused_and_a_mask_that_hides_nothing_is_not():
    pandas = pytest.importorskip("pandas")
    words = pandas.Series(["ill", "well"] * 6, dtype="category")
    with pytest.raises(InputError, match=r"y_train of the data is of categories: .*cat\.codes"):
        jaxfl.data.from_arrays(NUMBERS, words)
    source = jaxfl.data.from_arrays(np.ma.masked_less(NUMBERS, -99.0), words.cat.codes)
    np.testing.assert_allclose(source.x_train, NUMBERS, rtol=1e-6)
