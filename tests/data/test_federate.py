import numpy as np
import pytest
from toys import equal

from jaxfl.core.errors import InputError
from jaxfl.core.types import Pool
from jaxfl.data import dirichlet, federate, from_arrays, load, natural, pathological
from jaxfl.data.describe import describe_each_client
from jaxfl.data.federate import check_parts, group_order, label_counts
from jaxfl.data.split import stratify

SOURCE = load("digits")
PARTS = dirichlet(SOURCE.y_train, 10, seed=0, beta=0.3)


def real(data, client):
    mask = np.asarray(data.mask[client]) > 0
    return np.asarray(data.x[client])[mask], np.asarray(data.y[client])[mask]


@pytest.mark.parametrize("test", ["reweighted", "own"])
def test_each_client_gets_its_rows_in_order(test):
    data = federate(SOURCE, PARTS, test=test)
    for client, rows in enumerate(PARTS):
        cut = int(0.2 * len(rows))
        pieces = [real(part, client) for part in (data if test == "own" else data[:2])]
        assert [len(y) for _, y in pieces] == [len(rows) - cut * (len(pieces) - 1)] + [cut] * (
            len(pieces) - 1
        )
        np.testing.assert_array_equal(np.concatenate([x for x, _ in pieces]), SOURCE.x_train[rows])
        np.testing.assert_array_equal(np.concatenate([y for _, y in pieces]), SOURCE.y_train[rows])
    if test == "reweighted":
        assert data.sizes.tolist() == [len(rows) for rows in PARTS]


def test_padding_is_zero_and_masked_out():
    data = federate(SOURCE, PARTS)
    longest = max(len(rows) - int(0.2 * len(rows)) for rows in PARTS)
    assert data.train.x.shape[:2] == data.train.mask.shape == (10, longest)
    assert not np.asarray(data.train.x)[~np.asarray(data.train.mask)].any()


def test_the_shared_test_set_is_stored_once():
    data = federate(SOURCE, PARTS)
    assert isinstance(data.test, Pool)
    assert data.test.x.shape == SOURCE.x_test.shape
    counts = label_counts(SOURCE, PARTS)
    expected = (counts / counts.sum(axis=1, keepdims=True))[:, SOURCE.y_test]
    np.testing.assert_allclose(data.test.weights, expected, rtol=1e-6)
    everywhere = federate(SOURCE, PARTS, test="global").test.weights
    np.testing.assert_array_equal(everywhere, np.ones((10, len(SOURCE.y_test))))


@pytest.mark.parametrize("test", ["reweighted", "global"])
def test_no_client_adds_a_number_for_each_test_example(test):
    """A client's weights of the shared test set take the memory of its labels alone."""
    parts = dirichlet(SOURCE.y_train, 40, seed=0, beta=5.0)
    few, many = (federate(SOURCE, some, test=test).test for some in (parts[:10], parts))
    more = [a.nbytes - b.nbytes for a, b in zip(many, few, strict=True)]
    assert sum(more) <= 30 * 10 * 4


@pytest.mark.parametrize("test", ["reweighted", "own", "global"])
def test_leaking_puts_the_test_set_in_the_place_of_the_validation_part(test):
    """Examples and relative weights are those of the test set; everything else stays the same."""
    parts = [*PARTS[:4], PARTS[4][:3]]  # the last one is too small to validate
    plain, leaking = (
        federate(SOURCE, parts, test=test, feedback=feedback)
        for feedback in ("val", "test-leaking")
    )
    equal((leaking.train, leaking.test), (plain.train, plain.test))
    assert leaking.sizes.tolist() == plain.sizes.tolist()
    assert leaking.sizes.dtype == plain.sizes.dtype
    pool = isinstance(plain.test, Pool)
    for client in range(4):
        weights = np.asarray(plain.test.weights[client] if pool else plain.test.mask[client])
        weights = weights.astype(np.float64)
        test_x = np.asarray(plain.test.x if pool else plain.test.x[client])
        mask = np.asarray(leaking.val.mask[client], np.float64)
        np.testing.assert_array_equal(real(leaking.val, client)[0], test_x[weights > 0])
        np.testing.assert_allclose(
            mask[mask > 0] / mask.sum(), weights[weights > 0] / weights.sum(), rtol=1e-5
        )
    assert not np.asarray(leaking.val.mask[4]).any()


