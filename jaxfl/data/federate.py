"""A federation: the clients' examples, divided into parts, stored once and read by row number."""

from collections.abc import Sequence
from typing import Literal

import jax
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check, warn
from jaxfl.core.options import checked
from jaxfl.core.plain_array import plain_array
from jaxfl.core.types import Federation, Pool
from jaxfl.data.concept import Concept, shift_training_set
from jaxfl.data.data_warnings import Splits, warn_improbable
from jaxfl.data.inputs import is_tree
from jaxfl.data.rows import by_rows
from jaxfl.data.skews import Parts
from jaxfl.data.source import Source, Split, many_labels
from jaxfl.data.split import in_split_order, split_rows
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
    test_fraction: float = 0.2,
    test: TestProtocol = "reweighted",
    feedback: Feedback = "val",
    concept: Concept | None = None,
    split: Split | None = None,
    fold: tuple[int, int] | None = None,
) -> Federation:
    """Divides the clients' examples: the first of each client are its training set.

    The training set is followed by the validation set, and by the test set if `test` is "own".

    Args:
      source: the data set. On a CPU the federation may share its arrays: do not write to them.
      parts: rows of its training set for each client, shuffled, as the partitions return them; or
        a matrix with the rows of a client in each row.
      val: fraction of each client's examples for validation, rounded down.
      test_fraction: that for testing if `test` is "own", rounded down. Of no effect where the data
        say which examples test (`Source.own_test`); `val` is then a fraction of the others.
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
        part has every label in the proportion of all of the client's examples, see
        `split.stratify`. As `source.split` says if None, which is "stratified" for labels of owners
        with names.
      fold: (k, K), a split of cross-validation, if `test` is "own": each client is tested on the
        k-th of K parts of its examples, from 0, in place of the last ones, so that each example is
        tested once over the K folds. Validation takes `val` of the others. None: one split.

    Returns:
      Arrays with the client axis first. Weights of the examples (`Source.weights`) are those of
      training and validation, and part of the mask of the test. The examples of clients are
      `Ragged` arrays, which share the examples of the data set and hold no padding. The test set of
      "reweighted" and "global" is one `Pool`, or with a concept a copy for each client, of the
      examples that count for it.

    Raises:
      InputError: the partition is no list of row numbers, a client holds no example, the fractions
        leave no training examples, there is no such test set, or the clients' copies of it take too
        much memory; there is no such fold, a client holds fewer examples than there are folds, or
        clients are not tested on their own examples.

    Example:
      >>> source = jaxfl.data.load("digits")
      >>> parts = jaxfl.data.iid(source.y_train, clients=10, seed=0)
      >>> federation = federate(source, parts)
      >>> federation.train.x.shape, federation.val.x.shape, federation.test.x.shape
      ((10, 116, 8, 8, 1), (10, 28, 8, 8, 1), (360, 8, 8, 1))
    """
    drawn = test == "own" and fold is None and source.own_test is None
    test_fraction = test_fraction if drawn else 0.0
    check(
        source.own_test is None or test == "own",
        f"the data say which examples test their client (own_test), and test is {test}: choose "
        "test own",
    )
    check(
        fold is None or test == "own",
        f"folds test clients on parts of their own examples, and test is {test}: choose test own",
    )
    check(
        val >= 0 and test_fraction >= 0 and val + test_fraction < 1,
        f"validation takes {val} and the test {test_fraction} of each client's examples: "
        "expected fractions that leave some to train",
    )
    check(
        test == "own" or len(source.y_test) > 0,
        f"these data have no test set for test {test}: choose test own",
    )
    check(
        test != "reweighted" or source.classes > 0,
        "the targets are numbers, not labels: choose test own or global"
        if source.targets
        else "the data have no labels to weigh a test set by: choose test own or global",
    )
    check(
        test != "reweighted" or source.one_label,
        f"{many_labels(source.y_train)}, and test reweighted weighs it by the frequency of one: "
        "choose test own or global",
    )
    check(
        concept is None or not is_tree(source.x_train),
        "a concept changes examples of one array, and these have several: leave it out",
    )
    parts = check_parts(parts, len(source.y_train))
    empty = [i for i, rows in enumerate(parts) if len(rows) == 0]
    check(
        not empty,
        f"client {', '.join(map(str, empty[:3]))} holds no example: "
        "use fewer clients or another partition",
    )
    splits = split_rows(source, parts, val=val, test_fraction=test_fraction, split=split, fold=fold)
    # By the labels of the data before a concept changes them.
    warn_improbable(source, splits if any(map(len, splits.test)) else splits._replace(test=[]))
    # In the same order in all folds, for which a concept draws the same numbers.
    parts = in_split_order(source, parts, split)
    training = source if concept is None else shift_training_set(source, parts, concept)
    x, y, (trains, vals, tests) = _examples_of_clients(training.x_train, training.y_train, splits)
    weights: list[list[np.ndarray] | None] = [None] * 3
    if source.weights is not None:
        weights = [[source.weights[rows] for rows in part] for part in splits]
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
            row * (len(rows) / max(row.sum(), 1e-9))
            for row, rows in zip(weights_of, vals, strict=True)
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
    rows_of = [plain_array(rows, f"the rows of client {i}") for i, rows in enumerate(parts)]
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


