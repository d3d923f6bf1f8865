import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxfl.data import (
    PARTITIONS,
    dirichlet,
    iid,
    load,
    natural,
    node_of,
    nodes,
    pathological,
    shards,
)
from jaxfl.errors import InputError

OWNERS = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 30))
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))


def counts(parts):
    return np.stack([np.bincount(LABELS[rows], minlength=10) for rows in parts])


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("clients", [10, 20])
def test_every_partition_is_disjoint_shuffled_and_repeatable(name, clients):
    first = LABELS if name != "natural" else OWNERS % clients
    parts, again, other = (PARTITIONS[name](first, clients, seed) for seed in (0, 0, 1))
    assert len(parts) == clients
    rows = np.concatenate(parts)
    assert len(np.unique(rows)) == len(rows) == len(LABELS)
    for a, b in zip(parts, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(parts, other, strict=True))
    assert any((np.diff(rows) < 0).any() for rows in parts)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 600), st.integers(0, 2**32 - 1))
def test_iid_sizes_differ_by_one_at_most(clients, seed):
    sizes = [len(rows) for rows in iid(LABELS, clients, seed)]
    assert max(sizes) - min(sizes) <= 1


def test_pathological_pairs_share_their_two_labels_equally():
    """The "severe" case: clients i and i + 5 hold the labels 2 (i mod 5) and 2 (i mod 5) + 1."""
    held = counts(pathological(LABELS, 10, seed=3))
    for client in range(10):
        labels = [2 * (client % 5), 2 * (client % 5) + 1]
        assert np.flatnonzero(held[client]).tolist() == labels
        assert held[client][labels].tolist() == [30, 30]


def test_dirichlet_skew_follows_beta_and_the_guard_holds():
    skew = {}
    for beta in (0.1, 100.0):
        held = counts(dirichlet(LABELS, 10, seed=0, beta=beta))
        assert held.sum(axis=1).min() >= 10
        skew[beta] = (held.max(axis=1) / held.sum(axis=1)).mean()
    assert skew[0.1] > 0.4 > 0.2 > skew[100.0]


def test_dirichlet_gives_a_full_client_nothing_of_further_classes():
    held = counts(dirichlet(LABELS, 10, seed=0, beta=0.05))
    before = np.cumsum(held, axis=1) - held
    assert (held[before >= 60] == 0).all()


def test_shards_are_equal_and_of_few_labels():
    parts = shards(LABELS, 20, seed=0, classes_per_client=2)
    assert {len(rows) for rows in parts} == {30}
    assert (counts(parts) > 0).sum(axis=1).max() <= 4


def test_the_last_fifth_of_a_client_is_a_fifth_of_each_of_its_shards():
    # Shards of 15 examples, four for each label.
    for rows in shards(LABELS, 20, seed=0, classes_per_client=2):
        labels, held = np.unique(LABELS[rows], return_counts=True)
        tail = [(LABELS[rows[-6:]] == label).sum() for label in labels]
        assert [5 * count for count in tail] == held.tolist()


def test_natural_clients_are_the_largest_owners():
    owners = np.array([7] * 30 + [3] * 12 + [5] * 4 + [9] * 20)
    parts = natural(owners)
    assert [set(owners[rows]) for rows in parts] == [{3}, {7}, {9}]
    assert [sorted(rows) for rows in natural(owners, clients=2)] == [
        list(range(30)),
        list(range(46, 66)),
    ]


def test_severe_heterogeneity_is_five_pairs_of_clients():
    """pFedGraph's CIFAR-10: clients i and i + 5 have 5,000 examples of the same two labels."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 5000))
    parts = pathological(labels, 10, seed=0)
    held = np.stack([np.bincount(labels[rows], minlength=10) for rows in parts])
    assert set(held[held > 0]) == {2500}
    for client in range(5):
        assert np.flatnonzero(held[client]).tolist() == [2 * client, 2 * client + 1]
        np.testing.assert_array_equal(held[client], held[client + 5])
    extreme = pathological(labels, 5, seed=0)
    assert [len(rows) for rows in extreme] == [10_000] * 5


@pytest.mark.parametrize(
    ("topology", "labels", "edges"),
    [
        (3, ["012", "234", "456"], {(0, 1), (1, 2)}),
        (4, ["012", "234", "456", "378"], {(0, 1), (1, 2), (1, 3)}),
        (5, ["012", "234", "456", "378", "89"], {(0, 1), (1, 2), (1, 3), (3, 4)}),
    ],
)
def test_nodes_are_the_papers_graph_and_share_no_example(topology, labels, edges):
    clients = 2 * topology + 1  # one node has a client more
    parts = nodes(LABELS, clients, seed=0, topology=topology)
    node = node_of(clients, topology)
    held = counts(parts) > 0
    for client in range(clients):
        assert "".join(map(str, np.flatnonzero(held[client]))) == labels[node[client]]
    common = held[:topology].astype(int) @ held[:topology].T
    assert set(zip(*np.nonzero(np.triu(common, 1)), strict=True)) == edges
    rows = np.concatenate(parts)
    assert len(np.unique(rows)) == len(rows)  # also between neighbours
    assert sorted(LABELS[rows]) == sorted(label for label in LABELS if held[:, label].any())
    for label in range(10):
        pieces = counts(parts)[held[:, label], label]
        assert pieces.size == 0 or np.ptp(pieces) <= 1


def test_digits_are_what_they_should_be():
    source = load("digits")
    assert len(source.x_train) + len(source.x_test) == 1797
    assert source.x_train.dtype == np.uint8
    assert (source.x_train.max(), source.classes, source.scale) == (16, 10, 16.0)
    np.testing.assert_allclose(
        np.bincount(source.y_test) / 360, np.bincount(source.y_train) / 1437, atol=0.003
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: iid(LABELS, 601, 0), "601 clients for 600 examples"),
        (lambda: iid(LABELS, 0, 0), "0 clients"),
        (
            lambda: pathological(LABELS, 10, 0, 3),
            r"3 classes a client do not divide 10 classes.*\[1, 2, 5, 10\]",
        ),
        (lambda: pathological(LABELS, 7, 0, 2), r"choose from \[10\]"),
        (lambda: dirichlet(LABELS, 10, 0, beta=0.0), "beta is 0.0"),
        (
            lambda: dirichlet(LABELS, 30, 0, beta=0.001, smallest=10),
            "raise beta or lower the number of clients",
        ),
        (lambda: shards(LABELS, 400, 0, 2), "need 800 examples"),
        (lambda: natural(None), "name no owners"),
        (lambda: natural(OWNERS, 21), "21 clients of a natural partition: expected 1 to 20"),
        (lambda: pathological(LABELS / 2, 10, 0), "choose partition iid or natural"),
        (lambda: nodes(LABELS, 10, 0, 6), "a topology of 6 nodes: expected 3, 4 or 5"),
        (lambda: nodes(LABELS, 3, 0, 4), "3 clients for 4 nodes"),
        (lambda: nodes(LABELS[LABELS < 8], 10, 0, 4), r"need the labels \{8\}"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()