def test_clients_with_the_same_labels_stand_together():
    order = group_order(label_counts(SOURCE, pathological(SOURCE.y_train, 10, seed=0)))
    assert (order.reshape(5, 2) % 5 == np.arange(5)[:, None]).all()


def test_a_partition_may_be_a_matrix_or_an_array_of_arrays():
    matrix = np.random.default_rng(0).permutation(1430).reshape(10, -1)
    arrays = np.empty(2, object)
    arrays[:] = [np.array([2, 0]), np.array([1])]
    for parts in (matrix, arrays):
        for own, expected in zip(check_parts(parts, 1437), parts, strict=True):
            np.testing.assert_array_equal(own, expected)
    assert federate(SOURCE, matrix, val=0.0).train.x.shape[:2] == (10, 143)


def test_bad_input():
    with pytest.raises(InputError, match="client 1 holds no example"):
        federate(SOURCE, [np.arange(5), np.arange(0)])
    with pytest.raises(InputError, match=r"validation takes 1\.0"):
        federate(SOURCE, PARTS, val=1.0)


def test_a_stratified_order_has_every_label_in_proportion_in_any_stretch():
    rng = np.random.default_rng(0)
    for _ in range(20):
        n = int(rng.integers(20, 200))
        labels = rng.choice(3, n, p=[0.75, 0.2, 0.05])
        rows = rng.permutation(n)
        order = stratify(rows, labels)
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
        for start, end in ((0, 0.6), (0.6, 0.8), (0.8, 1)):
            part = order[int(start * n) : int(end * n)]
            counts = np.bincount(labels[part], minlength=3)
            proportional = np.bincount(labels, minlength=3) * len(part) / n
            assert np.abs(counts - proportional).max() <= 2
        for label in range(3):  # the rows of a label stay in their order
            same = order[labels[order] == label]
            np.testing.assert_array_equal(same, rows[labels[rows] == label])


def named(y, owners):
    x = np.arange(len(y), dtype=float)[:, None]
    return from_arrays(x, y, owners=owners, owner_names=["north", "south"])


def test_examples_of_named_owners_are_divided_by_label_and_others_as_before():
    rng = np.random.default_rng(0)
    y = (rng.permutation(140) < 18).astype(int)  # a site of 70 with few positives
    owners = np.arange(140) % 2
    source = named(y, owners)
    parts = natural(owners)
    data = federate(source, parts, test="own")
    for client, rows in enumerate(parts):
        positives = y[rows].sum()
        for part, share in zip(data, (0.6, 0.2, 0.2), strict=True):
            _, labels = real(part, client)
            assert len(labels) == round(share * 70)
            assert abs(labels.sum() - share * positives) <= 1
    plain = from_arrays(source.x_train, y, owners=owners)
    random = federate(source, parts, test="own", split="random")
    equal(random, federate(plain, parts, test="own"))
    equal(data, federate(plain, parts, test="own", split="stratified"))
    with pytest.raises(InputError, match="choose split random"):
        federate(named(y.astype(float) + 0.5, owners), parts, test="own", split="stratified")


def test_each_client_has_a_row_with_its_labels_in_each_part():
    y = np.arange(140) // 2 % 5 // 4
    source = named(y, np.arange(140) % 2)
    parts = natural(source.owners)
    rows = describe_each_client(source, parts)
    assert rows["client"] == ["north", "south"]
    data = federate(source, parts, test="own")
    for name, part in zip(("train", "validation", "test"), data, strict=True):
        for client in range(2):
            _, labels = real(part, client)
            assert rows[name][client] == len(labels)
            counts = [rows[f"{label} {name}"][client] for label in (0, 1)]
            assert counts == np.bincount(labels, minlength=2).tolist()
    shared = describe_each_client(source, parts, test_fraction=0.0)
    assert list(shared)[:5] == ["client", "train", "validation", "0 train", "0 validation"]
    assert np.sum([shared["train"], shared["validation"]]) == 140
