"""When runs first had a target score, in rounds and in virtual time."""

from collections.abc import Sequence
from typing import Literal

from jaxfl.experiment.store.records import Summary
from jaxfl.experiment.tables.scores import spread_text
from jaxfl.simulation.statistics import Target, TimedStatistics, over_seeds_reached, reached_by_seed

NOT_REACHED = "not reached"
DIGITS = ".1f"  # of rounds and times
TIMED = ("rounds to target", "time to target", "virtual time")  # titles of columns


def pool_timed(summaries: Sequence[Summary]) -> TimedStatistics:
    """What `timed_summary` says, of runs that differ in their seeds alone."""
    statistics: TimedStatistics = {}
    records = [one for one in summaries if "time" in one]
    if len(records) == len(summaries):
        times = [time for one in records for time in one.get("times", [one["time"]])]
        statistics["time"] = sum(times) / len(times)
        statistics["times"] = times
    targets = [one["target"] for one in summaries if "target" in one]
    if len(targets) == len(summaries):
        seeds = [seed for target in targets for seed in reached_by_seed(target)]
        statistics["target"] = over_seeds_reached(targets[0]["score"], seeds)
    return statistics


def timed_cells(summary: Summary) -> dict[str, str]:
    """The cells of a row of the table, by the title of the column; "-" without clock or target."""
    target = summary.get("target")
    cells = [_reached_text(target, "round"), _reached_text(target, "time"), "-"]
    if "time" in summary:
        spread = spread_text(summary.get("times", []), DIGITS)
        cells[-1] = f"{summary['time']:{DIGITS}}{spread}"
    return dict(zip(TIMED, cells, strict=True))


def _reached_text(target: Target | None, name: Literal["round", "time"]) -> str:
    if target is None or name not in target:
        return "-"
    mean = target.get(name)
    if mean is None:
        return NOT_REACHED
    rounds = [seed.get(name) for seed in reached_by_seed(target)]
    seeds = [float(number) for number in rounds if number is not None]
    digits = ".0f" if name == "round" and len(seeds) == 1 else DIGITS
    return f"{mean:{digits}}{spread_text(seeds, digits)}"
