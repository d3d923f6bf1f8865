"""Runs that differ in their seed alone are one run of several seeds."""

from dataclasses import fields, replace
from typing import Any

from jaxfl.experiment.config import Config
from jaxfl.experiment.config.fields import marked
from jaxfl.experiment.config.notes import NO_SCORE
from jaxfl.experiment.tables.scores import Runs
from jaxfl.experiment.tables.targets import pool_timed
from jaxfl.simulation.scoring import each_seed, over_seeds

# Options that change no score, and the seeds.
NOT_COMPARED = marked(Config, NO_SCORE) | {"seed", "seeds"}
POOLED = ("final", "selected_on_val", "unseen")  # scores of a summary


def pool_seeds(runs: Runs) -> Runs:
    """The runs, where those that differ in their seeds alone are one run with all these seeds.

    Runs that share a seed stay apart, and runs whose config is unknown.
    """
    alike: dict[str, list[str]] = {}
    for label, run in runs.items():
        config = run.get("config")
        alike.setdefault(label if config is None else _without_seed(config), []).append(label)
    pooled = {}
    for labels in alike.values():
        members = [runs[label] for label in labels]
        if len(members) > 1 and _fit(members):
            pooled[labels[0]] = _pool(sorted(members, key=lambda run: run["config"].seed))
        else:
            pooled |= {label: runs[label] for label in labels}
    return {label: pooled[label] for label in runs if label in pooled}


def seed_numbers(run: dict[str, Any]) -> list[int]:
    """The seeds of a run; counted from 0 where its config is unknown."""
    if "seed_numbers" in run:
        return run["seed_numbers"]
    config = run.get("config")
    if config is None:
        return list(range(len(each_seed(run["summary"]["final"]))))
    return list(range(config.seed, config.seed + config.seeds))


def _without_seed(config: Config) -> str:
    kept = {
        one.name: getattr(config, one.name)
        for one in fields(Config)
        if one.name not in NOT_COMPARED
    }
    return repr(kept | {"hyper": sorted(config.hyper.items())})


def _fit(members: list[dict[str, Any]]) -> bool:
    """Whether no seed occurs twice, and all were evaluated and scored alike."""
    seeds = [seed for run in members for seed in seed_numbers(run)]
    rounds = [[line["round"] for line in run["lines"]] for run in members]
    scored = [{name for name in POOLED if name in run["summary"]} for run in members]
    same = all(one == rounds[0] for one in rounds) and all(one == scored[0] for one in scored)
    return len(set(seeds)) == len(seeds) and same


def _pool(members: list[dict[str, Any]]) -> dict[str, Any]:
    summaries = [run["summary"] for run in members]
    first = summaries[0]
    summary = first | {
        name: _pool_scores([one[name] for one in summaries]) for name in POOLED if name in first
    }
    if "graph" in first:
        summary["graph"] = _pool_graphs(summaries)
    summary |= pool_timed(summaries)
    # What is sent and computed is counted for one seed; the time is that of all.
    summary["seconds"] = sum(one["seconds"] for one in summaries)
    lines = [_pool_lines(list(rows)) for rows in zip(*(r["lines"] for r in members), strict=True)]
    seeds = [seed for run in members for seed in seed_numbers(run)]
    # Each of the runs may have clients on disk, and no one run has several seeds there.
    config = replace(members[0]["config"], seed=seeds[0], seeds=len(seeds), store=None)
    pooled = {"summary": summary, "lines": lines, "config": config, "seed_numbers": seeds}
    return members[0] | pooled


def _pool_lines(lines: list[dict[str, Any]]) -> dict[str, Any]:
    losses = [line["loss"] for line in lines if line["loss"] is not None]
    loss = sum(losses) / len(losses) if losses else None
    graph = {"graph": _pool_graphs(lines)} if "graph" in lines[0] else {}
    return lines[0] | {"loss": loss} | graph | _pool_scores(lines)


def _pool_graphs(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The numbers of the weights in several runs, means over their seeds."""
    seeds = [len(each_seed(part.get("final", part))) for part in parts]
    return _mean([part.get("graph", {}) for part in parts], seeds)


def _mean(graphs: list[dict[str, Any]], seeds: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in graphs[0].items():
        if isinstance(value, dict):
            found[name] = _mean([graph.get(name, {}) for graph in graphs], seeds)
            continue
        pairs = [(graph.get(name), count) for graph, count in zip(graphs, seeds, strict=True)]
        known = [(number, count) for number, count in pairs if number is not None]
        total = sum(count for _, count in known)
        found[name] = sum(number * count for number, count in known) / total if total else None
    return found


def _pool_scores(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The scores of all seeds of several runs, and their means."""
    return over_seeds([seed for part in parts for seed in each_seed(part)])
