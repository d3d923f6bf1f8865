"""Weights of examples and of classes on their way from arrays to a federation."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.types import Pool
from jaxfl.data.arrays import from_npz
from jaxfl.simulation.on_disk import write_federation

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8)).astype(np.float32)
X[:, 0] = np.arange(60)
Y = np.repeat([0, 0, 1, 2], 15)[RNG.permutation(60)]
W = RNG.uniform(0, 2, size=60).astype(np.float32)
OWNERS = np.repeat([0, 1, 2], [10, 20, 30])


def source(**options):
    return jaxfl.data.from_arrays(X, Y, owners=OWNERS, **options)


def federate(data, **options):
    return jaxfl.data.federate(data, jaxfl.data.natural(OWNERS), test="own", **options)


def test_each_example_keeps_its_weight_in_all_parts_of_a_federation():
    federation = federate(source(weights=W))
    plain = federate(source())
    for part, other in zip(federation, plain, strict=True):
        real = np.asarray(other.mask)
        rows = np.asarray(other.x.padded())[..., 0][real].astype(int)
        np.testing.assert_array_equal(np.asarray(part.weights)[real], W[rows])
        assert not np.asarray(part.weights)[~real].any()
    assert plain.train.weight is None
    assert federation.test.weight is None
    assert federation.sizes.tolist() == plain.sizes.tolist() == [8, 16, 24]


@pytest.mark.parametrize("test", ["reweighted", "global"])
def test_a_shared_test_set_weighs_its_examples_for_all_clients(test):
    own = np.repeat([0.5, 0.0, 3.0], 20)
    arrays = jaxfl.data.from_arrays(X, Y, X, Y, weights_test=own)
    parts = [np.arange(0, 30), np.arange(30, 60)]
    pool = jaxfl.data.federate(arrays, parts, test=test).test
    assert isinstance(pool, Pool)
    for client, rows in enumerate(parts):
        shares = np.bincount(Y[rows], minlength=3)[Y] / 30 if test == "reweighted" else np.ones(60)
        np.testing.assert_allclose(pool.weights[client], shares * own, rtol=1e-6)
    concept = jaxfl.data.CONCEPTS["swapped_labels"](arrays, 2, 0, groups=2)
    copies = jaxfl.data.federate(arrays, parts, test=test, concept=concept).test
    totals = np.asarray(copies.mask).sum(axis=1)
    np.testing.assert_allclose(totals, np.asarray(pool.weights).sum(axis=1), rtol=1e-5)
    leaking = jaxfl.data.federate(arrays, parts, test=test, feedback="test-leaking")
    assert leaking.sizes.tolist() == [30, 30]


def test_balanced_classes_are_those_of_scikit_learn():
    for weights in (None, W):
        federation = federate(source(weights=weights))
        balanced = jaxfl.data.balance_classes(federation)
        train = federation.train
        for client in range(3):
            real = np.asarray(train.mask[client])
            y = np.asarray(train.y.padded())[client][real]
            expected = compute_sample_weight("balanced", y)
            if weights is not None:
                expected = expected * np.asarray(train.weight[client])[real]
            found = np.asarray(balanced.train.weights[client])
            np.testing.assert_allclose(found[real], expected, rtol=1e-6)
            assert not found[~real].any()
        assert balanced.val is federation.val
        assert balanced.test is federation.test


def test_numbers_have_no_classes_to_balance():
    numbers = jaxfl.data.from_arrays(X, X[:, 1])
    federation = jaxfl.data.federate(numbers, [np.arange(60)], test="own")
    with pytest.raises(InputError, match="no classes to balance"):
        jaxfl.data.balance_classes(federation)


HOSTILE = [
    (W[:-1], r"shape \(59,\)"),
    (W[:, None], r"shape \(60, 1\)"),
    (-W, "hold -"),
    (np.full(60, np.nan), "hold nan"),
    (np.r_[W[:-1], np.inf], "hold inf"),
    (np.r_[np.ones(59), 1e39], "hold 1e"),
    (np.zeros(60), "are all 0"),
    (np.full(60, 1e-60), "hold 1e-60"),
    (W.astype(str), "type <U"),
    (W > 0, "type bool"),
    (W.astype(complex), "type complex"),
]


@pytest.mark.parametrize(("weights", "message"), HOSTILE)
def test_weights_that_are_none_are_refused(weights, message):
    with pytest.raises(InputError, match=f"weights of the data.*{message}") as error:
        source(weights=weights)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=f"weights_test of the data.*{message}"):
        jaxfl.data.from_arrays(X, Y, X, Y, weights_test=weights)


def test_a_file_has_its_weights_and_one_without_them_has_none(tmp_path):
    file = tmp_path / "mine.npz"
    np.savez(file, x_train=X, y_train=Y, x_test=X, y_test=Y, weights=W, weights_test=W[::-1])
    read = from_npz(file)
    np.testing.assert_array_equal(read.weights, W)
    np.testing.assert_array_equal(read.weights_test, W[::-1])
    merged = jaxfl.data.merge_test_set(read)
    np.testing.assert_array_equal(merged.weights, np.r_[W, W[::-1]])
    np.savez(file, x_train=X, y_train=Y)
    assert from_npz(file).weights is None
    assert from_npz(file).weights_test is None


def test_a_client_that_can_learn_nothing_is_told():
    with pytest.warns(UserWarning, match="training examples of 1 of 3 clients weigh 0"):
        federate(source(weights=W * (OWNERS != 1)))


def test_weights_come_back_from_the_disk(tmp_path):
    federation = jaxfl.data.balance_classes(federate(source(weights=W)))
    stored = write_federation(tmp_path / "stored", federation)
    ids = np.array([2, 0])
    read = stored.read(ids)
    for part, other in zip(read, federation, strict=True):
        np.testing.assert_array_equal(part.weights, np.asarray(other.weights)[ids])
    assert stored.sizes.tolist() == [8, 16, 24]
    np.save(tmp_path / "stored/train/example_weights.npy", np.zeros(3))
    (tmp_path / "stored/federation.json").unlink()
    with pytest.raises(InputError, match=r"example_weights\.npy has shape"):
        jaxfl.on_disk.open_federation(tmp_path / "stored")
