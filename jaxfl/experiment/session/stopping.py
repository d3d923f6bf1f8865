"""Early stopping: a run ends when the validation score of its models no longer rises."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jaxfl.core.options import checked
from jaxfl.simulation.statistics import Stopped


@checked
def find_stop(
    scores: Float[np.ndarray, "e s c"], rounds: Sequence[int], stop_after: int | None
) -> Stopped | None:
    """Where a run ends, if it ends after the last of these evaluations.

    It ends when the mean validation score has not been above its best for so many evaluations. The
    mean is over the clients that have a score, and then over the seeds: all seeds of a run go on
    together in one program, so that one round is the last of them all. Before the first score no
    run ends.

    Args:
      scores: of the clients that count in each evaluation, higher is better; NaN without a score.
      rounds: of the evaluations [E].
      stop_after: the option `--stop-after`; None: no run ends before its last round.

    Example:
      >>> scores = np.array([0.5, 0.7, 0.7, 0.6])[:, None, None]
      >>> find_stop(scores, [5, 10, 15, 20], stop_after=2)
      {'round': 20, 'best_round': 10}
      >>> find_stop(scores[:3], [5, 10, 15], stop_after=2) is None
      True
    """
    if stop_after is None or len(scores) <= stop_after:
        return None
    means = mean_of_known(mean_of_known(scores.astype(float)))
    if np.isnan(means).all():
        return None
    best = int(np.nanargmax(means))
    if len(means) - 1 - best < stop_after:
        return None
    return {"round": int(rounds[-1]), "best_round": int(rounds[best])}


def mean_of_known(values: np.ndarray) -> np.ndarray:
    """The mean along the last axis of the values that are not NaN; NaN where all are."""
    known = ~np.isnan(values)
    total = np.where(known, values, 0.0).sum(axis=-1)
    return np.where(known.any(axis=-1), total / np.maximum(known.sum(axis=-1), 1), np.nan)
