"""The line of `metrics.jsonl` of an evaluation."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from jaxfl.experiment.session.program import Record
from jaxfl.experiment.store.records import FurtherScores, Line, Traffic
from jaxfl.simulation.evaluate import Evaluation, Scores, Stage, by_metric, by_stage
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
    record: Record,
    stages: Mapping[Stage, Scores],
    sizes: np.ndarray,
    counted: np.ndarray,
    *,
    tells_undefined: bool,
    pooled: bool = False,
) -> SeedStatistics:
    """The statistics of an evaluation by one metric.

    Args:
      record: of the evaluation.
      stages: the scores by stage.
      sizes: examples of each client [S, C].
      counted: the clients whose scores count [C].
      tells_undefined: whether metrics are named, some of which are not defined for all clients: the
        statistics then say for how many there is none.
      pooled: whether these are the clients whose predictions together have a score.
    """
    seeds = []
    for seed, ids in enumerate(record.evaluated):
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


def make_line(
    record: Record,
    scores: ByMetric,
    sizes: np.ndarray,
    unseen: np.ndarray,
    malicious: np.ndarray,
    sent: Traffic,
    *,
    tells_undefined: bool,
) -> Line:
    """One line of `metrics.jsonl`.

    Args:
      record: of the evaluation.
      scores: of the record, the first metric first.
      sizes: examples of each client [S, C].
      unseen: clients that take part in no round [C]; their scores stand apart.
      malicious: clients whose scores do not count [C].
      sent: since round 0.
      tells_undefined: see `score_statistics`.
    """
    metrics = {
        name: number_or_null(np.asarray(values)[:, -1].mean())
        for name, values in record.info.metrics.items()
    }
    first, *others = scores
    of_clients = partial(score_statistics, record, tells_undefined=tells_undefined)

    def of_seen(name: str) -> SeedStatistics:
        counted = ~unseen & ~malicious
        return of_clients(scores[name], sizes, counted, pooled=True)

    def of_unseen(name: str) -> SeedStatistics:
        counted = unseen & ~malicious
        return of_clients(scores[name], sizes, counted)

    line: Line = {
        "round": record.round,
        "seconds": round(record.seconds, 3),
        "loss": _mean_of_finite(np.asarray(record.info.loss)[:, -1]),
        **of_seen(first),
        **sent,
    }
    if unseen.any():
        line["unseen"] = of_unseen(first)
    if others:
        line["scores"] = {}
        for name in others:
            further: FurtherScores = {**of_seen(name)}
            if unseen.any():
                further["unseen"] = of_unseen(name)
            line["scores"][name] = further
    if metrics:
        line["metrics"] = metrics
    return line


def number_or_null(value: float | np.floating) -> float | None:
    """A number as JSON has it, which knows no NaN and no infinity."""
    return float(value) if math.isfinite(value) else None


def _mean_of_finite(values: np.ndarray) -> float | None:
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None
