"""Finished runs as tidy data: a record for each run, seed and fold, for pandas and R."""

from typing import Any

from jaxfl.experiment.config.hints import as_typed
from jaxfl.experiment.store.records import RunRecord, Runs, Summary
from jaxfl.experiment.tables.constant import constant_of
from jaxfl.experiment.tables.differences import reference_of
from jaxfl.experiment.tables.grouping import comparable_groups
from jaxfl.experiment.tables.heading import differing_options
from jaxfl.experiment.tables.pooling import pool_seeds
from jaxfl.experiment.tables.scores import measure_of, score_of
from jaxfl.simulation.evaluation import STAGES, Stage
from jaxfl.simulation.metrics import Metric, metric_of
from jaxfl.simulation.statistics import SeedStatistics, StageStatistics, Statistic, each_seed

Record = dict[str, Any]  # a value for each column: a number, a text or None
KINDS: tuple[Statistic, ...] = ("mean", "weighted", "worst10")


def score_records(runs: Runs, against: str | None = None) -> list[Record]:
    """A record for each run, seed, fold and part of the clients; None for an unknown value.

    Scores are as tables show them: accuracies in %.

    Args:
      runs: of `store.finished_runs.load_finished`.
      against: the name of a run or a method; `difference` is how far the mean score of the deployed
        models is better than that run's, for the same seed and fold.

    Raises:
      InputError: as `differences.reference_of`.
    """
    options = [name for name in differing_options(runs) if name not in ("seed", "seeds")]
    has_folds = any(run.folds > 1 for run in runs.values())
    records = []
    sign = metric_of(measure_of(runs)).sign
    for group in comparable_groups(pool_seeds(runs)):
        by_label = {
            label: _records(label, run, options, has_folds) for label, run in group.runs.items()
        }
        if against is not None:
            reference = by_label[reference_of(group.runs, against, group.setting)]
            others = {_pair(record): record for record in reference}
            for record in (record for rows in by_label.values() for record in rows):
                other = others.get(_pair(record), {})
                score, less = (one.get("deployed_mean") for one in (record, other))
                record["difference"] = None
                if score is not None and less is not None:
                    # No -0.0.
                    record["difference"] = round(sign * (score - less), 6) + 0.0
        records += [record for rows in by_label.values() for record in rows]
        records += _constant_records(group.runs, options)
    return records


def _constant_records(runs: Runs, options: list[str]) -> list[Record]:
    """The records of the constant predictors; options in which the runs differ are None."""
    constant = constant_of(runs)
    if constant is None:
        return []
    measure = measure_of(runs)
    first = next(iter(runs.values()))
    about: Record = {"run": constant.name, "algorithm": constant.name, "hyper": ""}
    for one in options:
        values = {repr(run.option(one)) for run in runs.values()}
        about[one] = _plain(first.option(one)) if len(values) == 1 else None
    records = []
    for part in ("constant", "constant_unseen"):
        by_name = {}
        for name, scores in constant.scores.items():
            statistics = scores if part == "constant" else scores.get("unseen")
            if statistics is not None:
                by_name[name] = each_seed(statistics)
        if measure not in by_name:
            continue
        for place, seed in enumerate(first.seeds):
            metric = metric_of(measure)
            record = about | {"seed": seed, "part": part, "measure": metric.name}
            record |= _scores(by_name[measure][place], "deployed", "deployed", metric)
            for name, seeds in by_name.items():
                if name != measure:
                    record |= _scores(seeds[place], "deployed", name, metric_of(name))
            records.append(record)
    return records


def _pair(record: Record) -> tuple[str, int, int]:
    """What two records have in common whose scores are compared."""
    return record["part"], record["seed"], record.get("fold", 0)


def _records(label: str, run: RunRecord, options: list[str], has_folds: bool) -> list[Record]:
    """The records of one run, with a column for the fold if a run has several."""
    summary = run.summary
    metric = metric_of(summary["measure"])
    about: Record = {"run": label, "algorithm": summary["algorithm"]}
    about["hyper"] = " ".join(f"{key}={value}" for key, value in sorted(run.hyper.items()))
    about |= {one: _plain(run.option(one)) for one in options}
    records = []
    for part, statistics in _parts(summary).items():
        members = zip(run.members, each_seed(statistics), strict=False)
        for place, ((seed, fold), stages) in enumerate(members):
            record = about | {"seed": seed} | ({"fold": fold} if has_folds else {})
            record |= {"part": part, "measure": metric.name}
            for stage in STAGES:
                record |= _scores(stages, stage, stage, metric)
            record |= _further(summary, part, place)
            record |= {"up": summary["up"], "down": summary["down"]}
            records.append(
                record | {"up_bytes": summary["up_bytes"], "batches": summary["batches"]}
            )
    return records


def _further(summary: Summary, part: str, place: int) -> Record:
    """The scores of the deployed models by further metrics, of the seed at a place of a part."""
    scores: Record = {}
    for name, further in summary.get("scores", {}).items():
        statistics = further.get(part)
        if statistics:
            scores |= _scores(each_seed(statistics)[place], "deployed", name, metric_of(name))
    return scores


def _scores(stages: StageStatistics, stage: Stage, name: str, metric: Metric) -> Record:
    """The scores of a stage by a metric; that of all predictions together only where there is one.

    Args:
      stages: of a seed.
      stage: of the scores.
      name: with which the names of the columns begin.
      metric: of the scores.
    """
    pooled = "pooled" in stages.get(stage, {})
    kinds: list[Statistic] = [*KINDS, *(["pooled"] if pooled else [])]
    values = {kind: score_of(stages, stage, kind) for kind in kinds}
    return {
        f"{name}_{kind}": None if value is None else round(metric.shown(value), 6)
        for kind, value in values.items()
    }


def _parts(summary: Summary) -> dict[str, SeedStatistics]:
    """The parts of a summary that have scores."""
    parts = {"final": summary["final"], "selected_on_val": summary["selected_on_val"]}
    return parts | ({"unseen": summary["unseen"]} if "unseen" in summary else {})


def _plain(value: Any) -> Any:
    """A value of an option as CSV and JSON have it."""
    return as_typed(value) if isinstance(value, tuple) else value
