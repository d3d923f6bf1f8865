"""What is made of the clients' scores on the host: summaries, and the choice by validation."""

import numpy as np


def summarise(scores: np.ndarray, sizes: np.ndarray) -> dict[str, float | None]:
    """The numbers that papers report for one evaluation.

    Args:
      scores: of each client [M]; NaN for a client without data, which is left out.
      sizes: number of examples that each client owns [M].

    Returns:
      `mean`, `weighted` (mean weighted by the sizes), `std` (of the population) and `worst10` (mean
      of the lowest tenth of the clients, at least one client). Each is None if no client has a
      score.

    Example:
      >>> jaxfl.summarise(np.array([0.5, 1.0, np.nan]), np.array([30, 10, 20]))
      {'mean': 0.75, 'weighted': 0.625, 'std': 0.25, 'worst10': 0.5}
    """
    known = ~np.isnan(scores)
    scores = np.asarray(scores, float)[known]
    sizes = np.asarray(sizes, float)[known]
    # A squared error may overflow, and JSON cannot hold inf.
    scores = np.clip(scores, -1e30, 1e30)
    if scores.size == 0:
        return dict.fromkeys(("mean", "weighted", "std", "worst10"))
    worst = np.sort(scores)[: max(1, round(0.1 * scores.size))]
    return {
        "mean": float(scores.mean()),
        "weighted": float(np.average(scores, weights=sizes if sizes.sum() > 0 else None)),
        "std": float(scores.std()),
        "worst10": float(worst.mean()),
    }


def select_on_val(val: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Each client's test score at the evaluation with its best validation score.

    The choice depends on the validation scores alone, never on the test scores.

    Args:
      val: scores of E evaluations [E, C]; NaN where a client was not evaluated or has no validation
        data.
      test: [E, C].

    Returns:
      [C]: the test score at the first evaluation with the highest validation score. For a client
      without validation scores it is the last known test score, or NaN if there is none.

    Example:
      >>> val = np.array([[0.5], [0.9], [0.7]])
      >>> test = np.array([[0.4], [0.6], [0.8]])
      >>> select_on_val(val, test).tolist()
      [0.6]
    """
    best = np.argmax(np.where(np.isnan(val), -np.inf, val), axis=0)
    known = ~np.isnan(test)
    last = len(test) - 1 - np.argmax(known[::-1], axis=0)
    chosen = np.where(np.isnan(val).all(axis=0), last, best)
    return test[chosen, np.arange(test.shape[1])]
