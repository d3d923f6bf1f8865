"""Data that are possible and improbable: one line each, with what to do.

`from_arrays` and `federate` warn of what `improbabilities` finds, so that a program in Python and
the command line say the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import warn
from jaxfl.data.inputs import is_tree
from jaxfl.data.source import Source, client_names

# Examples of an array of which the values are looked at.
LOOKED_AT = 1000
# Rows of a client from which on an order of their labels is no chance.
ORDERED = 10
# Examples of a label that a client holds, none of which its test has.
MISSED = 5
# Test examples a label from which on it is no chance that one has none.
A_LABEL = 10
# Numbers of an example from which on they may be the pixels of an image.
PIXELS = 64
# Shapes of the published images by the names of their files.
PUBLISHED = {
    "mnist": (28, 28, 1),
    "fashion_mnist": (28, 28, 1),
    "cifar10": (32, 32, 3),
    "cifar100": (32, 32, 3),
    "svhn_cropped": (32, 32, 3),
}


class Splits(NamedTuple):
    """The rows of the training set that each client trains on, validates with, and is tested on."""

    train: Sequence[np.ndarray]
    val: Sequence[np.ndarray]
    # empty where clients are tested on a test set of the data
    test: Sequence[np.ndarray]


def improbabilities(source: Source, splits: Splits | None = None) -> list[str]:
    """What is improbable about data: about the arrays, or about the clients where splits are given.

    Args:
      source: the data set.
      splits: of its training set among the clients.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> improbabilities(source)
      []
      >>> rows = np.argsort(source.y_train, kind="stable")
      >>> improbabilities(source, Splits([rows[:1300]], [rows[1300:]], []))[0][:52]
      'the rows of client 0 stand in the order of their lab'
    """
    if splits is not None:
        return [*_shared_groups(source, splits), *_poor_splits(source, splits)]
    found = [_unscaled(source), _whole_targets(source), _poor_test_set(source)]
    return [message for message in found if message]


def warn_improbable(source: Source, splits: Splits | None = None) -> None:
    """A `RunWarning` for each of the `improbabilities`.

    Example:
      >>> warn_improbable(jaxfl.data.load("digits")) is None
      True
    """
    for message in improbabilities(source, splits):
        warn(message)


def _unscaled(source: Source) -> str:
    """Images whose values are bytes, kept as floats."""
    x = source.x_train
    if is_tree(x) or x.ndim < 2 or x.dtype.kind != "f" or source.scale != 1.0:
        return ""
    some = x[:LOOKED_AT]
    low, high = some.min(), some.max()
    if low < 0 or not 1 < high <= 255:
        return ""
    whole = (some == np.round(some)).all()
    if x.ndim == 2:
        # Rows of pixels, and no counts.
        images = whole and high == 255 and x.shape[1] >= PIXELS
    elif x.ndim == 3:
        images = whole
    else:
        # Images that were resized are no whole numbers.
        images = whole or high >= 128
    if not images:
        return ""
    return (
        f"x_train holds values from {low:g} to {high:g} as {x.dtype}, which models see as they "
        "are: if these are images, store them as uint8, which are divided by 255, or scale them to "
        "[0, 1]"
    )


def _whole_targets(source: Source) -> str:
    """Labels that were kept as floats."""
    y = source.y_train
    if source.classes or y.ndim != 1 or not y.size or y.min() != 0:
        return ""
    values = np.unique(y)
    if len(values) < 2 or len(values) * 2 > len(y) or (values != np.arange(len(values))).any():
        return ""
    return (
        f"y_train holds the whole numbers 0 to {int(values[-1])} as {y.dtype}: they are taken as "
        "numbers to predict; for labels store integers, as y_train.astype(int)"
    )


def _poor_test_set(source: Source) -> str:
    """A test set without an example of some labels."""
    labels = np.unique(source.y_test[source.y_test >= 0])
    if not source.classes or source.several_labels or len(source.y_test) < A_LABEL * source.classes:
        return ""
    if len(labels) == source.classes:
        return ""
    if len(labels) == 1:
        return (
            f"all {len(source.y_test):,} examples of the test set have the label {labels[0]}: a "
            "score says nothing of the others; shuffle before you split, or stratify by labels"
        )
    missing = np.setdiff1d(np.arange(source.classes), labels)
    return (
        f"the test set has no example of {_some('label', missing)}: a score says nothing of "
        "them; shuffle before you split, or stratify by labels"
    )


def _in_order(source: Source, splits: Splits) -> list[int]:
    """The clients whose rows stand label by label, so that the cuts part the labels."""
    y = source.y_train
    clients = []
    held_out = splits.test or [rows[:0] for rows in splits.train]
    for client, parts in enumerate(zip(splits.train, splits.val, held_out, strict=True)):
        rows = np.concatenate(parts)
        labels = len(np.unique(y[rows]))
        runs = 1 + np.count_nonzero(np.diff(y[rows]))
        apart = any(part.size and not np.isin(y[part], y[parts[0]]).any() for part in parts[1:])
        if apart and len(rows) >= ORDERED and 1 < labels == runs and 2 * labels <= len(rows):
            clients.append(client)
    return clients


def _with_one_label_in_test(source: Source, splits: Splits) -> list[int]:
    """The clients with several labels whose own test part has one alone."""
    clients = []
    for client, test in enumerate(splits.test):
        held = np.concatenate([splits.train[client], splits.val[client], test])
        counts = np.bincount(source.y_train[held], minlength=source.classes)
        one = test.size > 0 and len(np.unique(source.y_train[test])) == 1
        if one and np.count_nonzero(counts >= MISSED) > 1:
            clients.append(client)
    return clients


def _shared_groups(source: Source, splits: Splits) -> list[str]:
    """Groups of which several clients have examples."""
    if source.groups is None:
        return []
    held_out = splits.test or [rows[:0] for rows in splits.train]
    clients = zip(splits.train, splits.val, held_out, strict=True)
    each = [np.unique(source.groups[np.concatenate(parts)]) for parts in clients]
    groups, counts = np.unique(np.concatenate(each), return_counts=True)
    shared = groups[counts > 1]
    if not shared.size:
        return []
    return [
        f"{_some('group', shared)} of {len(groups):,} have examples at several clients: scores are "
        "too good where one client is tested on a group that another one trains on; a partition "
        "by owners that share no group (--partition natural) has none"
    ]


def _poor_splits(source: Source, splits: Splits) -> list[str]:
    """Clients that are tested on other labels than they train on, or on one of several."""
    if not source.one_label:
        return []
    found = []
    names = client_names(source, splits.train)
    in_order = _in_order(source, splits)
    if in_order:
        found.append(
            f"the rows of {_some('client', in_order, names)} stand in the order of their labels, "
            "so that they are validated or tested on labels that they do not train on: shuffle the "
            "rows of each client, as numpy.random.default_rng(0).permutation(rows)"
        )
    poor = [one for one in _with_one_label_in_test(source, splits) if one not in in_order]
    if poor:
        found.append(
            f"the test part of {_some('client', poor, names)} has examples of one label alone, "
            "though the client holds others: give a larger part to the test (test_fraction=0.4), "
            "or another seed"
        )
    return found


def left_out(counts: np.ndarray, smallest: int, names: Sequence[str] = ()) -> str:
    """What to say of owners that are left out for being small; "" if none is.

    Args:
      counts: numbers of examples of all owners.
      smallest: owners with fewer are left out.
      names: of these owners, if they have some.

    Example:
      >>> left_out(np.array([3, 40]), smallest=10)[:57]
      '1 of 2 owners have fewer than 10 examples and are left ou'
    """
    small = counts < smallest
    if not small.any():
        return ""
    some = [names[place] for place in np.flatnonzero(small).tolist()] if names else []
    which = f" ({_listed(some)})" if some else ""
    return (
        f"{small.sum():,} of {len(counts):,} owners{which} have fewer than {smallest} examples "
        f"and are left out, with {counts[small].sum():,} of {counts.sum():,} examples: smallest=1 "
        "(--partition natural:least=1) keeps them"
    )


def other_images(name: str, source: Source) -> str:
    """What to say of a file with the name of published images that holds others; "" if it does not.

    Args:
      name: stem of the file.
      source: what it holds.

    Example:
      >>> other_images("mnist", jaxfl.data.load("digits"))[:59]
      'mnist.npz holds examples of shape (8, 8, 1), and the publis'
    """
    if name not in PUBLISHED:
        return ""
    shape = None if is_tree(source.x_train) else source.x_train.shape[1:]
    if PUBLISHED[name] == shape:
        return ""
    if shape is None:
        return (
            f"{name}.npz holds several arrays of inputs, and the published {name} one: if these "
            "are data of your own, give the file another name"
        )
    return (
        f"{name}.npz holds examples of shape {shape}, and the published {name} of shape "
        f"{PUBLISHED[name]}: if these are data of your own, give the file another name"
    )


def without_validation_score(
    title: str,
    clients: Sequence[int] | np.ndarray,
    targets: Sequence[np.ndarray],
    names: Sequence[str] = (),
    stratified: bool = False,
) -> str:
    """What to say where the first metric has no value on validation examples of some clients.

    Args:
      title: of the metric.
      clients: ids of the clients that have validation examples, and no score on them.
      targets: of all examples of each of these clients, whatever the seed.
      names: of all clients, where they have names.
      stratified: whether each label is divided in proportion already.

    Example:
      >>> without_validation_score("AUC", [0], [np.array([1, 1, 1])])[-41:]
      'with one label; name another metric first'
    """
    if not len(clients):
        return ""
    out = "leaves them out" if len(clients) > 1 else "leaves it out"
    start = (
        f"{title} is not defined on the validation examples of {_some('client', clients, names)}: "
        f"what is chosen by validation scores (a round, a model, a trial) {out}"
    )
    alone = [one for one, y in zip(clients, targets, strict=True) if (y == y[:1]).all()]
    if len(alone) == len(clients):
        whom = "clients" if len(clients) > 1 else "a client"
        change = f"no split changes that for {whom} with one label"
        return f"{start}, and {change}; name another metric first"
    kept = f" ({_some('client', alone, names)} with one label cannot have a score)" if alone else ""
    split = "" if stratified else "divide each label in proportion (--split stratified), "
    return f"{start}{kept}; {split}give more of them (--val), or name another metric first"


def _some(noun: str, numbers: Sequence[int] | np.ndarray, names: Sequence[str] = ()) -> str:
    """Up to three things by their numbers or names, and how many more there are."""
    words = [names[int(number)] if names else str(int(number)) for number in numbers]
    return f"{noun}{'s' if len(words) > 1 else ''} {_listed(words)}"


def _listed(words: Sequence[str]) -> str:
    """Up to three words, and how many more there are."""
    more = f" and {len(words) - 3:,} more" if len(words) > 3 else ""
    return f"{', '.join(words[:3])}{more}"
