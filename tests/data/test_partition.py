import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxfl.core.errors import InputError, RunWarning
from jaxfl.data import (
    PARTITIONS,
    describe_partition,
    dirichlet,
    iid,
    labels,
    load,
    natural,
    niid_bench_dirichlet,
    node_of,
    nodes,
    owner_groups,
    pathological,
    quantity,
    shards,
    unbalanced_pathological,
)

OWNERS = np.random.default_rng(1).permutation(np.repeat(np.arange(20), 30))
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 60))


def counts(parts):
    return np.stack([np.bincount(LABELS[rows], minlength=10) for rows in parts])


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("clients", [10, 20])
def test_every_partition_is_disjoint_shuffled_and_repeatable(name, clients):
    first = {"natural": OWNERS % clients, "owner_groups": OWNERS}.get(name, LABELS)
    options = {
        "quantity": {"beta": 5.0},
        "superclasses": {"superclass_of": [0, 1, 2, 1, 0, 2, 3, 4, 4, 0]},
    }.get(name, {})
    parts, again, other = (PARTITIONS[name](first, clients, seed, **options) for seed in (0, 0, 1))
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


@pytest.mark.parametrize("partition", [dirichlet, niid_bench_dirichlet])
@pytest.mark.parametrize("beta", [1e-3, 1e-5])
def test_with_a_tiny_beta_one_client_holds_nearly_all_of_a_label(partition, beta):
    shares = [counts(partition(LABELS, 5, seed, beta=beta)).max(axis=0) / 60 for seed in range(5)]
    assert np.mean(shares) > 0.98


def test_the_rows_of_niid_bench_are_those_that_pfedgraphs_code_prints():
    """`noniid` in its data_partition.py, after np.random.seed: numbers that this code returned."""
    parts = niid_bench_dirichlet(np.repeat(np.arange(3), 40), 4, seed=1, beta=0.5)
    assert parts[0].tolist() == [
        *(35, 37, 34, 0, 10, 119, 3, 33, 23, 1, 81, 49, 29, 112, 17, 28, 12, 16, 82, 22, 18),
    ]
    assert [len(rows) for rows in parts] == [21, 27, 36, 36]
    assert [rows[-1] for rows in parts] == [18, 21, 67, 98]
    # ten clients, and as many images of each label as CIFAR-10 has
    parts = niid_bench_dirichlet(np.repeat(np.arange(10), 5000), 10, seed=0, beta=0.1)
    sizes = [7615, 5142, 7498, 865, 2731, 6130, 6415, 3034, 6091, 4479]
    assert [len(rows) for rows in parts] == sizes
    assert [rows[:3].tolist() for rows in parts[:3]] == [
        [44924, 7972, 43474],
        [46262, 48425, 45725],
        [26967, 19407, 26188],
    ]


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
    said = r"1 of 4 owners have fewer than 10 .* 4 of 66 examples: smallest=1 \(.*:least=1\) keeps"
    with pytest.warns(RunWarning, match=said):
        parts = natural(owners)
    assert len(natural(owners, smallest=1)) == 4
    assert [set(owners[rows]) for rows in parts] == [{3}, {7}, {9}]
    assert [sorted(rows) for rows in natural(owners, clients=2)] == [
        list(range(30)),
        list(range(46, 66)),
    ]


def test_groups_of_owners_keep_each_owner_whole_and_have_equally_many():
    owners = np.random.default_rng(2).permutation(np.repeat(np.arange(23), np.arange(1, 24)))
    parts = owner_groups(owners, 5, seed=0)
    found = [set(owners[rows]) for rows in parts]
    assert sorted(map(len, found)) == [4, 4, 5, 5, 5]
    assert set.union(*found) == set(range(23))
    assert sum(map(len, found)) == 23  # no owner is at two clients
    assert sorted(np.concatenate(parts)) == list(range(len(owners)))
    other = [set(owners[rows]) for rows in owner_groups(owners, 5, seed=1)]
    assert found != other
    assert found != [set(ids) for ids in np.array_split(np.arange(23), 5)]  # not in their order


@pytest.mark.parametrize(("clients", "k"), [(10, 1), (10, 2), (10, 3), (23, 4), (4, 10)])
def test_labels_gives_label_i_and_others_at_random_in_equal_pieces(clients, k):
    held = counts(labels(LABELS, clients, seed=0, classes_per_client=k))
    assert ((held > 0).sum(axis=1) == k).all()
    for client in range(clients):
        assert held[client, client % 10] > 0
    for label in range(10):
        pieces = held[held[:, label] > 0, label]
        assert pieces.sum() == 60
        assert np.ptp(pieces) <= 1


def test_the_other_labels_of_a_client_are_uniform():
    """Over 300 seeds, each of the nine others is the second label of client 3 about 33 times."""
    second = np.zeros(10)
    for seed in range(300):
        second[counts(labels(LABELS, 10, seed))[3] > 0] += 1
    assert second[3] == 300
    others = np.delete(second, 3)
    assert others.sum() == 300
    assert ((others > 12) & (others < 60)).all()


