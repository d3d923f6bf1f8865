"""How published tables make one number of all evaluations of a run."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxfl.core.options import checked
from jaxfl.simulation.evaluate import STAGES, Stage
from jaxfl.simulation.statistics import (
    Measure,
    Reached,
    RoundStatistics,
    SeedStatistics,
    StageStatistics,
    Statistics,
    Target,
    TimedStatistics,
)

# Which scores of an evaluation a table takes: those of one stage, or for each client the better of
# two by validation.
TableStage = Stage | Literal["both"]
# Of equal validation scores the first one counts: clients train, then the server answers.
TABLE_STAGES: dict[TableStage, tuple[Stage, ...]] = {
    **{stage: (stage,) for stage in STAGES},
    "both": ("trained", "deployed"),
}


class Scored(NamedTuple):
    """The scores of one stage of E evaluations of C clients, NaN where there is none."""

    # [E, C]
    val: Float[np.ndarray, "e c"]
    # [E, C]
    test: Float[np.ndarray, "e c"]


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


def selected_on_val(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """Each client's test score at its best validation score over all evaluations and stages [C].

    pFedGraph's protocol: each client keeps the model that was best on its validation data.

    Example:
      >>> stage = Scored(val=np.array([[0.5], [0.9], [0.7]]), test=np.array([[0.4], [0.6], [0.8]]))
      >>> selected_on_val([stage], np.array([10])).tolist()
      [0.6]
    """
    # [E, stages, C]: the first of equal validation scores counts.
    val, test = (np.stack(parts, axis=1) for parts in zip(*stages, strict=True))
    clients = val.shape[-1]
    return select_on_val(val.reshape(-1, clients), test.reshape(-1, clients))


def last_ten(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """The mean over clients of each of the last ten evaluations [10]; FedCedar's protocol.

    Example:
      >>> scores = np.arange(12.0)[:, None] + np.array([0.0, 1.0])
      >>> last_ten([Scored(scores, scores)], np.array([10, 30])).tolist()
      [2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5]
    """
    return _row_means(stages[-1].test[-10:], np.ones_like(sizes))


def best_round(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """The mean over clients, weighted by size, of the evaluation in which it is highest [1].

    The protocol of PFLlib and NIID-Bench. The evaluation is chosen by its test score, so the score
    is too high to stand for unseen data.

    Example:
      >>> scores = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.5]])
      >>> best_round([Scored(scores, scores)], np.array([10, 30])).tolist()
      [0.375]
    """
    means = _row_means(stages[-1].test, sizes)
    return np.max(means, where=np.isfinite(means), initial=-np.inf, keepdims=True)


def last(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """Each client's test score at the last evaluation [C].

    Example:
      >>> scores = np.array([[0.5, 0.5], [0.75, 0.25]])
      >>> last([Scored(scores, scores)], np.array([10, 30])).tolist()
      [0.75, 0.25]
    """
    return stages[-1].test[-1]


def _row_means(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted mean of each row's scores that are there [E], NaN for a row without one."""
    mask = ~np.isnan(scores)
    totals = (mask * weights).sum(axis=1)
    sums = (np.where(mask, scores, 0.0) * weights).sum(axis=1)
    return np.where(totals > 0, sums / np.maximum(totals, 1e-9), np.nan)


# ([stages' scores], sizes [C]) -> numbers whose mean is the score
RULES: dict[str, Callable[[list[Scored], np.ndarray], np.ndarray]] = {
    "selected_on_val": selected_on_val,
    "last_ten": last_ten,
    "best_round": best_round,
    "last": last,
}


