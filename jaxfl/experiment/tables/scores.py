"""Scores of finished runs: how a stored score is shown, who is ranked first, `comparison.json`."""

import math
import statistics
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from jaxfl.core.options import checked
from jaxfl.simulation.evaluate import Stage
from jaxfl.simulation.scoring import MEASURES

# label -> content of a run: `summary`, that of summary.json; `config`, its Config, or None if it is
# unknown; and more, see `store.finished.load_finished`.
Runs = dict[str, dict[str, Any]]
# How tables and pictures call the stages of a score.
TITLES: dict[Stage, str] = {
    "deployed": "deployed",
    "trained": "trained",
    "fine_tuned": "fine-tuned",
}
# What only some summaries have, and `comparison.json` too.
FURTHER = ("graph", "unseen", "time", "times", "target")


FEW = 8  # with more runs, only the best and the chosen ones are in colour


BEST = 5


ALWAYS = ("local", "fedavg")  # what a reader compares the others with


@checked
def score_of(stages: dict[str, Any], stage: Stage, name: str) -> float | None:
    """A stored score; None if there is none, or the stage was not scored.

    Args:
      stages: `final`, `selected_on_val` or `unseen` of a summary, or a line of `metrics.jsonl`.
      stage: of the score.
      name: "mean", "weighted" or "worst10".
    """
    return stages[stage][name] if stage in stages else None


@checked
def by_seed(stages: dict[str, Any], stage: Stage, name: str) -> list[float]:
    """A stored score of each seed; empty if there is one seed, or a seed without a score.

    Args:
      stages: as in `score_of`.
      stage: of the score.
      name: as in `score_of`.
    """
    found = [score_of(seed, stage, name) for seed in stages.get("seeds", [])]
    known = [score for score in found if score is not None]
    return known if len(known) == len(found) > 1 else []


@checked
def score_text(measure: str, stages: dict[str, Any], stage: Stage, name: str) -> str:
    """A score as tables show it, with ± its standard deviation over the seeds; "-" for none.

    Args:
      measure: of `MEASURES`.
      stages: as in `score_of`.
      stage: of the score.
      name: as in `score_of`.
    """
    _, shown, digits = MEASURES[measure]
    value = score_of(stages, stage, name)
    if value is None:
        return "-"
    seeds = [shown(seed) for seed in by_seed(stages, stage, name)]
    return f"{shown(value):{digits}}{spread_text(seeds, digits)}"


def spread_text(seeds: Sequence[float], digits: str) -> str:
    """The standard deviation over seeds behind a number: " ±0.6"; nothing for one seed."""
    return f" ±{statistics.stdev(seeds):{digits}}" if len(seeds) > 1 else ""


def gains(
    measure: str, stages: dict[str, Any], reference: dict[str, Any]
) -> tuple[float, list[float]] | None:
    """How far the deployed models of a run are above those of another run, as scores are shown.

    Args:
      measure: of `MEASURES`; under "rmse" a gain is negative.
      stages: of the run, as in `score_of`.
      reference: of the other run.

    Returns:
      The difference of the means, and the difference of each seed, which both runs share (empty
      where they do not have the same number of seeds); None if a run has no score.
    """
    shown = MEASURES[measure][1]
    pair = [score_of(part, "deployed", "mean") for part in (stages, reference)]
    if None in pair:
        return None
    seeds, others = (by_seed(part, "deployed", "mean") for part in (stages, reference))
    differences = []
    if len(seeds) == len(others):
        differences = [shown(a) - shown(b) for a, b in zip(seeds, others, strict=True)]
    return shown(pair[0]) - shown(pair[1]), differences


def amount(floats: int) -> str:
    """A number of floats or batches in thousands, millions or billions."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if floats >= size:
            return f"{floats / size:.3g}{unit}"
    return str(floats)


def ranked(summaries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The summaries by the mean score of the deployed models, the best first."""

    def score(label: str) -> float:
        mean = score_of(summaries[label]["final"], "deployed", "mean")
        return -math.inf if mean is None else mean

    return {label: summaries[label] for label in sorted(summaries, key=score, reverse=True)}


def most_mixed(graph: dict[str, Any]) -> dict[str, float | None]:
    """The numbers of a graph; where parts of the model have their own, those of the most mixed one.

    Args:
      graph: `graph` of a line of `metrics.jsonl` or of a summary.
    """
    parts = [value for value in graph.values() if isinstance(value, dict)]
    return max(parts, key=lambda part: part.get("collaborators") or 0.0) if parts else graph


def comparison_rows(runs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The content of `comparison.json`.

    Args:
      runs: label -> {"summary": ..., "directory": ...}, of `store.finished.load_finished`.
    """
    keys = ("algorithm", "measure", "final", "selected_on_val", "seconds", "compile_seconds")
    keys += ("up", "down", "up_bytes", "batches")
    content = []
    for label, found in runs.items():
        summary = found["summary"]
        further = {key: summary[key] for key in FURTHER if key in summary}
        place = {"run": label, "directory": found["directory"]}
        content.append({key: summary[key] for key in keys} | further | place)
    return content


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


@checked
def score_by_round(
    lines: list[dict[str, Any]], stage: Stage, name: str, measure: str
) -> tuple[np.ndarray, np.ndarray]:
    """A score by round as it is shown, NaN where there is none, and its deviation over seeds."""
    shown = MEASURES[measure][1]
    stored = [score_of(line, stage, name) for line in lines]
    values = [np.nan if score is None else shown(score) for score in stored]
    seeds = [[shown(seed) for seed in by_seed(line, stage, name)] for line in lines]
    spread = [statistics.stdev(found) if found else 0.0 for found in seeds]
    return np.array(values, float), np.array(spread, float)
