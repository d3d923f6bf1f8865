"""The line of `metrics.jsonl` of an evaluation."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from jaxfl.experiment.session.run_program import Record
from jaxfl.experiment.store.records import FurtherScores, Line, Traffic
from jaxfl.simulation.evaluation import Evaluation, Scores, Stage, by_metric, by_stage
from jaxfl.simulation.statistics import (
    SeedStatistics,
    StageStatistics,
    Statistics,
    over_seeds,
    summarise,
)

# The scores of an evaluation by metric and stage, NaN for malicious clients
ByMetric = dict[str, dict[Stage, Scores]]


def scores_by_metric(
    evaluation: Evaluation, metrics: Sequence[str], malicious: np.ndarray
) -> ByMetric:
    """The scores of an evaluation by each metric, the first one first.

    Args:
      evaluation: of a record [S, E].
      metrics: the names of the metrics.
      malicious: which of the clients evaluated are [S, E]; they have no scores.
    """

    def benign(scores: Scores) -> Scores:
        return scores._replace(
            val=np.where(malicious, np.nan, scores.val),
            test=np.where(malicious, np.nan, scores.test),
        )

    stages = by_stage(evaluation)
    split = {stage: by_metric(scores, metrics) for stage, scores in stages.items()}
    return {name: {stage: benign(split[stage][name]) for stage in stages} for name in metrics}


def score_statistics(
    evaluated: np.ndarray,
    stages: Mapping[Stage, Scores],
    sizes: np.ndarray,
    counted: np.ndarray,
    *,
    tells_undefined: bool,
    pooled: bool = False,
) -> SeedStatistics:
    """The statistics of an evaluation by one metric.

    Args:
      evaluated: ids of the clients evaluated [S, E].
      stages: the scores by stage.
      sizes: examples of each client [S, C].
      counted: the clients whose scores count [C].
      tells_undefined: whether metrics are named, some of which are not defined for all clients: the
        statistics then say for how many there is none.
      pooled: whether these are the clients whose predictions together have a score.
    """
    seeds = []
    for seed, ids in enumerate(evaluated):
        statistics: dict[str, Statistics] = {}
        for stage, scores in stages.items():
            each = np.where(counted[ids], scores.test[seed], np.nan)
            statistics[stage] = summarise(each, sizes[seed][ids])
            undefined = int((np.isnan(scores.test[seed]) & counted[ids]).sum())
            if tells_undefined and undefined:
                statistics[stage]["undefined"] = undefined
            for together in scores.pooled.values() if pooled else ():
                # As a mean over clients, an error that overflows is a number.
                statistics[stage]["pooled"] = number_or_null(
                    float(np.clip(together[seed], -1e30, 1e30))
                )
        seeds.append(StageStatistics(**statistics))
    return over_seeds(seeds)


def statistics_by_metric(
    evaluated: np.ndarray,
    scores: ByMetric,
    sizes: np.ndarray,
    unseen: np.ndarray,
    malicious: np.ndarray,
    *,
    tells_undefined: bool,
) -> dict[str, FurtherScores]:
    """The statistics of an evaluation by each metric.

    Args:
      evaluated: ids of the clients evaluated [S, E].
      scores: of these clients.
      sizes: examples of each client [S, C].
      unseen: clients that take part in no round [C]; their scores stand apart.
      malicious: clients whose scores do not count [C].
      tells_undefined: see `score_statistics`.
    """
    by_name = {}
    of_clients = partial(score_statistics, evaluated, tells_undefined=tells_undefined)
    for name, stages in scores.items():
        seen = of_clients(stages, sizes, ~unseen & ~malicious, pooled=True)
        statistics: FurtherScores = {**seen}
        if unseen.any():
            statistics["unseen"] = of_clients(stages, sizes, unseen & ~malicious)
        by_name[name] = statistics
    return by_name


def make_line(record: Record, statistics: dict[str, FurtherScores], sent: Traffic) -> Line:
    """One line of `metrics.jsonl`.

    Args:
      record: of the evaluation.
      statistics: of its scores by each metric, the first one first.
      sent: since round 0.
    """
    metrics = {
        name: number_or_null(np.asarray(values)[:, -1].mean())
        for name, values in record.info.metrics.items()
    }
    first, *others = statistics
    line: Line = {
        "round": record.round,
        "seconds": round(record.seconds, 3),
        "loss": _mean_of_finite(np.asarray(record.info.loss)[:, -1]),
        **statistics[first],
        **sent,
    }
    if others:
        line["scores"] = {name: statistics[name] for name in others}
    if metrics:
        line["metrics"] = metrics
    return line


def share_with_one_label(
    evaluation: Evaluation, evaluated: np.ndarray, counted: np.ndarray
) -> float | None:
    """The share of the clients whose deployed model predicts one label, mean over the seeds.

    Args:
      evaluation: of a record [S, E].
      evaluated: ids of the clients evaluated [S, E].
      counted: the clients whose scores count [C].

    Returns:
      None if no client has test examples of several labels.
    """
    labels = evaluation.deployed.one_label
    if labels is None:
        return None
    seeds = [row[counted[ids]] for row, ids in zip(labels, evaluated, strict=True)]
    shares = [float(np.nanmean(row)) for row in seeds if not np.isnan(row).all()]
    return sum(shares) / len(shares) if shares else None


def number_or_null(value: float | np.floating) -> float | None:
    """A number as JSON has it, which knows no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None


def _mean_of_finite(values: np.ndarray) -> float | None:
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None
