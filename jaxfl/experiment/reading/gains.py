"""How far a client is better off with one model than with another: differences with intervals."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.experiment.reading.examples import Examples
from jaxfl.experiment.tables.bootstrap import bootstrap, padded_size
from jaxfl.experiment.tables.differences import LEVEL, paired
from jaxfl.simulation.metrics import Metric

FEW = 10  # test examples, of a label if there are labels, below which an interval is too narrow
Gains = Literal["yes", "no", "unclear", "-"]


class Result(NamedTuple):
    """The deployed model of a client by a run, in the units of tables; NaN where not defined."""

    score: float
    difference: float  # from the score of the reference; positive is better
    low: float  # of the 95 % interval of the difference
    high: float
    few: bool = False  # whether the test examples are too few for the interval

    @property
    def gains(self) -> Gains:
        """Whether the client gains, by the interval.

        Example:
          >>> Result(0.8, 0.1, 0.05, 0.15).gains, Result(0.8, 0.1, 0.05, 0.15, few=True).gains
          ('yes', 'unclear')
        """
        if math.isnan(self.difference):
            return "-"
        if self.few:
            return "unclear"
        if self.low > 0:
            return "yes"
        return "no" if self.high <= 0 else "unclear"


def result_over_seeds(
    metric: Metric, scores: np.ndarray, others: np.ndarray, *, overlap: float
) -> Result:
    """The mean score over the seeds, with the interval of the paired t-test.

    Args:
      metric: of the scores.
      scores: as tables show them [S]; NaN where there is none.
      others: of the reference [S].
      overlap: of the training sets of folds, see `tables.differences.paired`.
    """
    pairs = metric.sign * np.stack([scores, others])
    pairs = pairs[:, np.isfinite(pairs).all(axis=0)]
    if not pairs.size:
        return Result(mean(scores), math.nan, math.nan, math.nan)
    value = paired(pairs[0], pairs[1], "", overlap=overlap)
    return Result(mean(scores), value.mean, value.low, value.high)


def mean(values: np.ndarray) -> float:
    """The mean of those that are finite; NaN of none."""
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else math.nan


def intervals_over_examples(
    metric: Metric, predictions: Sequence[np.ndarray], examples: Examples, seed: int
) -> tuple[list[tuple[float, float]], bool]:
    """By a bootstrap over a client's test examples, how far models are better than the first one.

    Args:
      metric: of the scores.
      predictions: of each of R models [n, ...].
      examples: of the client, n.
      seed: of the draws.

    Returns:
      The 95 % interval of each model's difference from the first one [R - 1], NaN where it is not
      defined, and whether the examples are too few for it.
    """
    _, y, weight = map(np.asarray, examples)
    has_labels = np.issubdtype(y.dtype, np.integer) and y.ndim == 1
    strata = y if has_labels else np.zeros(len(y), int)
    counts = np.unique(strata, return_counts=True)[1]
    values = bootstrap(metric.score, predictions, y, weight, strata, seed=seed)
    # Of examples that are each alone in their stratum all resamples are the same.
    intervals = [
        _interval(metric, row, values[0]) if counts.max() > 1 else (math.nan, math.nan)
        for row in values[1:]
    ]
    return intervals, bool(counts.min() < FEW)


def _interval(metric: Metric, values: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """The interval of the difference of two models' scores on the same resamples [B]."""
    pairs = zip(metric.sign * values, metric.sign * others, strict=True)
    gains = np.array([metric.gain(float(a), float(b)) for a, b in pairs])
    tail = (1 - LEVEL) / 2
    # Scores are float32: what is 0 but for their rounding is 0.
    low, high = np.nanquantile(gains, [tail, 1 - tail]).round(6)
    return float(low), float(high)


def predict_all(predict: Callable[[PyTree], np.ndarray], x: PyTree) -> np.ndarray:
    """Logits or numbers for the inputs [n, ...], from a program that other clients share."""
    # A row of zeros may be no input, as where a series must have an end.
    rows = tree.rows(x)

    def padded(array: np.ndarray) -> np.ndarray:
        filling = np.repeat(array[:1], padded_size(rows) - rows, axis=0)
        return np.concatenate([array, filling])

    return predict(jax.tree.map(padded, x))[:rows]


def undefined_notes(
    defined: np.ndarray, names: Sequence[str], seeds: int, members: str
) -> list[str]:
    """Whose means are of some of the seeds, as the score is not defined in the others.

    Args:
      defined: in how many seeds each client has a score [C].
      names: of the clients; none if they have none.
      seeds: how many there are, times folds.
      members: what these are.

    Example:
      >>> undefined_notes(np.array([5, 2]), ["north", "south"], 5, "5 folds")
      ['Means are of fewer than 5 folds where the score is not defined in all: south (2).']
    """
    some = np.flatnonzero((defined > 0) & (defined < seeds)).tolist()
    texts = [f"{names[one] if names else one} ({defined[one]})" for one in some[:10]]
    texts += [f"{len(some) - 10} more"] if len(some) > 10 else []
    if not texts:
        return []
    words = "Means are of fewer than"
    return [f"{words} {members} where the score is not defined in all: {', '.join(texts)}."]
