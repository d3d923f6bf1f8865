"""The rows of each client for training, validation and test: in one split, or in folds.

Where the data have groups, such as the rows of a patient, each part has whole groups.
"""

from collections.abc import Sequence

import numpy as np

from jaxfl.core.errors import check, warn
from jaxfl.core.options import checked
from jaxfl.data.data_warnings import Splits
from jaxfl.data.skews import Parts
from jaxfl.data.source import Source, Split, client_names, many_labels


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
      test_fraction: likewise; of no effect where the data say which examples test (`own_test`).
      split: likewise.
      fold: likewise.

    Raises:
      InputError: there is no such fold, a client holds fewer examples or groups than there are
        folds, or all examples of a client test it.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> rows = [np.arange(100)]
      >>> splits = split_rows(source, rows, val=0.25, test_fraction=0.0, fold=(4, 5))
      >>> [len(each[0]) for each in splits], splits.test[0][:3].tolist()
      ([60, 20, 20], [80, 81, 82])
    """
    groups = source.groups
    if source.own_test is not None:
        check(
            fold is None,
            "the data say which examples test (own_test), and a fold is another test part: leave "
            "out the folds",
        )
        tests = [rows[source.own_test[rows]] for rows in parts]
        rest = [rows[~source.own_test[rows]] for rows in parts]
        idle = [client for client, rows in enumerate(rest) if not len(rows)]
        check(
            not idle,
            f"all examples of client {', '.join(map(str, idle[:3]))} test it (own_test): expected "
            "some to train on",
        )
        if groups is not None:
            _warn_of_tested_groups(groups, tests, rest)
        train, validation, _ = cut(in_split_order(source, rest, split), val, 0.0, groups)
        return Splits(train, validation, tests)
    if fold is None:
        rows = in_split_order(source, parts, split)
        splits = Splits(*cut(rows, val, test_fraction, groups))
        _warn_of_few_groups(source, splits, val, test_fraction)
        return splits
    place, count = fold
    check(
        count >= 2 and 0 <= place < count,
        f"fold is {fold}: expected (k, K), the k-th of K folds, with K of at least 2 and k from 0 "
        "to K - 1",
    )
    what = "examples" if groups is None else "groups"
    sizes = [len(rows if groups is None else np.unique(groups[rows])) for rows in parts]
    small = [client for client, size in enumerate(sizes) if size < count]
    check(
        not small,
        f"client {', '.join(map(str, small[:3]))} holds fewer {what} than the {count} folds: "
        "take fewer folds, or leave small owners out (--partition natural:least=NUMBER)",
    )
    stratified = (split or source.split) == "stratified"
    folds = [
        fold_numbers(
            len(rows),
            count,
            source.strata[rows] if stratified else None,
            None if groups is None else groups[rows],
        )
        for rows in parts
    ]
    rest = [rows[number != place] for rows, number in zip(parts, folds, strict=True)]
    train, validation, _ = cut(in_split_order(source, rest, split), val, 0.0, groups)
    test = [rows[number == place] for rows, number in zip(parts, folds, strict=True)]
    splits = Splits(train, validation, test)
    _warn_of_few_groups(source, splits, val, 0.0)
    return splits


def _warn_of_few_groups(source: Source, splits: Splits, val: float, test_fraction: float) -> None:
    """Warns of clients whose few groups leave a part empty."""
    each = (("validation", val, splits.val), ("test", test_fraction, splits.test))
    for part, share, rows_of in each:
        empty = [client for client, rows in enumerate(rows_of) if not len(rows)]
        if empty and share and source.groups is not None:
            names = client_names(source, splits.train) or range(len(rows_of))
            some = ", ".join(str(names[client]) for client in empty[:3])
            warn(
                f"{len(empty)} of {len(rows_of)} clients have no {part} example, such as {some}, "
                "since they hold few groups: give this part a larger share (--val, "
                "--test-fraction), or leave them out (--partition natural:least=NUMBER)"
            )


def fold_numbers(
    examples: int,
    folds: int,
    labels: np.ndarray | None = None,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """The fold that tests each example [n]: a K-th of them in each, up to one example or group.

    Args:
      examples: n, of a client, shuffled.
      folds: K.
      labels: of the examples [n], of which each fold has each one equally often, up to one example;
        None: the first K-th of the examples is fold 0, and so on.
      groups: of the examples [n], each of which is tested in one fold; the folds then have each
        label equally often, and as many examples, up to a group.

    Example:
      >>> fold_numbers(5, 2).tolist(), fold_numbers(5, 2, np.array([0, 0, 1, 1, 1])).tolist()
      ([0, 0, 0, 1, 1], [0, 1, 0, 1, 0])
      >>> fold_numbers(5, 2, groups=np.array([7, 8, 7, 9, 8])).tolist()
      [0, 1, 0, 0, 1]
    """
    if groups is not None:
        return _folds_of_groups(groups, folds, labels)
    if labels is None:
        return np.arange(examples) * folds // examples
    numbers = np.empty(examples, int)
    numbers[np.argsort(labels, kind="stable")] = np.arange(examples) % folds
    return numbers


def _warn_of_tested_groups(groups: np.ndarray, tests: Parts, rest: Parts) -> None:
    """Warns of groups with examples among those that test and among the others."""
    tested, others = (groups[np.concatenate(rows)] for rows in (tests, rest))
    both = np.intersect1d(tested, others)
    if both.size:
        more = f" and {both.size - 3} more" if both.size > 3 else ""
        warn(
            f"group {', '.join(map(str, both[:3]))}{more} has examples that train and others that "
            "test (own_test), so that scores are too good"
        )


def _folds_of_groups(groups: np.ndarray, folds: int, labels: np.ndarray | None) -> np.ndarray:
    """The fold of each example [n]: the largest group first goes where its labels are rarest."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    counts = _label_counts(group, np.zeros(len(groups)) if labels is None else labels)
    number = np.empty(len(counts), int)
    held = np.zeros((folds, counts.shape[1]), int)
    for one in np.lexsort((first, -counts.sum(axis=1))):
        # The sum over folds and labels of squared shares grows least.
        growth = (held * (counts[one] / counts.sum(axis=0) ** 2)).sum(axis=1)
        number[one] = np.lexsort((held.sum(axis=1), growth))[0]
        held[number[one]] += counts[one]
    return number[group]


