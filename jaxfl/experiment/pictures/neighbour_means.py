"""Many clients in one picture: neighbours in the order of the picture are drawn as their mean."""

from itertools import pairwise

import numpy as np


def bin_edges(count: int, most: int) -> np.ndarray:
    """The first places of bins of equal size, and the count [K + 1]; the last bin may be smaller.

    Args:
      count: of clients.
      most: bins at most.

    Example:
      >>> bin_edges(7, most=3).tolist(), bin_edges(3, most=3).tolist()
      ([0, 3, 6, 7], [0, 1, 2, 3])
    """
    size = max(1, -(-count // most))
    return np.append(np.arange(0, count, size), count)


def mean_weights(weights: np.ndarray, order: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean weights between the clients of two bins, without each client's weight for itself.

    Args:
      weights: [M, M].
      order: the places of the clients as they are drawn [M].
      edges: of the bins in this order [K + 1].

    Returns:
      [K, K] (receivers, senders); 0 where a bin is one client alone.

    Example:
      >>> weights = np.array([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
      >>> mean_weights(weights, np.arange(3), np.array([0, 2, 3])).tolist()
      [[0.375, 0.125], [0.0, 0.0]]
    """
    # Bin by bin, so that the matrix is not copied as a whole.
    rows = [
        np.add.reduceat(weights[order[start:end]].sum(axis=0, dtype=float)[order], edges[:-1])
        for start, end in pairwise(edges)
    ]
    sizes = np.diff(edges)
    sums = np.stack(rows) - np.diag(np.add.reduceat(np.diag(weights)[order], edges[:-1]))
    counts = np.outer(sizes, sizes) - np.diag(sizes)
    # A difference of sums may be a little below 0.
    return np.maximum(sums, 0.0) / np.maximum(counts, 1)


def mean_counts(counts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean number of examples of each label at the clients of each bin [K, L].

    Args:
      counts: [C, L], the clients as they are drawn.
      edges: of the bins [K + 1].

    Example:
      >>> mean_counts(np.array([[4, 0], [2, 2], [0, 5]]), np.array([0, 2, 3])).tolist()
      [[3.0, 1.0], [0.0, 5.0]]
    """
    return np.add.reduceat(counts, edges[:-1], axis=0) / np.diff(edges)[:, None]
