"""A federation: the clients' examples, divided into parts, stored once and read by row number."""

from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl.core.errors import check, warn
from jaxfl.core.options import checked
from jaxfl.core.types import Federation, Pool
from jaxfl.data.concept import Concept, shift_training_set
from jaxfl.data.improbable import Splits, warn_improbable
from jaxfl.data.rows import by_rows
from jaxfl.data.skews import Parts
from jaxfl.data.source import Source, Split
from jaxfl.data.weights import weigh_groups

TestProtocol = Literal["reweighted", "own", "global"]
Feedback = Literal["val", "test-leaking"]
MOST_BYTES = 8 * 2**30  # of test examples, where each client has a test set of its own
# The share of the examples that clients hold, from which on all examples are kept.
MOSTLY = 0.75


@checked
def federate(
    source: Source,
    parts: Parts | np.ndarray,
    *,
    val: float = 0.2,
    own: float = 0.2,
    test: TestProtocol = "reweighted",
    feedback: Feedback = "val",
    concept: Concept | None = None,
    split: Split | None = None,
) -> Federation:
    """Divides the clients' examples: the first of each client are its training set.

    The training set is followed by the validation set, and by the test set if `test` is "own".

    Args:
      source: the data set. On a CPU the federation may share its arrays: do not write to them.
      parts: rows of its training set for each client, shuffled, as the partitions return them; or
        a matrix with the rows of a client in each row.
      val: fraction of each client's examples for validation, rounded down.
      own: fraction of each client's examples for testing if `test` is "own", rounded down.
      test: what a client is tested on. "reweighted": the whole test set, where an example's weight
        is the frequency of its label in the client's own data (pFedGraph's protocol); "global": the
        whole test set; "own": the last of its own examples.
      feedback: what methods learn from besides the training data, and what checkpoints are chosen
        by. "val": each client's validation set. "test-leaking": a copy of its test set in place of
        the validation set and with the same total weight, as in pFedGAT's Algorithm 1. The test
        score then does not measure performance on unseen data, and results cannot be compared with
        others.
      concept: what each client makes of its examples, see `data.concept`. It also changes the test
        examples that the client is scored on.
      split: "random": a client's examples are divided in the order of `parts`. "stratified": each
        part has every label in the proportion of all of the client's examples, see `stratify`. As
        `source.split` says if None, which is "stratified" for labels of owners with names.

    Returns:
      Arrays with the client axis first. Weights of the examples (`Source.weights`) are those of
      training and validation, and part of the mask of the test. The examples of clients are
      `Ragged` arrays, which share the examples of the data set and hold no padding. The test set of
      "reweighted" and "global" is one `Pool`, or with a concept a copy for each client, of the
      examples that count for it.

    Raises:
      InputError: the partition is no list of row numbers, a client holds no example, the fractions
        leave no training examples, there is no such test set, or the clients' copies of it take too
        much memory.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> parts = jaxfl.data.iid(source.y_train, clients=10, seed=0)
      >>> federation = federate(source, parts)
      >>> federation.train.x.shape, federation.val.x.shape, federation.test.x.shape
      ((10, 116, 8, 8, 1), (10, 28, 8, 8, 1), (360, 8, 8, 1))
    """
    own = own if test == "own" else 0.0
    check(
        val >= 0 and own >= 0 and val + own < 1,
        f"validation takes {val} and the test {own} of each client's examples: "
        "expected fractions that leave some to train",
    )
    check(
        test == "own" or len(source.y_test) > 0,
        f"these data have no test set for test {test}: choose test own",
    )
    check(
        test != "reweighted" or source.classes > 0,
        "the targets are numbers, not labels: choose test own or global",
    )
    parts = check_parts(parts, len(source.y_train))
    empty = [i for i, rows in enumerate(parts) if len(rows) == 0]
    check(
        not empty,
        f"client {', '.join(map(str, empty[:3]))} holds no example: "
        "use fewer clients or another partition",
    )
    parts = in_split_order(source, parts, split)

    _warn_of_splits(source, parts, val, own)
    training = source if concept is None else shift_training_set(source, parts, concept)
    x, y, places = _examples_of_clients(training.x_train, training.y_train, parts)
    cuts = [int(len(rows) * val) for rows in parts]
    trains, vals, tests = cut(places, val, own)
    weights: list[list[np.ndarray] | None] = [None] * 3
    if source.weights is not None:
        each = cut(parts, val, own)
        weights = [[source.weights[rows] for rows in split] for split in each]
    train_weights, val_weights, test_weights = weights
    _warn_of_no_weight(train_weights)
    # Of test examples that clients do not share: x, y, the rows of each client, and their weights.
    copies = (x, y, tests, test_weights or [np.ones(len(rows)) for rows in tests])
    if test == "own":
        held_out = by_rows(x, y, tests, test_weights)
    else:
        held_out = _pool(source, parts, test)
        if concept is not None or feedback != "val":
            copies = _copies(source, held_out, concept)
        if concept is not None:
            held_out = by_rows(*copies)
    if feedback == "val":
        validation = by_rows(x, y, vals, weights=val_weights)
    else:
        # The copy of the test set weighs as much as the validation set in its place.
        test_x, test_y, rows_of, weights_of = copies
        scaled = [
            row * (size / max(row.sum(), 1e-9)) for row, size in zip(weights_of, cuts, strict=True)
        ]
        validation = by_rows(test_x, test_y, rows_of, scaled)
    return Federation(by_rows(x, y, trains, weights=train_weights), validation, held_out)