@checked
def numbers(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> np.ndarray:
    """The numbers whose mean is the score of a run by the rule of a table.

    Clients that take part in no round (`unseen`) do not count.

    Args:
      clients: arrays of `clients.npz` of a run of one seed: scores [E, C], sizes [C] and, in files
        that have it, unseen [C].
      rule: a name of `RULES`.
      stage: a name of `TABLE_STAGES`.

    Example:
      >>> scores = np.array([[0.5, 0.5], [0.75, 0.25]])
      >>> arrays = {"sizes": np.array([10, 30]), "deployed_val": scores, "deployed_test": scores}
      >>> numbers(arrays, "last", "deployed").tolist()
      [0.75, 0.25]
    """
    return RULES[rule](*_seen(clients, stage))


@checked
def by_client(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> np.ndarray:
    """Each client's test score in the evaluations that a rule takes [C], NaN if it has none.

    They are the last ten for `last_ten`, of which this is the mean, and that of the highest mean
    over clients for `best_round`. Clients that take part in no round (`unseen`) are left out.

    Args:
      clients: arrays of `clients.npz` of a run of one seed, as for `numbers`.
      rule: a name of `RULES`.
      stage: a name of `TABLE_STAGES`.

    Example:
      >>> each = np.array([[0.25, 0.5], [0.75, np.nan]])
      >>> arrays = {"sizes": np.array([10, 30]), "deployed_val": each, "deployed_test": each}
      >>> by_client(arrays, "last_ten", "deployed").tolist()
      [0.5, 0.5]
    """
    stages, sizes = _seen(clients, stage)
    test = stages[-1].test
    if rule == "last_ten":
        return _row_means(test[-10:].T, np.ones(len(test[-10:])))
    if rule == "best_round":
        means = _row_means(test, sizes)
        return test[np.argmax(np.where(np.isfinite(means), means, -np.inf))]
    return RULES[rule](stages, sizes)


def _seen(clients: dict[str, np.ndarray], stage: TableStage) -> tuple[list[Scored], np.ndarray]:
    """The scores of a stage and the sizes, of the clients that take part in rounds."""
    sizes = clients["sizes"]
    seen = ~clients.get("unseen", np.zeros(sizes.shape, bool))
    stages = [
        Scored(clients[f"{name}_val"][:, seen], clients[f"{name}_test"][:, seen])
        for name in TABLE_STAGES[stage]
    ]
    return stages, sizes[seen]


@checked
def scores(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> list[float]:
    """The score of each seed of a run, see `score`.

    Args:
      clients: arrays of `clients.npz` of a run, with several seeds [S, E, C].
      rule: a name of `RULES`.
      stage: a name of `TABLE_STAGES`.

    Example:
      >>> each = np.array([[[0.5, 0.5]], [[0.75, 0.25]], [[1.0, 0.5]]])  # of 3 seeds and 2 clients
      >>> arrays = {"sizes": np.full((3, 2), 10), "deployed_val": each, "deployed_test": each}
      >>> scores(arrays, "last", "deployed")
      [0.5, 0.5, 0.75]
    """
    if clients["deployed_test"].ndim == 2:
        return [score(clients, rule, stage)]
    seeded = {name for name in clients if name == "sizes" or name.endswith(("_val", "_test"))}
    each = range(len(clients["deployed_test"]))
    split = [{k: v[s] if k in seeded else v for k, v in clients.items()} for s in each]
    return [score(one, rule, stage) for one in split]


@checked
def score(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> float:
    """The score of a run by the rule of a table, the mean of `numbers`; NaN if there is none.

    Example:
      >>> each = np.array([[0.5, 0.5], [0.75, 0.5]])
      >>> arrays = {"sizes": np.array([10, 30]), "deployed_val": each, "deployed_test": each}
      >>> score(arrays, "last", "deployed")
      0.625
    """
    values = numbers(clients, rule, stage)
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")


# What a score is called, and how a stored value is shown.
MEASURES: dict[Measure, tuple[str, Callable[[float], float], str]] = {
    "accuracy": ("accuracy in %", lambda score: 100 * score, ".1f"),
    # stored as minus the mean squared error
    "rmse": ("RMSE", lambda score: max(-score, 0.0) ** 0.5, ".3f"),
}


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
    return {
        "mean": _mean([seed["mean"] for seed in seeds]),
        "weighted": _mean([seed["weighted"] for seed in seeds]),
        "std": _mean([seed["std"] for seed in seeds]),
        "worst10": _mean([seed["worst10"] for seed in seeds]),
    }


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


@checked
def timed_summary(
    target: float | None, lines: Sequence[RoundStatistics], measure: Measure
) -> TimedStatistics:
    """What a summary says of the virtual clock, if the run has one, and of a target, if it has one.

    Args:
      target: the score to reach.
      lines: of `metrics.jsonl`.
      measure: of `MEASURES`.

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
    target: float, lines: Sequence[RoundStatistics], measure: Measure, seed: int
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


def _reaches(score: float, target: float, measure: Measure) -> bool:
    """Whether a stored score is as good as the target; of RMSE, smaller is better."""
    if measure == "accuracy":
        return score >= target
    return MEASURES[measure][1](score) <= target
