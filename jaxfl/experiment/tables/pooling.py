"""Runs that differ in their seed alone are one run of several seeds."""

from collections.abc import Sequence
from dataclasses import replace

from jaxfl.experiment.config.changes import without_seeds
from jaxfl.experiment.store.records import (
    FurtherScores,
    FurtherSummary,
    GraphMeasures,
    Line,
    RunRecord,
    Runs,
    Summary,
)
from jaxfl.experiment.tables.target_score import pool_timed
from jaxfl.simulation.statistics import SeedStatistics, each_seed, over_seeds


def pool_seeds(runs: Runs) -> Runs:
    """The runs, where those that differ in their seeds alone are one run with all these seeds.

    Runs that share a seed stay apart, and runs whose config is unknown.
    """
    alike: dict[str, list[str]] = {}
    for label, run in runs.items():
        name = label if run.config is None else without_seeds(run.config)
        alike.setdefault(name, []).append(label)
    pools = {}
    for labels in alike.values():
        members = [runs[label] for label in labels]
        if len(members) > 1 and _fit(members):
            pools[labels[0]] = _pool(sorted(members, key=lambda run: run.seeds))
        else:
            pools |= {label: runs[label] for label in labels}
    return {label: pools[label] for label in runs if label in pools}


def _fit(members: list[RunRecord]) -> bool:
    """Whether no seed occurs twice, and all were evaluated and scored alike."""
    metrics = [[run.summary["measure"], *run.summary.get("scores", {})] for run in members]
    seeds = [seed for run in members for seed in run.seeds]
    rounds = [[line["round"] for line in run.lines] for run in members]
    parts = ["unseen" in run.summary for run in members]
    same = all(one == rounds[0] for one in rounds) and len(set(parts)) == 1
    same = same and all(one == metrics[0] for one in metrics)
    return len(set(seeds)) == len(seeds) and same


def _pool(members: list[RunRecord]) -> RunRecord:
    """Runs that differ in their seeds alone, those of the smallest seeds first, as one run."""
    summaries = [run.summary for run in members]
    lines = [list(rows) for rows in zip(*(run.lines for run in members), strict=True)]
    config = members[0].config
    seeds = tuple(seed for run in members for seed in run.seeds)
    # Each of the runs may have clients on disk, and no one run has several seeds there.
    setting = config and replace(config, seed=seeds[0], seeds=len(seeds), store=None)
    return replace(
        members[0],
        summary=_pool_summaries(summaries),
        lines=[_pool_lines(rows) for rows in lines],
        config=setting,
        pooled_seeds=seeds,
        pooled_directories=tuple(one for run in members for one in run.directories),
    )


def _pool_summaries(summaries: list[Summary]) -> Summary:
    summary = summaries[0].copy()
    finals = [one["final"] for one in summaries]
    summary["final"] = _pool_statistics(finals)
    summary["selected_on_val"] = _pool_statistics([one["selected_on_val"] for one in summaries])
    if unseen := [one["unseen"] for one in summaries if "unseen" in one]:
        summary["unseen"] = _pool_statistics(unseen)
    summary.pop("constant", None)
    summary.pop("one_label", None)
    constants = [one["constant"] for one in summaries if "constant" in one]
    if len(constants) == len(summaries):
        summary["constant"] = _pool_scores(constants)
    if all("one_label" in one for one in summaries):
        counts = [len(each_seed(one)) for one in finals]
        share = _mean([one.get("one_label") for one in summaries], counts)
        summary["one_label"] = share or 0.0
    if "scores" in summary:
        each = [one.get("scores", {}) for one in summaries]
        summary["scores"] = {
            name: _pool_further([one[name] for one in each]) for name in summary["scores"]
        }
    if "graph" in summary:
        summary["graph"] = _pool_graphs([one.get("graph", {}) for one in summaries], finals)
    # What is sent and computed is counted for one seed; the time is that of all.
    summary["seconds"] = sum(one["seconds"] for one in summaries)
    return {**summary, **pool_timed(summaries)}


def _pool_further(parts: list[FurtherSummary]) -> FurtherSummary:
    """The scores by a further metric, of several runs."""
    pool: FurtherSummary = {
        "final": _pool_statistics([one["final"] for one in parts]),
        "selected_on_val": _pool_statistics([one["selected_on_val"] for one in parts]),
    }
    if unseen := [one["unseen"] for one in parts if "unseen" in one]:
        pool["unseen"] = _pool_statistics(unseen)
    constants = [one["constant"] for one in parts if "constant" in one]
    if len(constants) == len(parts):
        pool["constant"] = _pool_scores(constants)
    return pool


def _pool_scores(parts: Sequence[FurtherScores]) -> FurtherScores:
    """The scores of one evaluation by one metric, of several runs."""
    pool: FurtherScores = {**_pool_statistics(parts)}
    if unseen := [one["unseen"] for one in parts if "unseen" in one]:
        pool["unseen"] = _pool_statistics(unseen)
    return pool


def _pool_lines(lines: list[Line]) -> Line:
    result = lines[0].copy()
    losses = [line["loss"] for line in lines if line["loss"] is not None]
    result["loss"] = sum(losses) / len(losses) if losses else None
    if "graph" in result:
        result["graph"] = _pool_graphs([line.get("graph", {}) for line in lines], lines)
    if "scores" in result:
        each = [line.get("scores", {}) for line in lines]
        result["scores"] = {
            name: _pool_scores([one[name] for one in each]) for name in result["scores"]
        }
    if unseen := [line["unseen"] for line in lines if "unseen" in line]:
        result["unseen"] = _pool_statistics(unseen)
    return {**result, **_pool_statistics(lines)}


def _pool_statistics(parts: Sequence[SeedStatistics]) -> SeedStatistics:
    """The statistics of all seeds of several runs, and their means."""
    return over_seeds([seed for part in parts for seed in each_seed(part)])


def _pool_graphs(graphs: list[GraphMeasures], scores: Sequence[SeedStatistics]) -> GraphMeasures:
    """The numbers of the weights in several runs, means over their seeds.

    Args:
      graphs: of each run.
      scores: of each run, which say how many seeds it has.
    """
    seeds = [len(each_seed(one)) for one in scores]
    measures: GraphMeasures = {}
    for name, value in graphs[0].items():
        values = [graph.get(name) for graph in graphs]
        if isinstance(value, dict):
            parts = [one if isinstance(one, dict) else {} for one in values]
            measures[name] = {
                measure: _mean([part.get(measure) for part in parts], seeds) for measure in value
            }
        else:
            measures[name] = _mean(
                [None if isinstance(one, dict) else one for one in values], seeds
            )
    return measures


def _mean(values: list[float | None], seeds: list[int]) -> float | None:
    """The mean of the numbers that are known, over the seeds of their runs."""
    pairs = [(one, count) for one, count in zip(values, seeds, strict=True) if one is not None]
    total = sum(count for _, count in pairs)
    return sum(number * count for number, count in pairs) / total if total else None
