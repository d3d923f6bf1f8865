"""Statistics of scores in results and files: over clients, by stage and by seed, and over time."""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

import numpy as np

from jaxfl.simulation.metrics import metric_of

Statistic = Literal["mean", "weighted", "std", "worst10", "pooled"]


class Statistics(TypedDict):
    """The numbers that papers report for one evaluation, each None if no client has a score."""

    mean: float | None
    weighted: float | None  # the mean weighted by the clients' numbers of examples
    std: float | None  # over clients
    worst10: float | None  # the mean of the worst tenth of the clients
    # of the test predictions of all clients together; where metrics are named, and the clients have
    # test examples of their own
    pooled: NotRequired[float | None]
    # clients without a score, as they have no test examples or the metric is not defined on them;
    # where there are any
    undefined: NotRequired[int]


class StageStatistics(TypedDict):
    """The statistics of each stage that was scored, see `simulation.evaluation.Evaluation`."""

    deployed: Statistics
    trained: NotRequired[Statistics]
    fine_tuned: NotRequired[Statistics]


class SeedStatistics(StageStatistics):
    """The mean over the seeds; of several seeds also those of each seed."""

    seeds: NotRequired[list[StageStatistics]]


class RoundStatistics(SeedStatistics):
    """The statistics after a round, and the time on the virtual clock of a run that has one."""

    round: int
    time: NotRequired[float]  # the mean over the seeds
    times: NotRequired[list[float]]  # of each seed


class Reached(TypedDict):
    """When a seed first had a target score: None if it never had."""

    round: NotRequired[float | None]
    time: NotRequired[float | None]  # on the virtual clock of a run that has one


class Target(Reached):
    """A target score, and the mean over the seeds of when they had it: None if a seed never had."""

    score: float
    seeds: NotRequired[list[Reached]]  # of several seeds


class TimedStatistics(TypedDict):
    """What a summary says of the virtual clock and of a target, if the run has them."""

    time: NotRequired[float]
    times: NotRequired[list[float]]
    target: NotRequired[Target]


class Stopped(TypedDict):
    """Where a run ended by `--stop-after`, before or in its last round."""

    round: int  # the last one
    best_round: int  # of the evaluation with the best mean validation score


def summarise(scores: np.ndarray, sizes: np.ndarray) -> Statistics:
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
    mask = ~np.isnan(scores)
    scores = np.asarray(scores, float)[mask]
    sizes = np.asarray(sizes, float)[mask]
    # A squared error may overflow, and JSON cannot hold inf.
    scores = np.clip(scores, -1e30, 1e30)
    if scores.size == 0:
        return {"mean": None, "weighted": None, "std": None, "worst10": None}
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
    mask = ~np.isnan(test)
    last = len(test) - 1 - np.argmax(mask[::-1], axis=0)
    rows = np.where(np.isnan(val).all(axis=0), last, best)
    return test[rows, np.arange(test.shape[1])]


def over_seeds(seeds: list[StageStatistics]) -> SeedStatistics:
    """The mean of the statistics of each seed; of several seeds also `seeds`, those of each.

    All seeds were scored in the same stages.

    Example:
      >>> none = {"weighted": None, "std": None, "worst10": None}
      >>> first, second = ({"deployed": {"mean": mean, **none}} for mean in (0.25, 0.75))
      >>> stages = over_seeds([first, second])
      >>> stages["deployed"]["mean"], stages["seeds"] == [first, second]
      (0.5, True)
    """
    found: SeedStatistics = {"deployed": _mean_statistics([seed["deployed"] for seed in seeds])}
    if trained := [seed["trained"] for seed in seeds if "trained" in seed]:
        found["trained"] = _mean_statistics(trained)
    if fine_tuned := [seed["fine_tuned"] for seed in seeds if "fine_tuned" in seed]:
        found["fine_tuned"] = _mean_statistics(fine_tuned)
    if len(seeds) > 1:
        found["seeds"] = seeds
    return found


def _mean_statistics(seeds: list[Statistics]) -> Statistics:
    statistics: Statistics = {
        "mean": _mean([seed["mean"] for seed in seeds]),
        "weighted": _mean([seed["weighted"] for seed in seeds]),
        "std": _mean([seed["std"] for seed in seeds]),
        "worst10": _mean([seed["worst10"] for seed in seeds]),
    }
    if any("pooled" in seed for seed in seeds):
        statistics["pooled"] = _mean([seed.get("pooled") for seed in seeds])
    if any("undefined" in seed for seed in seeds):
        # The most of any seed, which a table says.
        statistics["undefined"] = max(seed.get("undefined", 0) for seed in seeds)
    return statistics


