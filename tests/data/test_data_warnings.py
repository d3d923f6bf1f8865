"""Data that are possible and improbable bring one line, and probable data none."""

import numpy as np
import pytest

import jaxfl
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.data.data_warnings import without_validation_score

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))
LABELS = np.arange(200) % 4
BYTES = RNG.integers(0, 256, (200, 8, 8, 1))


def ordered(labels):
    return np.concatenate([np.flatnonzero(label == LABELS)[:12] for label in labels])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((BYTES.astype(np.float32), LABELS), "x_train holds values from 0 to 255 as float32"),
        ((BYTES * 0.9, LABELS), "if these are images, store them as uint8"),
        ((BYTES.reshape(200, 64).astype(float), LABELS), "x_train holds values from 0 to 255"),
        ((X, LABELS.astype(float)), "y_train holds the whole numbers 0 to 3 as float"),
        ((X, LABELS, X[:40], np.zeros(40, int)), "all 40 examples of the test set have the label"),
        ((X, LABELS, X[:60], np.arange(60) % 3), "the test set has no example of label 3"),
    ],
)
def test_arrays_that_are_improbable_bring_a_line(arrays, message):
    with pytest.warns(RunWarning, match=message) as said:
        jaxfl.data.from_arrays(*arrays)
    assert len(said) == 1
    assert "\n" not in str(said[0].message)


@pytest.mark.parametrize(
    "arrays",
    [
        (BYTES.astype(np.uint8), LABELS),
        (BYTES / 255, LABELS),
        (RNG.normal(20, 5, size=(200, 30, 2)), LABELS),  # windows of a time series
        (RNG.uniform(30, 130, size=(200, 24, 1)), LABELS),  # heart rates
        (RNG.poisson(2, size=(200, 300)).astype(float), LABELS),  # counts of words
        (BYTES.reshape(200, 64)[:, :9].astype(float), LABELS),  # nine numbers of an example
        (X, 1.0 + LABELS),  # ratings from 1
        (X, X[:, 0]),
        (X, np.abs(X[:, 0]).round()[np.argsort(X[:, 1])] * 2),  # whole numbers with gaps
        (X, LABELS, X[:4], LABELS[:4] % 2),  # few test examples
        (X, LABELS, X, LABELS),
    ],
)
def test_probable_arrays_bring_none(arrays):
    jaxfl.data.from_arrays(*arrays)


def test_rows_in_the_order_of_labels_bring_a_line():
    source = jaxfl.data.from_arrays(X, LABELS)
    parts = [ordered([0, 1, 2]), RNG.permutation(ordered([1, 2, 3]))]
    with pytest.warns(RunWarning, match=r"the rows of client 0 stand in the order of their labels"):
        jaxfl.data.federate(source, parts, test="own")
    # Each part of the client has both labels, whatever the order.
    halves = [np.concatenate([np.tile(ordered([0])[:1], 4), np.tile(ordered([1])[:1], 60)])]
    jaxfl.data.federate(source, halves, test="own")


def test_a_test_part_with_one_label_brings_a_line():
    source = jaxfl.data.from_arrays(X, LABELS)
    zeros, ones = np.flatnonzero(LABELS == 0), np.flatnonzero(LABELS == 1)
    rows = np.concatenate([zeros[:20], ones[:6], zeros[20:30]])
    with pytest.warns(RunWarning, match=r"the test part of client 1 has examples of one label"):
        jaxfl.data.federate(source, [np.arange(40), rows], val=0.0, test="own")


@pytest.mark.parametrize("name", ["iid", "pathological", "dirichlet", "quantity"])
def test_partitions_of_the_library_bring_none(name):
    source = jaxfl.data.load("digits")
    for seed in range(5):
        parts = jaxfl.data.PARTITIONS[name](source.y_train, 10, seed)
        jaxfl.data.federate(source, parts, test="own")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([np.arange(150), np.array([200])], "client 1 holds the row 200 of 200 examples"),
        ([np.array([-1])], "client 0 holds the row -1"),
        ([LABELS == 1], "the rows of client 0 are bool of shape (200,)"),
        ([np.arange(5.0)], "the rows of client 0 are float64"),
        ([], "one or more"),
        ({"north": np.arange(5)}, "the partition is dict"),
        ("iid", "the partition is str"),
        (np.arange(10), "the partition is ndarray of length 10: expected a list"),
        (np.zeros((2, 2, 2), int), "the partition is ndarray of length 2: expected a list"),
    ],
)
def test_partitions_of_other_forms_are_refused(parts, message, without_types):
    source = jaxfl.data.from_arrays(X, X[:, 0])
    with pytest.raises(InputError) as refused:
        jaxfl.data.federate(source, parts, test="own")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_with_the_name_of_the_embedded_set_is_refused(tmp_path):
    np.savez(tmp_path / "digits.npz", x_train=X, y_train=LABELS)
    with pytest.raises(InputError, match=r"digits is the name of an embedded data set.*rename"):
        jaxfl.data.load("digits", tmp_path)


def test_other_images_under_a_published_name_bring_a_line(tmp_path):
    np.savez(tmp_path / "mnist.npz", x_train=BYTES.astype(np.uint8), y_train=LABELS)
    with pytest.warns(RunWarning, match=r"mnist.npz holds examples of shape \(8, 8, 1\)"):
        jaxfl.data.load("mnist", tmp_path)


@pytest.mark.parametrize("beta", [1e-5, 1e-3])
def test_a_tiny_beta_gives_no_client_more_than_its_share_and_a_label(beta):
    labels = np.repeat(np.arange(10), 500)
    parts = jaxfl.data.niid_bench_dirichlet(labels, 3, 0, beta=beta)
    assert sum(map(len, parts)) == 5000
    assert max(map(len, parts)) <= 5000 / 3 + 500


def test_what_no_split_can_mend_is_not_offered():
    targets = [np.array([1, 1, 1]), np.array([0, 1, 1])]

    def said(clients, stratified=False):
        own = [targets[one] for one in clients]
        return without_validation_score("AUC", clients, own, ["a", "b"], stratified)

    assert "no split changes that for a client with one label" in said([0])
    assert "--" not in said([0])
    assert "client a with one label cannot have a score" in said([0, 1])
    assert "--val" in said([1], stratified=True)
    assert ["--split" in said([1], stratified) for stratified in (False, True)] == [True, False]
    assert said([]) == ""
