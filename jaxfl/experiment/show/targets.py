"""When runs first had a target score, in rounds and in virtual time."""

from collections.abc import Sequence
from typing import Any

from jaxfl.experiment.show.scores import MEASURES, each_seed, spread_text

NOT_REACHED = "not reached"
DIGITS = ".1f"  # of rounds and times


def timed_summary(
    target: float | None, lines: Sequence[dict[str, Any]], measure: str
) -> dict[str, Any]:
    """What a summary says of the virtual clock, if the run has one, and of a target, if it has one.

    Args:
      target: the score to reach.
      lines: of `metrics.jsonl`.
      measure: of `MEASURES`.

    Returns:
      `time` and `times` of the last line; and `target`, see `over_seeds_reached`.
    """
    found = {name: lines[-1][name] for name in ("time", "times") if name in lines[-1]}
    if target is None:
        return found
    seeds = [
        _first_reached(target, lines, measure, seed) for seed in range(len(each_seed(lines[0])))
    ]
    return found | {"target": over_seeds_reached(target, seeds)}


def over_seeds_reached(score: float, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """`target` of a summary.

    Args:
      score: the target.
      seeds: `round` and, with a virtual clock, `time` of each seed; None if it was not reached.

    Returns:
      The `score`; the means over the seeds, None if a seed has not reached the target; with several
      seeds also `seeds`.
    """
    found: dict[str, Any] = {"score": score}
    for name in seeds[0]:
        values = [seed[name] for seed in seeds]
        found[name] = None if None in values else sum(values) / len(values)
    return found | ({"seeds": seeds} if len(seeds) > 1 else {})


def pool_timed(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What `timed_summary` says, of runs that differ in their seeds alone."""
    found: dict[str, Any] = {}
    if all("time" in summary for summary in summaries):
        times = [time for one in summaries for time in one.get("times", [one["time"]])]
        found |= {"time": sum(times) / len(times), "times": times}
    if all("target" in summary for summary in summaries):
        targets = [summary["target"] for summary in summaries]
        seeds = [seed for target in targets for seed in reached_by_seed(target)]
        found["target"] = over_seeds_reached(targets[0]["score"], seeds)
    return found


def reached_by_seed(target: dict[str, Any]) -> list[dict[str, Any]]:
    """`round` and `time` of each seed; of the only one, if there is one."""
    alone = {name: value for name, value in target.items() if name in ("round", "time")}
    return target.get("seeds", [alone])


def timed_cells(summary: dict[str, Any]) -> dict[str, str]:
    """The cells of a row of the table, by the title of the column; "-" without clock or target."""
    target = summary.get("target", {})
    cells = {
        f"{what} to target": _reached_text(target, name)
        for what, name in (("rounds", "round"), ("time", "time"))
    }
    time = "-"
    if "time" in summary:
        time = f"{summary['time']:{DIGITS}}{spread_text(summary.get('times', []), DIGITS)}"
    return cells | {"virtual time": time}


def _reached_text(target: dict[str, Any], name: str) -> str:
    if name not in target:
        return "-"
    if target[name] is None:
        return NOT_REACHED
    seeds = [float(seed[name]) for seed in reached_by_seed(target)]
    digits = ".0f" if name == "round" and len(seeds) == 1 else DIGITS
    return f"{target[name]:{digits}}{spread_text(seeds, digits)}"


def _first_reached(
    target: float, lines: Sequence[dict[str, Any]], measure: str, seed: int
) -> dict[str, Any]:
    """The round and the time of the first evaluation in which a seed has the target score."""
    names = [name for name in ("round", "time") if name in lines[0]]
    for line in lines:
        score = each_seed(line)[seed]["before"]["mean"]
        if score is not None and _reaches(score, target, measure):
            own = line | ({"time": line["times"][seed]} if "times" in line else {})
            return {name: own[name] for name in names}
    return dict.fromkeys(names)


def _reaches(score: float, target: float, measure: str) -> bool:
    """Whether a stored score is as good as the target; of RMSE, smaller is better."""
    if measure == "accuracy":
        return score >= target
    return MEASURES[measure][1](score) <= target
