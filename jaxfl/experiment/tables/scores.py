"""Scores of finished runs: how a stored score is shown, who is ranked first, `comparison.json`."""

import math
import statistics
from collections.abc import Collection, Sequence
from typing import Any, get_type_hints

import numpy as np

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import facts_of
from jaxfl.core.options import checked
from jaxfl.experiment.store.records import ComparisonEntry, GraphMeasures, RunRecord, Runs
from jaxfl.simulation.evaluation import Stage
from jaxfl.simulation.metrics import metric_of
from jaxfl.simulation.statistics import (
    SeedStatistics,
    StageStatistics,
    Statistic,
)

# How tables and pictures call the stages of a score.
TITLES: dict[Stage, str] = {
    "deployed": "deployed",
    "trained": "trained",
    "fine_tuned": "fine-tuned",
}
FEW = 10  # with more runs, only the best and the chosen ones are in colour, and have names
BEST = 5
ALWAYS = ("local", "fedavg")  # what a reader compares the others with


@checked
def score_of(stages: StageStatistics, stage: Stage, name: Statistic) -> float | None:
    """A stored score; None if there is none, or the stage was not scored.

    Args:
      stages: `final`, `selected_on_val` or `unseen` of a summary, or a line of `metrics.jsonl`.
      stage: of the score.
      name: of the statistic.
    """
    statistics = stages.get(stage)
    return None if statistics is None else statistics.get(name)


def members_text(count: int, folds: int) -> str:
    """What the entries of `seeds` in a summary are.

    Args:
      count: of the entries.
      folds: of each seed.

    Example:
      >>> members_text(3, 1), members_text(5, 5), members_text(15, 5)
      ('3 seeds', '5 folds', '5 folds of 3 seeds')
    """
    if folds == 1:
        return f"{count} seeds"
    return f"{folds} folds" if count == folds else f"{folds} folds of {count // folds} seeds"


@checked
def by_seed(stages: SeedStatistics, stage: Stage, name: Statistic) -> list[float]:
    """A stored score of each seed, or of each fold of each seed; empty if one has no score.

    It is empty too if there is one seed and one fold.

    Args:
      stages: as in `score_of`.
      stage: of the score.
      name: as in `score_of`.
    """
    seeds = stages.get("seeds", [])
    scores = [score_of(seed, stage, name) for seed in seeds]
    numbers = [score for score in scores if score is not None]
    return numbers if len(numbers) == len(seeds) > 1 else []


@checked
def score_text(measure: str, stages: SeedStatistics, stage: Stage, name: Statistic) -> str:
    """A score as tables show it, with ± its standard deviation over the seeds; "-" for none.

    Args:
      measure: the metric of the scores.
      stages: as in `score_of`.
      stage: of the score.
      name: as in `score_of`.
    """
    metric = metric_of(measure)
    value = score_of(stages, stage, name)
    if value is None:
        return "-"
    # A deviation over clients has no sign, whichever scores are better.
    shown = [metric.shown(one) for one in (value, *by_seed(stages, stage, name))]
    first, *seeds = map(abs, shown) if name == "std" else shown
    return f"{first:{metric.format}}{spread_text(seeds, metric.format)}"


def spread_text(seeds: Sequence[float], digits: str) -> str:
    """The standard deviation over seeds behind a number: " ±0.6"; nothing for one seed."""
    return f" ±{statistics.stdev(seeds):{digits}}" if len(seeds) > 1 else ""


def alone_name(metrics: Sequence[str]) -> str:
    """What a score is called that stands alone: "score", or the first metric that is named.

    Example:
      >>> alone_name(()), alone_name(("log_loss", "auc"))
      ('score', 'log loss')
    """
    return metric_of(metrics[0]).name if metrics else "score"


def alone_value(metrics: Sequence[str], score: float) -> float:
    """The number that is shown of a score that stands alone: as it is stored where none is named.

    Example:
      >>> alone_value((), -0.25), alone_value(("log_loss",), -0.25)
      (-0.25, 0.25)
    """
    return metric_of(metrics[0]).shown(score) if metrics else score


def alone_text(metrics: Sequence[str], score: float | None) -> str:
    """A score that stands alone, as text.

    Example:
      >>> alone_text((), 0.5), alone_text(("accuracy",), 0.5), alone_text((), None)
      ('0.5000', '50.0', '-')
    """
    if score is None:
        return "-"
    form = metric_of(metrics[0]).format if metrics else ".4f"
    return f"{alone_value(metrics, score):{form}}"


@checked
def gains(
    measure: str, stages: SeedStatistics, reference: SeedStatistics
) -> tuple[float, list[float]] | None:
    """How far the deployed models of a run are better than those of another, as scores are shown.

    Args:
      measure: the metric of the scores.
      stages: of the run, as in `score_of`.
      reference: of the other run.

    Returns:
      The difference of the means, and the difference of each seed, which both runs share (empty
      where they do not have the same number of seeds); None if a run has no score.
    """
    gain = metric_of(measure).gain
    score, other = (score_of(record, "deployed", "mean") for record in (stages, reference))
    if score is None or other is None:
        return None
    seeds, others = (by_seed(record, "deployed", "mean") for record in (stages, reference))
    differences = []
    if len(seeds) == len(others):
        differences = [gain(a, b) for a, b in zip(seeds, others, strict=True)]
    return gain(score, other), differences


