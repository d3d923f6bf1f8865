"""Concepts: clients that differ in what an image or a label means, whatever the partition.

A concept changes the examples of a client, not the choice of its rows: the same change applies to
what the client trains on, validates with and is tested on. Each function here takes a data set and
a number of clients and returns a `Concept`.
"""

from collections.abc import Callable
from math import factorial
from typing import Any, Literal

import numpy as np

from jaxfl.core.errors import check
from jaxfl.data.inputs import is_tree
from jaxfl.data.skews import Parts
from jaxfl.data.source import Source, many_labels

# (client, x [n, *feature], y [n], the split of the data set) -> the client's (x, y)
Concept = Callable[
    [int, np.ndarray, np.ndarray, Literal["train", "test"]], tuple[np.ndarray, np.ndarray]
]

OTHER = "choose concept feature_noise or none"


def concept_of(clients: int, groups: int) -> np.ndarray:
    """The group of each client [C] under a concept with groups: client i is in i mod `groups`.

    Example:
      >>> concept_of(clients=5, groups=2).tolist()
      [0, 1, 0, 1, 0]
    """
    return np.arange(clients) % groups


def rotation(source: Source, clients: int, seed: int = 0, groups: int = 4) -> Concept:
    """Groups of clients see their images rotated by 0, 90, 180 or 270 degrees.

    Client i is in group g = i mod `groups` (`concept_of`), and its images are rotated by
    g * 360 / groups degrees counterclockwise, as in IFCA's rotated MNIST (4 groups) and rotated
    CIFAR (2 groups) (Ghosh et al., 2020, https://arxiv.org/abs/2006.04088).

    Differs: one client alone holds an image; in IFCA's data every group holds every image.

    Args:
      source: the data set, of images [h, w, channel].
      clients: number of clients.
      seed: has no effect.
      groups: 2 or 4.

    Raises:
      InputError: there are no images, the number of groups is another one or larger than the number
        of clients, or images that are not square would have to be rotated by 90 degrees.

    Example:
      >>> rotate = rotation(jaxfl.data.load("digits"), clients=8)
      >>> image = np.array([[1, 2], [3, 4]]).reshape(1, 2, 2, 1)
      >>> rotate(1, image, np.array([7]), "train")[0][0, :, :, 0].tolist()
      [[2, 4], [1, 3]]
    """
    several = is_tree(source.x_train)
    shape: Any = () if several else source.x_train.shape[1:]
    check(
        len(shape) == 3,
        "concept rotation takes images [h, w, channel], not examples of "
        f"{'several arrays' if several else f'shape {shape}'}: "
        "choose concept swapped_labels or another data set",
    )
    check(
        not source.each_position,
        f"{many_labels(source.y_train)}, which concept rotation would not rotate with the image: "
        f"{OTHER}",
    )
    check(groups in (2, 4), f"{groups} groups of rotated images: expected 2 or 4")
    check(
        groups == 2 or shape[0] == shape[1],
        f"images {shape[0]}x{shape[1]} cannot be rotated by 90 degrees: choose 2 groups",
    )
    _check_groups(clients, groups)

    def rotate(client: int, x: np.ndarray, y: np.ndarray, split: str):
        return np.rot90(x, client % groups * (4 // groups), axes=(1, 2)), y

    return rotate


def swapped_labels(source: Source, clients: int, seed: int = 0, groups: int = 4) -> Concept:
    """Groups of clients have permuted labels: what is a 3 for one group is a 7 for another.

    Client i is in group g = i mod `groups` (`concept_of`). Group 0 has the labels of the data set;
    each other group has a permutation of them drawn at random, different from those of all other
    groups (`label_permutations`), as in the experiments of Clustered Federated Learning (Sattler et
    al., 2021, https://arxiv.org/abs/1910.01991).

    Args:
      source: the data set, with labels.
      clients: number of clients.
      seed: of the permutations.
      groups: number of groups.

    Raises:
      InputError: the targets are numbers, or there are more groups than clients or permutations.

    Example:
      >>> swap = swapped_labels(jaxfl.data.load("digits"), clients=4, groups=2)
      >>> x, y = swap(1, np.zeros((10, 8, 8, 1)), np.arange(10), "train")
      >>> y.tolist()
      [4, 6, 2, 7, 3, 5, 9, 0, 8, 1]
    """
    check(
        source.classes > 0,
        "concept swapped_labels permutes labels, and these targets are numbers: "
        "choose another concept",
    )
    check(
        source.one_label,
        f"{many_labels(source.y_train)}, and concept swapped_labels swaps one: {OTHER}",
    )
    _check_groups(clients, groups)
    permutations = label_permutations(source.classes, groups, seed)

    def swap(client: int, x: np.ndarray, y: np.ndarray, split: str):
        return x, permutations[client % groups][y]

    return swap


def label_permutations(classes: int, groups: int, seed: int = 0) -> np.ndarray:
    """The label that each group gives to each label of the data set, int32 [groups, classes].

    Raises:
      InputError: there are fewer permutations than groups.

    Example:
      >>> label_permutations(classes=3, groups=2).tolist()
      [[0, 1, 2], [2, 0, 1]]
    """
    check(
        groups <= factorial(min(classes, 10)),
        f"{groups} groups with swapped labels: {classes} labels have only "
        f"{factorial(min(classes, 10))} orders, choose fewer groups",
    )
    rng = np.random.default_rng(seed)
    permutations = [tuple(range(classes))]
    while len(permutations) < groups:
        permutation = tuple(rng.permutation(classes).tolist())
        if permutation not in permutations:
            permutations.append(permutation)
    return np.array(permutations, np.int32)


def feature_noise(source: Source, clients: int, seed: int = 0, level: float = 0.1) -> Concept:
    """Clients see their examples with Gaussian noise, from none at the first to most at the last.

    Client i of C adds N(0, (level * i / (C - 1))^2) to each value; images have values in [0, 1].
    This is the feature noise of NIID-Bench (`noise` in its code; Li et al., 2022,
    https://arxiv.org/abs/2102.02079).

    Differs: the noise of an example is drawn once; NIID-Bench's code draws it whenever the example
    is read. The paper writes variance level * i / C; the formula above is that of its code, with
    which its results are made.

    Args:
      source: the data set. Values that are bytes count as their fraction of 255 (of digits: 16).
      clients: number of clients.
      seed: of the noise.
      level: standard deviation of the noise at the last client.

    Raises:
      InputError: the examples hold ids of words, users or items.

    Example:
      >>> disturb = feature_noise(jaxfl.data.load("digits"), clients=3, level=0.5)
      >>> x, y = np.zeros((100, 8, 8, 1)), np.zeros(100)
      >>> [disturb(client, x, y, "train")[0].std().round().item() for client in range(3)]
      [0.0, 4.0, 8.0]
    """
    check(
        not source.vocabulary and not is_tree(source.x_train),
        "concept feature_noise changes numbers, and these examples hold ids or several arrays: "
        "choose another concept or data set",
    )
    deviations = source.white * level * np.arange(clients) / max(clients - 1, 1)

    def disturb(client: int, x: np.ndarray, y: np.ndarray, split: str):
        rng = np.random.default_rng([seed, client, int(split == "test")])
        noise = rng.standard_normal(x.shape, np.float32)
        return x.astype(np.float32) + np.float32(deviations[client]) * noise, y

    return disturb


CONCEPTS: dict[str, Callable[..., Concept]] = {
    f.__name__: f for f in (rotation, swapped_labels, feature_noise)
}


def shift_training_set(source: Source, parts: Parts, concept: Concept) -> Source:
    """The data set in which each training example is as its client sees it.

    Args:
      source: the data set.
      parts: rows of its training set for each client; no row belongs to two clients.
      concept: what each client makes of its examples.

    Raises:
      InputError: two clients hold the same example.

    Example:
      >>> source = jaxfl.data.from_arrays(np.ones((4, 1)), np.array([0, 1, 0, 1]))
      >>> double = lambda client, x, y, split: (x * (client + 1), y)
      >>> shift_training_set(source, [np.array([0, 1]), np.array([2, 3])], double).x_train.tolist()
      [[1.0], [1.0], [2.0], [2.0]]
    """
    rows = np.concatenate(parts)
    check(
        len(np.unique(rows)) == len(rows),
        "clients hold the same examples, which a concept changes in different ways: "
        "choose a partition that gives each example to one client",
    )
    views = [
        concept(client, source.x_train[rows_of_client], source.y_train[rows_of_client], "train")
        for client, rows_of_client in enumerate(parts)
    ]
    x_train = source.x_train.astype(views[0][0].dtype)
    y_train = source.y_train.copy()
    x_train[rows] = np.concatenate([x for x, _ in views])
    y_train[rows] = np.concatenate([y for _, y in views])
    return source._replace(x_train=x_train, y_train=y_train)


def _check_groups(clients: int, groups: int) -> None:
    check(
        1 <= groups <= clients,
        f"{clients} clients in {groups} groups of a concept: expected at least one client a group",
    )
