"""Folds: every example is tested once, in parts that scikit-learn would make as even.

No group, such as a patient, is in two parts of a client.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from jaxfl.core.errors import InputError, RunWarning
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


def grouped(sizes, seed):
    """Examples of groups of these sizes with labels that a group mostly shares, and their order."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(rng.permutation(len(sizes)) + 100, sizes)
    labels = np.where(rng.random(len(groups)) < 0.8, groups % 3 == 0, rng.random(len(groups)) < 0.5)
    labels[:2] = 0, 1
    source = from_arrays(np.zeros((len(groups), 1)), labels.astype(int), groups=groups)
    return source, rng.permutation(len(groups))


@settings(max_examples=150, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 6), min_size=30, max_size=60),
    seed=st.integers(0, 99),
    val=st.sampled_from([0.2, 0.3]),
    held_out=st.sampled_from([0.2, 0.25]),
    split=st.sampled_from(["random", "stratified"]),
    fold=st.sampled_from([None, 0, 4]),
)
def test_no_group_is_in_two_parts_and_parts_are_as_large_as_groups_allow(
    sizes, seed, val, held_out, split, fold
):
    source, order = grouped(sizes, seed)
    place = None if fold is None else (fold, 5)
    splits = split_rows(source, [order], val=val, test_fraction=held_out, split=split, fold=place)
    parts = [rows[0] for rows in splits]
    assert sorted(np.concatenate(parts)) == list(range(len(order)))
    groups = [set(source.groups[rows]) for rows in parts]
    assert sum(map(len, groups)) == len(set(source.groups))
    tested = len(order) * (held_out if fold is None else 0.2)
    validated = val * (len(order) if fold is None else len(order) - len(parts[2]))
    # A border between parts is moved by at most half a group; folds of a label, by a group.
    assert abs(len(parts[2]) - tested) <= (6 / 2 + 1 if fold is None else 2 * 6)
    assert abs(len(parts[1]) - validated) <= 6 + 1


def test_groups_of_one_example_change_nothing():
    source, order = a_source()
    alone = source._replace(groups=np.arange(60))
    parts = [order[:25], order[25:]]
    for split in ("random", "stratified"):
        some, same = (
            split_rows(one, parts, val=0.2, test_fraction=0.3, split=split)
            for one in (source, alone)
        )
        for rows, others in zip(some, same, strict=True):
            assert [list(one) for one in rows] == [list(one) for one in others]


@pytest.mark.parametrize("seed", range(3))
def test_folds_of_groups_are_as_even_as_those_of_scikit_learn(seed):
    sizes = np.random.default_rng(seed).integers(1, 9, 60)
    source, order = grouped(sizes, seed)
    labels, groups = source.y_train[order], source.groups[order]
    number = fold_numbers(len(order), FOLDS, groups=groups)
    folds = GroupKFold(FOLDS).split(order, groups=groups)
    assert sorted(np.bincount(number)) == sorted(len(test) for _, test in folds)
    number = fold_numbers(len(order), FOLDS, labels, groups)
    ours = [labels[number == fold].mean() for fold in range(FOLDS)]
    folds = StratifiedGroupKFold(FOLDS).split(order, labels, groups)
    theirs = [labels[test].mean() for _, test in folds]
    assert (
        np.ptp(ours)
        < np.ptp(theirs) + 0.05
        < np.ptp([labels[groups == g].mean() for g in set(groups)])
    )
    parts = split_rows(source, [order], val=0.2, test_fraction=0.2, split="stratified")
    np.testing.assert_allclose(
        [source.y_train[rows[0]].mean() for rows in parts], labels.mean(), atol=0.1
    )


def test_a_large_group_is_trained_on_and_few_groups_are_warned_of():
    source, order = grouped([50, *[1] * 50], seed=0)
    # Its rows are the last ones, which are tested on.
    for rows, split in ((np.arange(100)[::-1], "random"), (order, "stratified")):
        splits = split_rows(source, [rows], val=0.2, test_fraction=0.2, split=split)
        assert [len(part[0]) for part in splits] == [60, 20, 20]
        assert set(range(50)) <= set(splits.train[0])
    source, order = grouped([30, 30], seed=0)
    with pytest.warns(RunWarning, match="1 of 1 clients have no test example, such as 0, since"):
        split_rows(source, [order], val=0.2, test_fraction=0.2)
    with pytest.raises(InputError, match="client 0 holds fewer groups than the 3 folds"):
        split_rows(source, [order], val=0.2, test_fraction=0.2, fold=(0, 3))


