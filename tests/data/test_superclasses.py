"""Clients that hold the labels of one superclass."""

import numpy as np
import pytest

import jaxfl.data
from jaxfl.core.errors import InputError
from jaxfl.data import from_arrays, superclasses
from jaxfl.data.superclasses import SUPERCLASSES
from jaxfl.experiment.config import Setting, resolve
from jaxfl.experiment.session.gather import assign, true_groups

# The coarse label of each fine label, from 0 on, as the published files hold them.
PUBLISHED = """
     4  1 14  8  0  6  7  7 18  3  3 14  9 18  7 11  3  9  7 11  6 11  5 10  7
     6 13 15  3 15  0 11  1 10 12 14 16  9 11  5  5 19  8  8 15 13 14 17 18 10
    16  4 17  4  2  0 17  4 18 17 10  3  2 12 12 16 12  1  9 19  2 10  0  1 16
    12  9 13 15 13 16 19  2  4  6 19  5  5  8 19 18  1  2 15  6  0 17  8 14 13
"""
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(4), 9))
GROUPS = (0, 1, 0, 1)


def held(parts):
    return [np.bincount(LABELS[rows], minlength=4).tolist() for rows in parts]


def test_the_superclasses_of_cifar100_are_those_of_the_published_files():
    assert list(SUPERCLASSES["cifar100"]) == [int(word) for word in PUBLISHED.split()]


def test_clients_of_a_superclass_share_its_labels():
    assert held(superclasses(LABELS, 2, 0, GROUPS)) == [[9, 0, 9, 0], [0, 9, 0, 9]]
    three = held(superclasses(LABELS, 3, 0, GROUPS))
    assert three == [[5, 0, 5, 0], [0, 9, 0, 9], [4, 0, 4, 0]]


@pytest.fixture
def folder(tmp_path):
    """CIFAR-100 with ten black images of each class, and data with superclasses of their own."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(100, dtype=np.int32), 10))
    x = np.zeros((1000, 32, 32, 3), np.uint8)
    np.savez(tmp_path / "cifar100.npz", x_train=x, y_train=y, x_test=x[:100], y_test=y[:100])
    x = np.random.default_rng(0).normal(size=(36, 3))
    np.savez(tmp_path / "own.npz", x_train=x, y_train=LABELS, superclasses=GROUPS)
    np.savez(tmp_path / "none.npz", x_train=x, y_train=LABELS)
    return str(tmp_path)


@pytest.mark.parametrize("clients", [20, 100])
def test_clients_of_cifar100_and_their_true_groups(folder, clients):
    resolved = resolve(
        Setting(dataset="cifar100", data_dir=folder, partition="superclasses", clients=clients)
    )
    config, source = resolved.config, resolved.source
    coarse = np.array(PUBLISHED.split(), int)
    parts = assign(config, source)
    for client, rows in enumerate(parts):
        labels = np.unique(source.y_train[rows])
        assert labels.tolist() == np.flatnonzero(coarse == client % 20).tolist()
    assert sum(map(len, parts)) == 1000
    groups = true_groups(config, source)
    assert groups is not None
    assert groups.tolist() == [client % 20 for client in range(clients)]


def test_data_may_have_superclasses_of_their_own(folder):
    assert jaxfl.data.load("own", folder).superclasses == GROUPS
    assert jaxfl.data.load("none", folder).superclasses == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: superclasses(LABELS, 2, 0), "these data have no superclasses"),
        (lambda: superclasses(LABELS, 2, 0, (0, 1)), "superclasses of 2 labels and labels from 0"),
        (lambda: superclasses(LABELS, 1, 0, GROUPS), "1 clients for 2 superclasses"),
        (lambda: superclasses(LABELS, 24, 0, GROUPS), "label 0 has 9 examples for 12 clients"),
        (lambda: superclasses(LABELS / 2, 2, 0, GROUPS), "targets are numbers"),
    ],
)
def test_what_a_partition_refuses(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize("groups", [[0, 1], [0.0, 1.0, 0.0, 1.0], [0, 2, 0, 2], [-1, 0, 0, 1]])
def test_what_is_no_map_to_superclasses(groups):
    with pytest.raises(InputError, match="expected one of each of 4 classes, integers from 0"):
        from_arrays(np.ones((36, 2)), LABELS, superclasses=np.array(groups))
    with pytest.raises(InputError, match="expected one of each of 4 classes"):
        from_arrays(np.ones((36, 2)), LABELS, superclasses=[0, 1, 2, 2**62])
