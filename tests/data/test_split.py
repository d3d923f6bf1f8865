"""Folds: every example is tested once, in parts that scikit-learn would make as even."""

import numpy as np
import pytest
from sklearn.model_selection import KFold, StratifiedKFold

from jaxfl.core.errors import InputError
from jaxfl.data import federate, from_arrays
from jaxfl.data.concept import CONCEPTS
from jaxfl.data.describe import describe_each_client
from jaxfl.data.split import fold_numbers, split_rows

FOLDS = 4


def a_source(examples=60):
    """Examples whose one feature is their row."""
    rng = np.random.default_rng(0)
    x = np.arange(examples, dtype=np.float32)[:, None]
    return from_arrays(x, rng.integers(0, 3, examples)), rng.permutation(examples)


@pytest.mark.parametrize("split", ["random", "stratified"])
def test_each_example_is_tested_once_and_the_rest_is_divided_as_in_one_split(split):
    source, order = a_source()
    parts = [order[:25], order[25:32], order[32:]]
    each = [
        split_rows(source, parts, val=0.25, test_fraction=0.9, split=split, fold=(fold, FOLDS))
        for fold in range(FOLDS)
    ]
    for client, rows in enumerate(parts):
        tested = np.concatenate([splits.test[client] for splits in each])
        assert sorted(tested) == sorted(rows)
        for splits in each:
            train, val, test = (part[client] for part in splits)
            assert sorted([*train, *val, *test]) == sorted(rows)
            assert len(val) == int(0.25 * (len(rows) - len(test)))


def test_folds_are_as_even_as_those_of_scikit_learn():
    source, order = a_source()
    labels = source.y_train[order]
    fold = StratifiedKFold(FOLDS).split(order, labels)
    expected = [np.bincount(labels[test], minlength=3) for _, test in fold]
    number = fold_numbers(len(order), FOLDS, labels)
    counts = [np.bincount(labels[number == one], minlength=3) for one in range(FOLDS)]
    np.testing.assert_array_equal(np.sort(counts, axis=0), np.sort(expected, axis=0))
    np.testing.assert_array_equal(np.sum(counts, axis=1), 15)
    blocks = [test.tolist() for _, test in KFold(FOLDS).split(order)]
    number = fold_numbers(len(order), FOLDS)
    assert [np.flatnonzero(number == one).tolist() for one in range(FOLDS)] == blocks


def test_validation_of_a_stratified_fold_has_the_labels_in_proportion():
    labels = np.repeat([0, 1], [40, 80])
    source = from_arrays(np.zeros((120, 1), np.float32), labels)
    rows = [np.random.default_rng(1).permutation(120)]
    for fold in range(5):
        splits = split_rows(
            source, rows, val=0.25, test_fraction=0.0, split="stratified", fold=(fold, 5)
        )
        counts = [np.bincount(labels[part[0]], minlength=2) for part in splits]
        np.testing.assert_allclose(counts, [[24, 48], [8, 16], [8, 16]], atol=1)


def test_a_federation_of_a_fold_holds_its_rows_and_its_concept_is_that_of_all_folds():
    source, order = a_source()
    parts = [order[:30], order[30:]]
    concept = CONCEPTS["feature_noise"](source, 2, 0, level=0.5)
    values = []
    for fold in range(2):
        federation = federate(source, parts, test="own", fold=(fold, 2), concept=concept)
        splits = split_rows(source, parts, val=0.2, test_fraction=0.0, fold=(fold, 2))
        for data, rows in zip(federation, splits, strict=True):
            for client in range(2):
                x = np.asarray(data.x[client])[np.asarray(data.mask[client]) > 0][:, 0]
                values += zip(rows[client].tolist(), x.tolist(), strict=True)
    # Each row occurs in both folds, with the same noise.
    assert len(values) == 120
    assert len(set(values)) == 60


def test_each_client_is_described_in_a_fold():
    source, order = a_source()
    counts = describe_each_client(
        source, [order[:25], order[25:]], val=0.2, test_fraction=0.0, fold=(0, 5)
    )
    assert (counts["train"], counts["validation"], counts["test"]) == ([16, 23], [4, 5], [5, 7])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fold": (5, 5)}, r"fold is \(5, 5\): expected \(k, K\)"),
        ({"fold": (0, 1)}, r"fold is \(0, 1\): expected \(k, K\)"),
        ({"fold": (0, 6)}, "client 1 holds fewer examples than the 6 folds"),
        ({"fold": (0, 5), "test": "global"}, "test is global: choose test own"),
    ],
)
def test_folds_that_cannot_be_are_refused(options, message):
    source, order = a_source()
    with pytest.raises(InputError, match=message) as refusal:
        federate(source, [order[:30], order[30:35]], **({"test": "own"} | options))
    assert "\n" not in str(refusal.value)