def test_fewer_clients_than_labels_leave_out_the_labels_that_nobody_holds():
    parts = labels(LABELS, 3, seed=0, classes_per_client=1)
    assert sorted(LABELS[np.concatenate(parts)]) == [0] * 60 + [1] * 60 + [2] * 60


def test_unbalanced_pathological_is_pfllibs_fashion_mnist():
    """20 clients, two of ten labels each: four neighbours hold a pair; the last has the rest."""
    labelled = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 7000))
    sizes = []
    for seed in range(20):
        parts = unbalanced_pathological(labelled, 20, seed=seed)
        held = np.stack([np.bincount(labelled[rows], minlength=10) for rows in parts])
        for client in range(20):
            pair = 2 * (client // 4)
            assert np.flatnonzero(held[client]).tolist() == [pair, pair + 1]
        assert (held.sum(axis=0) == 7000).all()
        blocks = np.stack([held[4 * g : 4 * g + 4, 2 * g : 2 * g + 2] for g in range(5)])
        drawn = blocks[:, :3]
        assert drawn.min() >= 175
        assert drawn.max() < 1750
        sizes.append(drawn.ravel())
    sizes = np.concatenate(sizes)  # 600 draws from 175 to 1750
    assert abs(sizes.mean() - (175 + 1750) / 2) < 60
    assert abs(sizes.std() - (1750 - 175) / 12**0.5) < 40


def test_unbalanced_pathological_of_a_hundred_labels():
    labelled = np.random.default_rng(0).permutation(np.repeat(np.arange(100), 60))
    parts = unbalanced_pathological(labelled, 20, seed=0, classes_per_client=10)
    held = np.stack([np.bincount(labelled[rows], minlength=100) for rows in parts])
    assert ((held > 0).sum(axis=1) == 10).all()
    assert ((held > 0).sum(axis=0) == 2).all()
    assert held.sum() == 6000


def test_quantity_skew_has_sizes_of_a_dirichlet_distribution_and_labels_of_none():
    """The variance of a proportion under Dir(beta) is (1 / C) (1 - 1 / C) / (C beta + 1)."""
    shares = np.array(
        [
            [len(rows) for rows in quantity(LABELS, 5, seed, beta=1.0, smallest=1)]
            for seed in range(300)
        ]
    )
    assert (shares.sum(axis=1) == 600).all()
    np.testing.assert_allclose(shares.mean(axis=0) / 600, 0.2, atol=0.03)
    np.testing.assert_allclose((shares / 600).var(), 0.2 * 0.8 / 6, rtol=0.15)
    parts = quantity(LABELS, 5, seed=0, beta=0.5)
    assert min(map(len, parts)) >= 10
    largest = max(parts, key=len)
    frequencies = np.bincount(LABELS[largest], minlength=10) / len(largest)
    assert np.abs(frequencies - 0.1).max() < 0.06
    assert sum(map(len, quantity(LABELS / 7, 5, seed=0))) == 600  # targets may be numbers


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
        (lambda: labels(LABELS / 2, 10, 0), "choose partition iid or natural"),
        (lambda: labels(LABELS, 10, 0, 11), "11 labels a client: expected 1 to 10"),
        (lambda: labels(LABELS, 601, 0, 1), "601 clients for 600 examples"),
        (lambda: labels(LABELS[:12], 12, 0, 9), r"label \d has \d examples for \d+ clients"),
        (lambda: unbalanced_pathological(LABELS, 10, 0, 0), "0 labels a client: expected 1 to 10"),
        (
            lambda: unbalanced_pathological(LABELS, 3, 0, 2),
            "3 clients with 2 labels each leave no client for label 6: choose a multiple of 10",
        ),
        (lambda: quantity(LABELS, 10, 0, beta=0.0), "beta is 0.0"),
        (lambda: quantity(LABELS, 100, 0, beta=0.01), "raise beta or lower the number of clients"),
        (lambda: owner_groups(None, 10, 0), "name no owners: choose another partition than owner"),
        (lambda: owner_groups(OWNERS, 21, 0), "21 clients for 20 owners: expected 1 to 20"),
        (lambda: owner_groups(OWNERS, 0, 0), "0 clients for 20 owners"),
        (lambda: nodes(LABELS, 10, 0, 6), "a topology of 6 nodes: expected 3, 4 or 5"),
        (lambda: nodes(LABELS, 3, 0, 4), "3 clients for 4 nodes"),
        (lambda: nodes(LABELS[LABELS < 8], 10, 0, 4), r"need the labels \{8\}"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_clients_without_examples_are_left_out_of_the_label_skew():
    source = load("digits")
    parts = pathological(source.y_train, clients=10, seed=0)
    empty = [*parts, np.zeros(0, int)]
    found = describe_partition(source, empty)
    assert found["label skew"] == describe_partition(source, parts)["label skew"]
    assert found["clients"] == "11"