def amount(floats: int) -> str:
    """A number of floats or batches in thousands, millions or billions."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if floats >= size:
            return f"{floats / size:.3g}{unit}"
    return str(floats)


def measure_of(runs: Runs) -> str:
    """The metric of the scores of runs, by which they are ranked."""
    return next(iter(runs.values())).summary["measure"]


def has_rank(run: RunRecord) -> bool:
    """Whether the run is ranked: of a federated method, not of pooled data (`Facts.pools`)."""
    factory = ALGORITHMS.get(run.summary["algorithm"])
    return factory is None or not facts_of(factory).pools


def ranked(runs: Runs) -> Runs:
    """The runs by the mean score of the deployed models, best first; last those without a rank."""

    def score(label: str) -> tuple[bool, float]:
        mean = score_of(runs[label].summary["final"], "deployed", "mean")
        return has_rank(runs[label]), -math.inf if mean is None else mean

    return {label: runs[label] for label in sorted(runs, key=score, reverse=True)}


def most_mixed(graph: GraphMeasures) -> dict[str, float | None]:
    """The numbers of a graph; where parts of the model have their own, those of the most mixed one.

    Args:
      graph: `graph` of a line of `metrics.jsonl` or of a summary.
    """
    parts = [value for value in graph.values() if isinstance(value, dict)]
    if parts:
        return max(parts, key=lambda part: part.get("collaborators") or 0.0)
    return {name: value for name, value in graph.items() if not isinstance(value, dict)}


def comparison_entries(runs: Runs) -> list[ComparisonEntry]:
    """The content of `comparison.json`.

    Args:
      runs: of `store.finished_runs.load_finished`.
    """
    fields = get_type_hints(ComparisonEntry)
    content = []
    for label, run in runs.items():
        entry: Any = {name: value for name, value in run.summary.items() if name in fields}
        directory = {} if run.directory is None else {"directory": run.directory.resolve().name}
        content.append(entry | {"run": label} | directory)
    return content


def coloured_runs(labels: list[str], runs: Runs, highlight: Collection[str]) -> set[str]:
    """The runs that are in colour: all of a few; of many the best, the references, the chosen.

    They are `FEW` at most, but for the chosen ones.
    """
    if len(labels) <= FEW:
        return set(labels)

    def matches(names: Collection[str]) -> list[str]:
        return [one for one in labels if {one, runs[one].summary["algorithm"]} & {*names}]

    chosen = matches(highlight)
    others = [one for one in dict.fromkeys([*labels[:BEST], *matches(ALWAYS)]) if one not in chosen]
    return {*chosen, *others[: max(0, FEW - len(chosen))]}


@checked
def score_limits(values: list[np.ndarray], measure: str) -> tuple[float, float] | None:
    """The limits of the axis of scores; None: those that the library of the picture chooses.

    They show the second half of every curve: curves that begin lower enter from below.

    Args:
      values: the lowest point of the band of each curve by round, as scores are shown.
      measure: the metric of the scores.
    """
    metric = metric_of(measure)
    if not metric.percent or metric.better != "higher":
        return None
    late = [value for curve in values for value in curve[len(curve) // 2 :] if np.isfinite(value)]
    if not late:
        return 0.0, 101.0
    lowest = min(late)
    room = 0.15 * (100 - lowest) + 1
    return max(0.0, lowest - room), 100 + room / 8


def lines_by(run: RunRecord, metric: str) -> Sequence[SeedStatistics]:
    """The scores of each evaluation of a run by one of its metrics; empty where it has none."""
    if metric == run.summary["measure"]:
        return run.lines
    lines: list[Any] = [line.get("scores", {}).get(metric, {}) for line in run.lines]
    return lines


def spans_magnitudes(values: list[Any]) -> bool:
    """Whether the values of a search are numbers that a logarithmic axis shows best."""
    numbers = all(type(value) in (int, float) for value in values)
    return numbers and min(values) > 0 and max(values) > 30 * min(values)


@checked
def score_by_round(
    lines: Sequence[SeedStatistics], stage: Stage, name: Statistic, measure: str
) -> tuple[np.ndarray, np.ndarray]:
    """A score by round as it is shown, NaN where there is none, and its deviation over seeds."""
    scale = metric_of(measure).shown
    scores = [score_of(line, stage, name) for line in lines]
    values = [np.nan if score is None else scale(score) for score in scores]
    seeds = [[scale(seed) for seed in by_seed(line, stage, name)] for line in lines]
    spread = [statistics.stdev(row) if row else 0.0 for row in seeds]
    return np.array(values, float), np.array(spread, float)