def _warn_of_no_weight(weights: list[np.ndarray] | None) -> None:
    """Warns of clients whose training examples all weigh 0 [C, n_i]."""
    nothing = [i for i, row in enumerate(weights or []) if row.size and not row.any()]
    if nothing:
        warn(
            f"all training examples of {len(nothing)} of {len(weights or [])} clients weigh 0 "
            f"(client {', '.join(map(str, nothing[:3]))}), so that they learn nothing from them"
        )


def _examples_of_clients(x: PyTree, y: np.ndarray, splits: Splits) -> tuple[PyTree, Array, Splits]:
    """The examples x and y on the device, and the rows of each client in them.

    Where clients hold few of the examples, the others are left out.
    """
    rows = np.unique(np.concatenate([part for parts in splits for part in parts]))
    if rows.size >= MOSTLY * len(y):
        # On a CPU it takes no memory, see `inputs.aligned_copy`.
        return jax.device_put(x), jax.device_put(np.array(y)), splits
    places = [[np.searchsorted(rows, part) for part in parts] for parts in splits]
    # `jnp.asarray` would compile a program for each shape.
    return *jax.device_put((tree.at(x, rows), y[rows])), Splits(*places)


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
        jax.device_put(np.array(source.y_test)),
        jax.device_put(np.array(weights, np.float32)),
        jax.device_put(np.array(groups, np.int32)),
    )


def _copies(
    source: Source, pool: Pool, concept: Concept | None
) -> tuple[PyTree, Array, list[np.ndarray], list[np.ndarray]]:
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
    x, y = (np.concatenate(arrays) for arrays in zip(*views, strict=True))
    return *jax.device_put((x, y)), places


def label_counts(source: Source, parts: Parts) -> np.ndarray:
    """Number of examples of each label at each client [C, classes].

    An example with several labels counts for each of them; where an example has a label for each
    position, the positions count. Targets that are numbers count by the tenth of the training set
    that they fall into; those of several numbers by that of their mean. Times to an event count as
    censored ones and events. Examples of data without targets are of one kind.
    """
    labels = source.y_train
    classes = source.classes
    if source.several_labels:
        return np.stack([labels[rows].sum(axis=0) for rows in parts])
    if source.each_position:
        each = [labels[rows] for rows in parts]
        return np.stack([np.bincount(y[y >= 0], minlength=classes) for y in each])
    if not source.targets:
        return np.array([[len(rows)] for rows in parts])
    if source.survival:
        labels, classes = source.strata, 2
    elif not classes:
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