def check_parts(parts: Parts | np.ndarray, examples: int) -> Parts:
    """The rows of each client as arrays.

    Args:
      parts: a list of the rows of each client, a matrix with them in its rows, or an array of such
        arrays.
      examples: how many there are.

    Raises:
      InputError: there is no client, or rows are something else than numbers of examples.

    Example:
      >>> check_parts([np.array([7])], examples=5)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: client 0 holds the row 7 of 5 examples: expected rows from 0 ...
    """
    several = isinstance(parts, list | tuple)
    if isinstance(parts, np.ndarray):
        several = parts.ndim == 2 or (parts.ndim == 1 and parts.dtype == object)
    check(
        several and len(parts) > 0,
        f"the partition is {type(parts).__name__} of length "
        f"{len(parts) if hasattr(parts, '__len__') else 0}: expected a list with an array of row "
        "numbers for each client, one or more",
    )
    rows_of = [np.asarray(rows) for rows in parts]
    for client, rows in enumerate(rows_of):
        check(
            rows.ndim == 1 and (rows.dtype.kind in "iu" or not rows.size),
            f"the rows of client {client} are {rows.dtype} of shape {rows.shape}: expected row "
            "numbers [n]; numpy.flatnonzero(mask) makes them of a mask",
        )
        outside = rows[(rows < 0) | (rows >= examples)]
        check(
            not outside.size,
            f"client {client} holds the row {outside[0] if outside.size else ''} of {examples:,} "
            f"examples: expected rows from 0 to {examples - 1:,}; make the partition of y_train",
        )
    return [rows.astype(np.int64) if not rows.size else rows for rows in rows_of]


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
        labels.dtype.kind in "ui",
        "the targets are numbers, not labels: choose split random",
    )
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
      split: as in `federate`.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> parts = jaxfl.data.iid(source.y_train, clients=10, seed=0)
      >>> in_split_order(source, parts)[0] is parts[0]
      True
    """
    if (split or source.split) == "random":
        return parts
    return [stratify(rows, source.y_train) for rows in parts]


def cut(
    parts: Sequence[np.ndarray], val: float, own: float
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """The rows of each client for training, validation and test.

    Args:
      parts: rows of each client, in the order in which they are divided.
      val: fraction for validation, rounded down: the rows behind those for training.
      own: fraction for the test, rounded down: the last rows.

    Example:
      >>> train, val, test = cut([np.arange(10)], val=0.2, own=0.2)
      >>> train[0].tolist(), val[0].tolist(), test[0].tolist()
      ([0, 1, 2, 3, 4, 5], [6, 7], [8, 9])
    """
    cuts = [int(len(rows) * val) for rows in parts]
    ends = [len(rows) - int(len(rows) * own) for rows in parts]
    trains = [rows[: end - cut] for rows, cut, end in zip(parts, cuts, ends, strict=True)]
    vals = [rows[end - cut : end] for rows, cut, end in zip(parts, cuts, ends, strict=True)]
    tests = [rows[end:] for rows, end in zip(parts, ends, strict=True)]
    return trains, vals, tests


def _warn_of_splits(source: Source, parts: Parts, val: float, own: float) -> None:
    """Warns of improbable splits, by the labels of the data before a concept changes them."""
    train, validation, test = cut(parts, val, own)
    warn_improbable(source, Splits(train, validation, test if own else []))


def _warn_of_no_weight(weights: list[np.ndarray] | None) -> None:
    """Warns of clients whose training examples all weigh 0 [C, n_i]."""
    nothing = [i for i, row in enumerate(weights or []) if row.size and not row.any()]
    if nothing:
        warn(
            f"all training examples of {len(nothing)} of {len(weights or [])} clients weigh 0 "
            f"(client {', '.join(map(str, nothing[:3]))}), so that they learn nothing from them"
        )


def _examples_of_clients(
    x: Array | np.ndarray, y: np.ndarray, parts: Parts
) -> tuple[Array, Array, list[np.ndarray]]:
    """The examples x and y on the device, and the rows of each client in them.

    Where clients hold few of the examples, the others are left out.
    """
    rows = np.unique(np.concatenate(parts))
    if rows.size >= MOSTLY * len(x):
        # On a CPU it takes no memory, see `arrays.aligned_copy`.
        return jax.device_put(x), jnp.asarray(y), list(parts)
    places = [np.searchsorted(rows, part) for part in parts]
    return jnp.asarray(x[rows]), jnp.asarray(y[rows]), places


def _pool(source: Source, parts: Parts, test: TestProtocol) -> Pool:
    """The test set of all clients, "reweighted" or "global".

    An example has the weight of its group, so that nobody holds a number for each client and
    example.
    """
    if test == "reweighted":
        groups = source.y_test
        sizes = np.array([len(rows) for rows in parts])
        weights = label_counts(source, parts) / sizes[:, None]
    else:
        groups = np.zeros(len(source.y_test), np.int32)
        weights = np.ones((len(parts), 1))
    if source.weights_test is not None:
        groups, weights = weigh_groups(groups, weights, source.weights_test)
    return Pool(
        jax.device_put(source.x_test),
        jnp.asarray(source.y_test),
        jnp.asarray(weights, jnp.float32),
        jnp.asarray(groups, jnp.int32),
    )


def _copies(
    source: Source, pool: Pool, concept: Concept | None
) -> tuple[Array, Array, list[np.ndarray], list[np.ndarray]]:
    """The test examples that count for each client, as it sees them.

    Returns:
      x, y, the rows of each client in them, and the weights of these rows.

    Raises:
      InputError: they take too much memory.
    """
    groups = np.asarray(pool.groups)
    weights_of_all = [weights[groups] for weights in np.asarray(pool.mask)]
    counting = [np.flatnonzero(weights) for weights in weights_of_all]
    weights_of = [weights[weights > 0] for weights in weights_of_all]
    if concept is None:
        return pool.x, pool.y, counting, weights_of
    return (*_test_views(source, counting, concept), weights_of)


def _test_views(
    source: Source, parts: Sequence[np.ndarray], concept: Concept
) -> tuple[Array, Array, list[np.ndarray]]:
    """The test examples as each client sees them, one client after the other.

    Args:
      source: the data set.
      parts: rows of its test set for each client.
      concept: what each client makes of them.

    Returns:
      x, y, and the rows of each client in them.

    Raises:
      InputError: they take too much memory.
    """
    longest = max(map(len, parts))
    one = concept(0, source.x_test[:1], source.y_test[:1], "test")[0].nbytes
    check(
        len(parts) * longest * one <= MOST_BYTES,
        f"test sets of {len(parts)} clients with {longest} examples each, which their concept "
        f"changes, take {len(parts) * longest * one / 2**30:.0f} GiB: choose test own or fewer "
        "clients",
    )
    views = [
        concept(client, source.x_test[rows], source.y_test[rows], "test")
        for client, rows in enumerate(parts)
    ]
    ends = np.cumsum([len(rows) for rows in parts])
    places = np.split(np.arange(ends[-1]), ends[:-1])
    x = jnp.asarray(np.concatenate([x for x, _ in views]))
    y = jnp.asarray(np.concatenate([y for _, y in views]))
    return x, y, places


def label_counts(source: Source, parts: Parts) -> np.ndarray:
    """Number of examples of each label at each client [C, classes].

    Targets that are numbers count by the tenth of the training set that they fall into; those of
    several numbers by that of their mean.
    """
    labels = source.y_train
    classes = source.classes
    if not classes:
        y = source.y_train
        means = y if y.ndim == 1 else y.reshape(len(y), -1).mean(axis=1)
        edges = np.unique(np.quantile(means, np.linspace(0, 1, 11)[1:-1]))
        labels = np.digitize(means, edges)
        classes = len(edges) + 1
    return np.stack([np.bincount(labels[rows], minlength=classes) for rows in parts])


def group_order(counts: np.ndarray) -> np.ndarray:
    """Ids of the clients [C], ordered so that those with the same labels are neighbours.

    Args:
      counts: [C, classes], of `label_counts`.
    """
    frequencies = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    lacks = frequencies < 0.1  # rare labels do not count
    return np.lexsort(lacks.T[::-1])  # clients with label 0 first; among them, those with label 1
