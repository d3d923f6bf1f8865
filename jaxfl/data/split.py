"""The rows of each client for training, validation and test: in one split, or in folds."""

from collections.abc import Sequence

import numpy as np

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.data.data_warnings import Splits
from jaxfl.data.skews import Parts
from jaxfl.data.source import Source, Split, many_labels


@checked
def split_rows(
    source: Source,
    parts: Parts,
    *,
    val: float,
    test_fraction: float,
    split: Split | None = None,
    fold: tuple[int, int] | None = None,
) -> Splits:
    """The rows of each client for training, validation and test.

    Args:
      source: the data set.
      parts: rows of its training set for each client, shuffled.
      val: as in `federate.federate`.
      test_fraction: likewise.
      split: likewise.
      fold: likewise.

    Raises:
      InputError: there is no such fold, or a client holds fewer examples than there are folds.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> rows = [np.arange(100)]
      >>> splits = split_rows(source, rows, val=0.25, test_fraction=0.0, fold=(4, 5))
      >>> [len(each[0]) for each in splits], splits.test[0][:3].tolist()
      ([60, 20, 20], [80, 81, 82])
    """
    if fold is None:
        return Splits(*cut(in_split_order(source, parts, split), val, test_fraction))
    place, count = fold
    check(
        count >= 2 and 0 <= place < count,
        f"fold is {fold}: expected (k, K), the k-th of K folds, with K of at least 2 and k from 0 "
        "to K - 1",
    )
    small = [client for client, rows in enumerate(parts) if len(rows) < count]
    check(
        not small,
        f"client {', '.join(map(str, small[:3]))} holds fewer examples than the {count} folds: "
        "take fewer folds, or leave small owners out (--partition natural:least=NUMBER)",
    )
    stratified = (split or source.split) == "stratified"
    folds = [fold_numbers(len(x), count, source.strata[x] if stratified else None) for x in parts]
    rest = [rows[number != place] for rows, number in zip(parts, folds, strict=True)]
    train, validation, _ = cut(in_split_order(source, rest, split), val, 0.0)
    test = [rows[number == place] for rows, number in zip(parts, folds, strict=True)]
    return Splits(train, validation, test)


def fold_numbers(examples: int, folds: int, labels: np.ndarray | None = None) -> np.ndarray:
    """The fold that tests each example [n]: a K-th of them in each, up to one example.

    Args:
      examples: n, of a client, shuffled.
      folds: K.
      labels: of the examples [n], of which each fold has each one equally often, up to one example;
        None: the first K-th of the examples is fold 0, and so on.

    Example:
      >>> fold_numbers(5, 2).tolist(), fold_numbers(5, 2, np.array([0, 0, 1, 1, 1])).tolist()
      ([0, 0, 0, 1, 1], [0, 1, 0, 1, 0])
    """
    if labels is None:
        return np.arange(examples) * folds // examples
    numbers = np.empty(examples, int)
    numbers[np.argsort(labels, kind="stable")] = np.arange(examples) % folds
    return numbers


def stratify(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The rows in an order in which each stretch has every label in the proportion of all rows.

    The i-th of n rows of a label stands at (i + 1/2) / n of the whole, so that in any stretch its
    number is the proportional one up to rounding. The rows of a label stay in their order; one that
    a client has once stands in the middle, which is trained on.

    Args:
      rows: of a client [n], shuffled.
      labels: of all examples [N].

    Raises:
      InputError: the targets are numbers.

    Example:
      >>> labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1])
      >>> labels[stratify(np.arange(9), labels)].tolist()
      [0, 1, 0, 0, 1, 0, 0, 1, 0]
    """
    check(
        labels.dtype.kind in "uib",
        "the targets are numbers, not labels: choose split random",
    )
    check(labels.ndim == 1, f"{many_labels(labels)}: choose split random")
    place = np.zeros(len(rows))
    for label in np.unique(labels[rows]):
        same = labels[rows] == label
        place[same] = (np.arange(same.sum()) + 0.5) / same.sum()
    return rows[np.argsort(place, kind="stable")]


@checked
def in_split_order(source: Source, parts: Parts, split: Split | None = None) -> Parts:
    """The rows of each client in the order in which they are divided.

    Args:
      source: the data set.
      parts: rows of its training set for each client.
      split: as in `federate.federate`.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> parts = jaxfl.data.iid(source.y_train, clients=10, seed=0)
      >>> in_split_order(source, parts)[0] is parts[0]
      True
    """
    if (split or source.split) == "random":
        return parts
    return [stratify(rows, source.strata) for rows in parts]


def cut(
    parts: Sequence[np.ndarray], val: float, test_fraction: float
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """The rows of each client for training, validation and test.

    Args:
      parts: rows of each client, in the order in which they are divided.
      val: fraction for validation, rounded down: the rows behind those for training.
      test_fraction: fraction for the test, rounded down: the last rows.

    Example:
      >>> train, val, test = cut([np.arange(10)], val=0.2, test_fraction=0.2)
      >>> train[0].tolist(), val[0].tolist(), test[0].tolist()
      ([0, 1, 2, 3, 4, 5], [6, 7], [8, 9])
    """
    cuts = [int(len(rows) * val) for rows in parts]
    ends = [len(rows) - int(len(rows) * test_fraction) for rows in parts]
    trains = [rows[: end - cut] for rows, cut, end in zip(parts, cuts, ends, strict=True)]
    vals = [rows[end - cut : end] for rows, cut, end in zip(parts, cuts, ends, strict=True)]
    tests = [rows[end:] for rows, end in zip(parts, ends, strict=True)]
    return trains, vals, tests
