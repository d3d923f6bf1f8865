"""A federation: each client's examples split, padded and stacked."""

from collections.abc import Sequence
from typing import Literal

import jax.numpy as jnp
import numpy as np

from jaxfl.data.arrays import Source
from jaxfl.data.partition import Parts
from jaxfl.errors import check
from jaxfl.types import Dataset, Federation, Pool

TestProtocol = Literal["reweighted", "own", "global"]
Feedback = Literal["val", "test-leaking"]


def federate(
    source: Source,
    parts: Parts,
    *,
    val: float = 0.2,
    own: float = 0.2,
    test: TestProtocol = "reweighted",
    feedback: Feedback = "val",
) -> Federation:
    """Stacks the clients' examples; the first of each client's list train, then come those that validate.

    Args:
      source: the data set.
      parts: rows of its training set for each client, shuffled, as the partitions return them.
      val: fraction of each client's examples for validation, rounded down.
      own: fraction of each client's examples that test it if `test` is "own", rounded down.
      test: what a client is tested on. "reweighted": the whole test set, each example weighted by
        how often its label occurs in the client's own data (pFedGraph's protocol); "global": the
        whole test set; "own": the last of its own examples.
      feedback: what methods learn from beside the training data, and what checkpoints are chosen
        by. "val": each client's validation part. "test-leaking": a copy of its test set in the
        place of that part and with as much weight in all, as pFedGAT's Algorithm 1 has it. The test
        score then no longer tells how a method does on data that it has not seen: results with it
          are comparable to no others.

    Returns:
      Arrays with the client axis first; the test set of "reweighted" and "global" is one `Pool`.

    Raises:
      InputError: a client holds nothing, the fractions leave no training examples, or there is no
        such test set.
    """
    own = own if test == "own" else 0.0
    check(
        val >= 0 and own >= 0 and val + own < 1,
        f"validation takes {val} and the test {own} of each client's examples: expected fractions that leave some to "
        "train",
    )
    check(
        test == "own" or len(source.y_test) > 0,
        f"these data have no test set for test {test}: choose test own",
    )
    check(
        test != "reweighted" or source.classes > 0,
        "the targets are numbers, not labels: choose test own or global",
    )
    empty = [i for i, rows in enumerate(parts) if len(rows) == 0]
    check(
        not empty,
        f"client {', '.join(map(str, empty[:3]))} holds no example: use fewer clients or another partition",
    )

    x, y = source.x_train, source.y_train
    cuts = [int(len(rows) * val) for rows in parts]
    ends = [len(rows) - int(len(rows) * own) for rows in parts]
    trains = [rows[: end - cut] for rows, cut, end in zip(parts, cuts, ends, strict=True)]
    vals = [rows[end - cut : end] for rows, cut, end in zip(parts, cuts, ends, strict=True)]
    if test == "own":
        tests = [rows[end:] for rows, end in zip(parts, ends, strict=True)]
        held_out = stack(x, y, tests)
        leak = (x, y, tests, [np.ones(len(rows)) for rows in tests])
    else:
        weights = np.ones((len(parts), len(source.y_test)), np.float32)
        if test == "reweighted":
            shares = label_counts(source, parts) / np.array([len(rows) for rows in parts])[:, None]
            weights = shares[:, source.y_test].astype(np.float32)
        held_out = Pool(
            jnp.asarray(source.x_test), jnp.asarray(source.y_test), jnp.asarray(weights)
        )
        leak = (
            source.x_test,
            source.y_test,
            [np.flatnonzero(row) for row in weights],
            [row[row > 0] for row in weights],
        )
    validation = stack(x, y, vals) if feedback == "val" else weighted(*leak, cuts)
    return Federation(stack(x, y, trains), validation, held_out)


def weighted(
    x: np.ndarray,
    y: np.ndarray,
    parts: Sequence[np.ndarray],
    weights: Sequence[np.ndarray],
    sizes: Sequence[int],
) -> Dataset:
    """As `stack`, the mask holding the rows' weights scaled to stand for `sizes` [C] examples."""
    stacked = stack(x, y, parts)
    mask = np.zeros(stacked.mask.shape, np.float32)
    for row, own, size in zip(mask, weights, sizes, strict=True):
        row[: len(own)] = own * (size / max(own.sum(), 1e-9))
    return stacked._replace(mask=jnp.asarray(mask))


def stack(x: np.ndarray, y: np.ndarray, parts: Sequence[np.ndarray]) -> Dataset:
    """Rows of (x, y) for each client, padded with zeros to the longest list, at least 1: [C, n, ...]."""
    longest = max(1, *map(len, parts))
    rows = np.stack([np.pad(part, (0, longest - len(part))) for part in parts])
    mask = np.arange(longest)[None] < np.array([len(part) for part in parts])[:, None]

    def gather(values: np.ndarray) -> np.ndarray:
        taken = values[rows]
        taken[~mask] = 0
        return taken

    return Dataset(jnp.asarray(gather(x)), jnp.asarray(gather(y)), jnp.asarray(mask))


def label_counts(source: Source, parts: Parts) -> np.ndarray:
    """How many examples of each label each client holds [C, classes]; of each tenth where targets are numbers."""
    labels, classes = source.y_train, source.classes
    if not classes:
        edges = np.unique(np.quantile(source.y_train, np.linspace(0, 1, 11)[1:-1]))
        labels, classes = np.digitize(source.y_train, edges), len(edges) + 1
    return np.stack([np.bincount(labels[rows], minlength=classes) for rows in parts])


def group_order(counts: np.ndarray) -> np.ndarray:
    """Clients ordered so that those that hold the same labels stand together [C], for pictures.

    Args:
      counts: [C, classes], of `label_counts`.
    """
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    lacks = share < 0.1  # what a client hardly holds does not tell it from others
    return np.lexsort(lacks.T[::-1])  # those with label 0 first, among them those with label 1, ...