def _mean(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def each_seed(stages: SeedStatistics) -> list[StageStatistics]:
    """The statistics of each seed; of the only one, if there is one.

    Example:
      >>> scores = {"mean": 0.5, "weighted": 0.5, "std": 0.0, "worst10": 0.5}
      >>> each_seed({"deployed": scores}) == [{"deployed": scores}]
      True
    """
    if seeds := stages.get("seeds"):
        return seeds
    alone: StageStatistics = {"deployed": stages["deployed"]}
    if "trained" in stages:
        alone["trained"] = stages["trained"]
    if "fine_tuned" in stages:
        alone["fine_tuned"] = stages["fine_tuned"]
    return [alone]


def timed_summary(
    target: float | None, lines: Sequence[RoundStatistics], measure: str
) -> TimedStatistics:
    """What a summary says of the virtual clock, if the run has one, and of a target, if it has one.

    Args:
      target: the score to reach.
      lines: of `metrics.jsonl`.
      measure: the metric of the scores.

    Returns:
      `time` and `times` of the last line; and `target`, see `over_seeds_reached`.

    Example:
      >>> none = {"weighted": None, "std": None, "worst10": None}
      >>> lines = [
      ...     {"round": number, "deployed": {"mean": mean, **none}}
      ...     for number, mean in ((1, 0.25), (2, 0.75))
      ... ]
      >>> timed_summary(0.5, lines, "accuracy")
      {'target': {'score': 0.5, 'round': 2.0}}
    """
    summary: TimedStatistics = {}
    if "time" in lines[-1]:
        summary["time"] = lines[-1]["time"]
    if "times" in lines[-1]:
        summary["times"] = lines[-1]["times"]
    if target is None:
        return summary
    seeds = [
        _first_reached(target, lines, measure, seed) for seed in range(len(each_seed(lines[0])))
    ]
    summary["target"] = over_seeds_reached(target, seeds)
    return summary


def over_seeds_reached(score: float, seeds: list[Reached]) -> Target:
    """`target` of a summary.

    Args:
      score: the target.
      seeds: `round` and, with a virtual clock, `time` of each seed; None if it was not reached.

    Returns:
      The `score`; the means over the seeds, None if a seed has not reached the target; with several
      seeds also `seeds`.

    Example:
      >>> over_seeds_reached(0.5, [{"round": 2}, {"round": 4}])
      {'score': 0.5, 'round': 3.0, 'seeds': [{'round': 2}, {'round': 4}]}
    """
    target: Target = {"score": score}
    if "round" in seeds[0]:
        target["round"] = _mean_if_all_known([seed.get("round") for seed in seeds])
    if "time" in seeds[0]:
        target["time"] = _mean_if_all_known([seed.get("time") for seed in seeds])
    if len(seeds) > 1:
        target["seeds"] = seeds
    return target


def _mean_if_all_known(values: Sequence[int | float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def reached_by_seed(target: Target) -> list[Reached]:
    """`round` and `time` of each seed; of the only one, if there is one.

    Example:
      >>> reached_by_seed({"score": 0.5, "round": 3.0})
      [{'round': 3.0}]
    """
    if seeds := target.get("seeds"):
        return seeds
    alone: Reached = {}
    if "round" in target:
        alone["round"] = target["round"]
    if "time" in target:
        alone["time"] = target["time"]
    return [alone]


def _first_reached(
    target: float, lines: Sequence[RoundStatistics], measure: str, seed: int
) -> Reached:
    """The round and the time of the first evaluation in which a seed has the target score."""
    for line in lines:
        score = each_seed(line)[seed]["deployed"]["mean"]
        if score is not None and _reaches(score, target, measure):
            if "time" not in line:
                return {"round": line["round"]}
            time = line["times"][seed] if "times" in line else line["time"]
            return {"round": line["round"], "time": time}
    return {"round": None, "time": None} if "time" in lines[0] else {"round": None}


def _reaches(score: float, target: float, measure: str) -> bool:
    """Whether a stored score is as good as the target, which is a value of the metric."""
    metric = metric_of(measure)
    return metric.sign * metric.value(score) >= metric.sign * target
