"""Classes that belong together: clients that hold the classes of one superclass."""

from collections.abc import Sequence

import numpy as np

from jaxfl.core.errors import check
from jaxfl.data.skews import Parts, check_labels, rows_of, shuffled

# https://www.cs.toronto.edu/~kriz/cifar.html; classes and superclasses are numbered by name.
CIFAR100 = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}


def number(groups: dict[str, str]) -> tuple[int, ...]:
    """The superclass of each class, both numbered in alphabetical order.

    Args:
      groups: the classes of each superclass, with spaces between them.

    Example:
      >>> number({"birds": "wren eagle", "cats": "lion"})
      (0, 1, 0)
    """
    group_of = {word: i for i, name in enumerate(sorted(groups)) for word in groups[name].split()}
    return tuple(group_of[word] for word in sorted(group_of))


# The superclass of each class, by the stem of a file.
SUPERCLASSES = {"cifar100": number(CIFAR100)}


def superclasses(
    labels: np.ndarray, clients: int, seed: int, superclass_of: Sequence[int] = ()
) -> Parts:
    """Every client holds the labels of one superclass, of data that have superclasses (CIFAR-100).

    Client i of C holds the labels of superclass i mod G, of G superclasses; those with the same
    superclass share each of its labels equally, up to one example.

    Args:
      labels: of the training examples [N], in 0 .. L - 1.
      clients: C, at least G.
      seed: of the division.
      superclass_of: of each label, in 0 .. G - 1 [L].

    Raises:
      InputError: the data have no superclasses, there are fewer clients than superclasses, or a
        label has fewer examples than holders.

    Example:
      >>> labels = np.repeat([0, 1, 2, 3], 10)
      >>> parts = superclasses(labels, clients=2, seed=0, superclass_of=(0, 1, 0, 1))
      >>> [np.unique(labels[rows]).tolist() for rows in parts]
      [[0, 2], [1, 3]]
    """
    check_labels(labels, clients)
    check(
        len(superclass_of) > 0,
        "these data have no superclasses: choose another partition than superclasses",
    )
    check(
        len(superclass_of) == int(labels.max()) + 1,
        f"there are superclasses of {len(superclass_of)} labels and labels from 0 to "
        f"{int(labels.max())}: expected one of each label",
    )
    groups = max(superclass_of) + 1
    check(
        clients >= groups,
        f"{clients} clients for {groups} superclasses: expected at least one client a superclass",
    )
    rng = np.random.default_rng(seed)
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for label, superclass in enumerate(superclass_of):
        holders = range(superclass, clients, groups)
        rows = rows_of(label, labels, len(holders), rng)
        for client, piece in zip(holders, np.array_split(rows, len(holders)), strict=True):
            parts[client].append(piece)
    return shuffled(parts, rng)
