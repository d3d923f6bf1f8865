"""Finished runs without running anything."""

import json
from dataclasses import replace
from pathlib import Path

from jaxfl.experiment import Config
from jaxfl.experiment.store.records import RunRecord

AMOUNTS = {"up": 904_000, "down": 1_810_000, "up_bytes": 1, "batches": 40_000, "seconds": 12.3}


def run(algorithm, *means, fine_tuned=None, measure="accuracy", **options):
    """A finished run with one mean score for each seed."""

    final = stages(sum(means) / len(means), means if len(means) > 1 else (), fine_tuned)
    summary = AMOUNTS | {"algorithm": algorithm, "measure": measure}
    summary |= {"final": final, "selected_on_val": final}
    config = Config(algorithm=algorithm, **options)
    lines = [{"round": 1, "loss": 1.0} | final]
    return RunRecord(summary, lines, config)


def unnamed(runs):
    """The runs as they are read from directories, where names may occur twice."""
    named = [replace(run, name=run.summary["algorithm"]) for run in runs]
    return {f"runs/{number}": run for number, run in enumerate(named)}


SCORES = {"mean": 0.5, "weighted": 0.5, "std": 0.1, "worst10": 0.2}


STAGES = {"deployed": SCORES, "fine_tuned": SCORES}


LINE = {
    "round": 1,
    "seconds": 1.0,
    "loss": 1.0,
    "up": 1,
    "up_bytes": 4,
    "down": 1,
    "batches": 1,
} | STAGES


SUMMARY = {"algorithm": "fedavg", "measure": "accuracy", "final": STAGES, "selected_on_val": STAGES}
SUMMARY |= {"seconds": 1.0, "compile_seconds": 1.0, "up": 1, "up_bytes": 4, "down": 1, "batches": 1}


def write_run(directory, summary=None, lines=None):
    """The files of a finished run; `summary` changes it, or is the text of the file."""
    Path(directory).mkdir(parents=True)
    text = summary if isinstance(summary, str) else json.dumps(SUMMARY | (summary or {}))
    Path(directory, "summary.json").write_text(text)
    Path(directory, "metrics.jsonl").write_text(json.dumps(LINE) + "\n" if lines is None else lines)


def stages(mean, seeds=(), fine_tuned=None):
    """The scores of an evaluation by stage, and those of each seed."""

    def scores(value):
        return dict.fromkeys(("mean", "weighted", "std", "worst10"), value)

    others = {} if fine_tuned is None else {"fine_tuned": scores(fine_tuned)}
    each = [{"deployed": scores(seed)} | others for seed in seeds]
    return {"deployed": scores(mean)} | others | ({"seeds": each} if each else {})


def evaluated_run(algorithm, *means, seeds=(), fine_tuned=None):
    """A finished run with a line for each mean."""
    lines = [
        {"round": number, "loss": 1.0} | stages(mean, seeds, fine_tuned)
        for number, mean in enumerate(means, 1)
    ]
    names = ("deployed", "fine_tuned", "seeds")
    final = {name: lines[-1][name] for name in names if name in lines[-1]}
    summary = {"algorithm": algorithm, "measure": "accuracy", "final": final}
    return RunRecord(summary, lines)