def test_groups_at_several_clients_are_warned_of():
    source, order = grouped([6] * 20, seed=0)
    with pytest.warns(RunWarning, match="groups 100, 101, 102 and 17 more of 20 have examples at"):
        federate(source, [order[:60], order[60:]], test="own")


def marked_source():
    """Three examples of four train, one tests; the first client has more of those than the other.

    Their one feature is their row.
    """
    source, order = a_source()
    own_test = np.arange(60) % 4 == 0
    own_test[order[:6]] = True
    marked = from_arrays(source.x_train, source.y_train, own_test=own_test)
    return marked, [order[:25], order[25:]], own_test


@pytest.mark.parametrize("split", ["random", "stratified"])
def test_marked_examples_test_their_client_and_validation_is_a_part_of_the_others(split):
    """Finds a test part that is drawn, or a validation part that is a share of all examples."""
    source, parts, own_test = marked_source()
    federation = federate(source, parts, val=0.25, test="own", split=split)
    held = [
        [np.asarray(data.x[client])[np.asarray(data.mask[client]) > 0][:, 0] for client in (0, 1)]
        for data in federation
    ]
    for client, rows in enumerate(parts):
        train, val, test = (part[client].astype(int) for part in held)
        assert sorted(test) == sorted(rows[own_test[rows]])
        assert sorted([*train, *val]) == sorted(rows[~own_test[rows]])
        assert len(val) == (~own_test[rows]).sum() // 4
        if split == "stratified":
            shares = [np.bincount(source.y_train[part], minlength=3) for part in (train, val)]
            np.testing.assert_allclose(shares[0] / 3, shares[1], atol=1.4)


def test_the_marked_examples_of_a_client_are_counted():
    source, parts, own_test = marked_source()
    counts = describe_each_client(source, parts, val=0.0)
    assert counts["test"] == [own_test[rows].sum() for rows in parts]
    assert counts["train"] == [(~own_test[rows]).sum() for rows in parts]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "own", "fold": (0, 2)}, "a fold is another test part: leave out the folds"),
        ({"test": "global"}, "(own_test), and test is global: choose test own"),
    ],
)
def test_another_test_part_beside_marked_examples_is_refused(options, message):
    source, parts, _ = marked_source()
    source = source._replace(x_test=source.x_train, y_test=source.y_train)
    with pytest.raises(InputError) as refusal:
        federate(source, parts, **options)
    assert str(refusal.value).endswith(message)


def test_a_client_whose_examples_all_test_is_refused():
    source, parts, own_test = marked_source()
    with pytest.raises(InputError, match="all examples of client 1 test it"):
        federate(source, [parts[1], np.flatnonzero(own_test)], test="own")


@pytest.mark.parametrize(
    ("own_test", "message"),
    [
        (np.zeros(4, bool), "is False for all examples: expected some that train and some that"),
        (np.ones(4, bool), "is True for all examples"),
        (np.ones(3, bool), r"has shape \(3,\) and type bool, .* expected booleans \(4,\)"),
        (np.array([0, 1, 0, 1]), "type int64, beside 0 test examples apart: expected booleans"),
    ],
)
def test_what_does_not_mark_examples_is_refused(own_test, message):
    with pytest.raises(InputError, match=message):
        from_arrays(np.eye(4), np.array([0, 1, 0, 1]), own_test=own_test)


def test_a_test_set_and_marked_examples_exclude_each_other():
    x, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(InputError, match=r"beside 4 test examples apart: .* and no y_test"):
        from_arrays(x, y, x, y, own_test=y > 0)


def test_a_group_on_both_sides_of_marked_examples_is_warned_of():
    source = from_arrays(
        np.eye(6), np.array([0, 1] * 3), own_test=np.arange(6) > 3, groups=np.arange(6) // 3
    )
    with pytest.warns(RunWarning, match="group 1 has examples that train and others that test"):
        split_rows(source, [np.arange(6)], val=0.0, test_fraction=0.2)
