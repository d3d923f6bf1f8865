"""Ratings of items by users as arrays, divided into a training and a test set."""

import numpy as np


def split_ratings(
    user: np.ndarray, item: np.ndarray, rating: np.ndarray, *, test: float = 0.2, seed: int = 0
) -> dict[str, np.ndarray]:
    """Ratings as arrays; a random fifth of each user's ratings is the test set.

    Users and items are numbered from 0 in the order of their published ids, and rows are sorted by
    them, so the split does not depend on the order in the file.

    Args:
      user: [N] published ids.
      item: [N] published ids.
      rating: [N].
      test: fraction of each user's ratings in the test set, rounded down.
      seed: of the split.

    Returns:
      x int32 [N, 2] (user, item), y float32 rating, the vocabulary (users, items), and each
      training row's user.
    """
    user, users = _renumber(user)
    item, items = _renumber(item)
    order = np.lexsort((item, user))
    x = np.stack([user, item], axis=1)[order]
    y = rating[order].astype(np.float32)

    # Each rating gets a random rank among those of its user; the first ranks are the test set.
    counts = np.bincount(x[:, 0])
    shuffled = np.lexsort((np.random.default_rng(seed).random(len(x)), x[:, 0]))
    rank = np.empty(len(x), int)
    rank[shuffled] = np.arange(len(x)) - np.repeat(np.cumsum(counts) - counts, counts)
    in_test = rank < (counts * test).astype(int)[x[:, 0]]
    return {
        "x_train": x[~in_test],
        "y_train": y[~in_test],
        "x_test": x[in_test],
        "y_test": y[in_test],
        "vocabulary": np.array([users, items]),
        "owners": x[~in_test, 0],
    }


def _renumber(ids: np.ndarray) -> tuple[np.ndarray, int]:
    """The rank of each id among the distinct ids, and the number of distinct ids."""
    distinct, ranks = np.unique(ids, return_inverse=True)
    return ranks.astype(np.int32), len(distinct)
