"""Finished runs as tidy data: a record for each run and seed, for pandas, R and spreadsheets."""

from typing import Any

from jaxfl.experiment.config.fields import as_typed
from jaxfl.experiment.tables.differences import reference_of
from jaxfl.experiment.tables.grouping import comparable_groups
from jaxfl.experiment.tables.heading import differing_options
from jaxfl.experiment.tables.pooling import pool_seeds, seed_numbers
from jaxfl.experiment.tables.scores import Runs, score_of
from jaxfl.simulation.evaluate import STAGES
from jaxfl.simulation.scoring import MEASURES, each_seed

COUNTS = ("up", "down", "up_bytes", "batches")  # of a summary


def score_records(runs: Runs, against: str | None = None) -> list[dict[str, Any]]:
    """A record for each run, seed and part of the clients; None where a value is unknown.

    Scores are as tables show them: accuracies in %, errors as their root.

    Args:
      runs: of `store.finished.load_finished`.
      against: the name of a run or a method; `difference` is the mean score of the deployed models
        less that run's, for the same seed.

    Raises:
      InputError: as `differences.reference_of`.
    """
    configs = [run["config"] for run in runs.values() if run.get("config") is not None]
    options = [name for name in differing_options(configs) if name not in ("seed", "seeds")]
    records = []
    for group in comparable_groups(pool_seeds(runs)):
        own = {label: _records(label, run, options) for label, run in group.runs.items()}
        if against is not None:
            reference = own[reference_of(group.runs, against, group.setting)]
            others = {(record["part"], record["seed"]): record for record in reference}
            for record in (record for rows in own.values() for record in rows):
                other = others.get((record["part"], record["seed"]), {})
                pair = [one.get("deployed_mean") for one in (record, other)]
                known = [mean for mean in pair if mean is not None]
                record["difference"] = round(known[0] - known[1], 6) if len(known) == 2 else None
        records += [record for rows in own.values() for record in rows]
    return records


def _records(label: str, run: dict[str, Any], options: list[str]) -> list[dict[str, Any]]:
    """The records of one run."""
    summary = run["summary"]
    config = run.get("config")
    hyper = {} if config is None else config.hyper
    name, shown, _ = MEASURES[summary["measure"]]
    about = {"run": label, "algorithm": summary["algorithm"]}
    about["hyper"] = " ".join(f"{key}={value}" for key, value in sorted(hyper.items()))
    about |= {one: _plain(None if config is None else getattr(config, one)) for one in options}
    found = []
    for part in ("final", "selected_on_val", "unseen"):
        scores = each_seed(summary[part]) if part in summary else []
        for seed, stages in zip(seed_numbers(run), scores, strict=False):
            record = about | {"seed": seed, "part": part, "measure": name}
            for stage in STAGES:
                for kind in ("mean", "weighted", "worst10"):
                    value = score_of(stages, stage, kind)
                    record[f"{stage}_{kind}"] = None if value is None else round(shown(value), 6)
            found.append(record | {count: summary[count] for count in COUNTS})
    return found


def _plain(value: Any) -> Any:
    """A value of an option as CSV and JSON have it."""
    return as_typed(value) if isinstance(value, tuple) else value
