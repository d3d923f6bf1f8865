"""What figures of scores show, whatever library draws them."""

import statistics
from collections.abc import Collection
from typing import Any

import numpy as np

from jaxfl.experiment.show.scores import MEASURES, by_seed

FEW = 8  # with more runs, only the best and the chosen ones are in colour
BEST = 5
ALWAYS = ("local", "fedavg")  # what a reader compares the others with


def coloured_runs(
    labels: list[str], runs: dict[str, dict[str, Any]], highlight: Collection[str]
) -> set[str]:
    """The runs that are in colour: all of a few; of many the best, the references, the chosen."""
    if len(labels) <= FEW:
        return set(labels)
    chosen = {*ALWAYS, *highlight}
    named = {label for label in labels if {label, runs[label]["summary"]["algorithm"]} & chosen}
    return named | set(labels[:BEST])


def score_limits(values: list[np.ndarray], measure: str) -> tuple[float, float] | None:
    """The limits of the axis of scores; None: those that the library of the picture chooses.

    They show the second half of every curve: curves that begin lower enter from below.

    Args:
      values: the lowest point of the band of each curve by round, as scores are shown.
      measure: of `MEASURES`.
    """
    if measure != "accuracy":
        return None
    late = [value for curve in values for value in curve[len(curve) // 2 :] if np.isfinite(value)]
    if not late:
        return 0.0, 101.0
    lowest = min(late)
    room = 0.15 * (100 - lowest) + 1
    return max(0.0, lowest - room), 100 + room / 8


def spans_magnitudes(values: list[Any]) -> bool:
    """Whether the values of a search are numbers that a logarithmic axis shows best."""
    numbers = all(type(value) in (int, float) for value in values)
    return numbers and min(values) > 0 and max(values) > 30 * min(values)


def score_by_round(
    lines: list[dict[str, Any]], stage: str, name: str, measure: str
) -> tuple[np.ndarray, np.ndarray]:
    """A score by round as it is shown, NaN where there is none, and its deviation over seeds."""
    shown = MEASURES[measure][1]
    values = [np.nan if line[stage][name] is None else shown(line[stage][name]) for line in lines]
    seeds = [[shown(seed) for seed in by_seed(line, stage, name)] for line in lines]
    spread = [statistics.stdev(found) if found else 0.0 for found in seeds]
    return np.array(values, float), np.array(spread, float)