def _label_counts(group: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How many examples of each group 0, 1, ... have each label [G, L]."""
    kinds, kind = np.unique(labels, return_inverse=True)
    counts = np.zeros((group.max(initial=-1) + 1, len(kinds)), int)
    np.add.at(counts, (group, kind), 1)
    return counts


def stratify(rows: np.ndarray, labels: np.ndarray, groups: np.ndarray | None = None) -> np.ndarray:
    """The rows in an order in which each stretch has every label in the proportion of all rows.

    The i-th of n rows of a label stands at (i + 1/2) / n of the whole, so that in any stretch its
    number is the proportional one up to rounding. The rows of a label stay in their order; one that
    a client has once stands in the middle, which is trained on.

    Args:
      rows: of a client [n], shuffled; those of a group one after another.
      labels: of all examples [N].
      groups: of all examples [N], which stay together: a group counts as so many rows of the label
        that most of them have.

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
    own, group = labels[rows], np.arange(len(rows))
    if groups is not None:
        _, first, group = np.unique(groups[rows], return_index=True, return_inverse=True)
        own = _label_counts(group, own).argmax(axis=1)[group]
        # A group is named by its first row, so that groups at one place stay in their order.
        group = first[group]
    place = np.zeros(len(rows))
    for label in np.unique(own):
        same = own == label
        place[same] = (np.arange(same.sum()) + 0.5) / same.sum()
    # A group stands where its rows stand in the mean.
    place = np.bincount(group, place)[group] / np.bincount(group)[group]
    return rows[np.lexsort((group, place))]


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
    groups = source.groups
    if groups is not None:
        parts = [_together(rows, groups[rows]) for rows in parts]
    if (split or source.split) == "random":
        return parts
    return [stratify(rows, source.strata, groups) for rows in parts]


def _together(rows: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The rows of a client [n], those of a group behind the first of them."""
    _, first, group = np.unique(groups, return_index=True, return_inverse=True)
    return rows[np.argsort(first[group], kind="stable")]


def cut(
    parts: Sequence[np.ndarray],
    val: float,
    test_fraction: float,
    groups: np.ndarray | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """The rows of each client for training, validation and test.

    Args:
      parts: rows of each client, in the order in which they are divided.
      val: fraction for validation, rounded down: the rows behind those for training.
      test_fraction: fraction for the test, rounded down: the last rows.
      groups: of all examples [N], the rows of each one after another. A group goes to the part in
        which its middle is, and to training if it has more rows than validation or the test shall
        have.

    Example:
      >>> train, val, test = cut([np.arange(10)], val=0.2, test_fraction=0.2)
      >>> train[0].tolist(), val[0].tolist(), test[0].tolist()
      ([0, 1, 2, 3, 4, 5], [6, 7], [8, 9])
      >>> groups = np.array([1, 1, 1, 1, 2, 2, 2, 3, 3, 4])
      >>> [rows[0].tolist() for rows in cut([np.arange(10)], 0.3, 0.1, groups)]
      [[0, 1, 2, 3, 4, 5, 6], [7, 8], [9]]
    """
    trains, vals, tests = [], [], []
    for rows in parts:
        held = int(len(rows) * val)
        end = len(rows) - int(len(rows) * test_fraction)
        place = np.arange(len(rows))
        if groups is not None:
            place = _middles(groups[rows], held, len(rows) - end)
        trains.append(rows[place < end - held])
        vals.append(rows[(place >= end - held) & (place < end)])
        tests.append(rows[place >= end])
    return trains, vals, tests


def _middles(groups: np.ndarray, *parts: int) -> np.ndarray:
    """The middle of the places of each row's group [n], behind the groups larger than a part."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    least = min(filter(None, parts), default=len(groups))
    place = np.empty(len(groups))
    place[np.argsort(sizes[group] <= least, kind="stable")] = np.arange(len(groups))
    return (np.bincount(group, place) / sizes)[group]
