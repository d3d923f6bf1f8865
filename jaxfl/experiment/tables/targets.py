"""When runs first had a target score, in rounds and in virtual time."""

from collections.abc import Sequence
from typing import Any

from jaxfl.experiment.tables.scores import spread_text
from jaxfl.simulation.scoring import over_seeds_reached, reached_by_seed

NOT_REACHED = "not reached"
DIGITS = ".1f"  # of rounds and times


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
