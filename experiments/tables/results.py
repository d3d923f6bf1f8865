"""Results of runs, one file each in `experiments/results`: small, and kept under version control.

A file is named by the digest of everything that decides about the numbers. Tables that need the
same run share its file.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.options import options_of, takes_fractions
from jaxfl.experiment import Config, execute, resume
from jaxfl.experiment.config.effects import idle
from jaxfl.experiment.config.resolve import LOCAL_STEPS
from jaxfl.experiment.session.seeds import Seeds
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.read_records import read_lines, read_summary
from jaxfl.experiment.store.records import Summary
from jaxfl.experiment.tables.scores import score_of
from jaxfl.simulation import scoring
from jaxfl.simulation.scoring import TableStage
from jaxfl.simulation.statistics import each_seed

FOLDER = Path(__file__).parent.parent / "results"
WORK = Path(__file__).parents[2] / "runs" / "tables"
# Options that decide about no number.
ASIDE = (
    *("label", "data_dir", "devices", "chunk", "checkpoint_every"),
    *("keep_checkpoints", "keep_models", "keep_weights", "fail_on_divergence", "plugin"),
)
# What is kept of these even where it is the default.
ALWAYS = ("algorithm", "seed")
# Mixing weights of as many clients at most are kept, and those of clients in nodes.
SMALL = 20
# What a result takes from the summary of its run.
TOLD = (
    *("measure", "seconds", "compile_seconds", "up", "down", "batches"),
    *("diverged", "versions"),
)
# What the scores of a run are taken of, by its `score_after`.
STAGES: dict[str, tuple[TableStage, ...]] = {
    "none": ("deployed",),
    "trained": ("deployed", "trained", "both"),
    "fine_tuned": ("deployed", "fine_tuned"),
}
Result = dict[str, Any]


def complete(config: Config) -> dict[str, Any]:
    """The options of a run that decide about its numbers, with all hyper-parameters, as JSON.

    Options without effect, such as the ratio of no attack, are left out.
    """
    left_out = {*ASIDE, *idle(config)}
    if config.local_epochs is None and config.local_steps is None:
        config = dataclasses.replace(config, local_steps=LOCAL_STEPS)
    parameters = options_of(ALGORITHMS[config.algorithm])
    every = {k: v for k, v in dataclasses.asdict(config).items() if k not in left_out}
    hyper = {name: one.default for name, one in parameters.items()} | config.hyper
    every["hyper"] = {name: _number(value, parameters[name].hint) for name, value in hyper.items()}
    return json.loads(json.dumps(every))


def essence(config: Config) -> dict[str, Any]:
    """What of `complete` is not a default: runs that compute the same have the same essence.

    An option that jaxfl has since got, with what was done before as its default, changes nothing.
    """
    defaults = {one.name: one.default for one in dataclasses.fields(config)}
    parameters = options_of(ALGORITHMS[config.algorithm])
    every = complete(config)
    options = {k: v for k, v in every.items() if k in ALWAYS or v != _plain(defaults.get(k))}
    options["hyper"] = {k: v for k, v in every["hyper"].items() if v != parameters[k].default}
    return options


def _plain(value: Any) -> Any:
    """A default as JSON has it: a tuple is a list."""
    return list(value) if isinstance(value, tuple) else value


def _is_of(result: Result, config: Config) -> bool:
    """Whether a result is that of a run: no default has changed since then."""
    was, now = result["config"], complete(config)
    same = all(was[name] == now[name] for name in was.keys() & now.keys() - {"hyper"})
    hyper = was["hyper"].keys() & now["hyper"].keys()
    return same and all(was["hyper"][name] == now["hyper"][name] for name in hyper)


def _number(value: Any, hint: Any) -> Any:
    """1 as 1.0 where a hyper-parameter takes fractions: the two are the same run."""
    return float(value) if type(value) is int and takes_fractions(hint) else value


def file_of(config: Config, folder: Path = FOLDER) -> Path:
    """The file of a run's result."""
    return _file(essence(config), folder)


def _file(essence: dict[str, Any], folder: Path) -> Path:
    text = json.dumps(essence, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return folder / essence.get("dataset", "digits") / f"{essence['algorithm']}-{digest}.json"


def read(config: Config, folder: Path = FOLDER) -> Result | None:
    """The result of a run, None if there is none."""
    return _read(file_of(config, folder), config)


def read_seeds(config: Config, seeds: Iterable[int], folder: Path = FOLDER) -> dict[int, Result]:
    """Seed -> the result of a run with that seed, for those that are there."""
    options = essence(config)
    by_seed = {}
    for seed in seeds:
        file = _file(options | {"seed": seed}, folder)
        # The config of a seed is checked, which takes longer than to look for its file.
        if file.exists():
            by_seed[seed] = _read(file, dataclasses.replace(config, seed=seed))
    return {seed: result for seed, result in by_seed.items() if result is not None}


def _read(file: Path, config: Config) -> Result | None:
    if not file.exists():
        return None
    result = json.loads(file.read_text())
    return result if _is_of(result, config) else None


def singles(config: Config) -> list[Config]:
    """The runs of one seed each that a run of several seeds stands for; itself of one seed."""
    numbers = Seeds(config.seed, config.seeds).numbers
    return [dataclasses.replace(config, seed=seed, seeds=1) for seed in numbers]


def claim(config: Config, work: Path = WORK) -> AbstractContextManager[bool]:
    """Within, no other process runs the cell, unless it has begun before: this yields False then.

    Args:
      config: what the cell runs.
      work: as in `compute`.
    """
    return locks.claim(locks.beside(work / file_of(config).stem))


def compute(
    config: Config,
    folder: Path = FOLDER,
    work: Path = WORK,
    rule: str = "selected_on_val",
    fingerprint: Callable[[Config], dict[str, list[float]]] | None = None,
    again: bool = False,
) -> list[Result]:
    """Runs a cell, or goes on with it after a stop, and writes the result of each of its seeds.

    A run that was stopped is begun anew if the code now gives another fingerprint, so that no
    result has rounds of two codes.

    Args:
      config: what to run; with several seeds they are one program.
      folder: of the results.
      work: where the run itself is written.
      rule: how the scores of single clients are taken, see `jaxfl.simulation.scoring`.
      fingerprint: what tells later whether the result is stale, see `staleness`.
      again: begin anew, whatever a stopped run has left.

    Returns:
      A result for each seed.
    """
    out = work / file_of(config).stem
    if again:
        files.create(out, files.EVERYTHING, overwrite=True)
    mark = out / "fingerprint.json"
    current = None if fingerprint is None else [fingerprint(single) for single in singles(config)]
    began = json.loads(mark.read_text()) if mark.exists() else None
    goes_on = (
        (out / "config.json").exists()
        and not (out / "summary.json").exists()
        and (current is None or current == began)
    )
    if current is not None and current != began:
        # An earlier run is removed first: with the new mark it would count as one of this code.
        files.create(out, files.EVERYTHING, overwrite=True)
        files.write_json(mark, current)
    # A checkpoint every tenth of the run: a stop costs no more than that.
    every = max(config.rounds // 10, 1)
    settings = dataclasses.replace(
        config, checkpoint_every=every, keep_checkpoints=1, keep_models="none"
    )
    if current is not None and current == began and (out / "summary.json").exists():
        # It was stopped between the end of the run and its result.
        summary = read_summary(out / "summary.json")
    else:
        summary = resume(out) if goes_on else execute(settings, out, overwrite=True)
    results = _results(config, summary, out, rule)
    if current is not None:
        for result, one in zip(results, current, strict=True):
            result["fingerprint"] = one
    pairs = zip(singles(config), results, strict=True)
    return [write(single, result, folder) for single, result in pairs]


def write(config: Config, result: Result, folder: Path = FOLDER) -> Result:
    """Writes the result of a run with its config, and returns what is written."""
    file = file_of(config, folder)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"config": complete(config)} | result
    files.write_file(file, json.dumps(content) + "\n")
    return content


def score(result: Result, rule: str, stage: str) -> float | None:
    """The score of a result by the rule of its table."""
    return result["scores"][rule].get(stage)


def _results(config: Config, summary: Summary, out: Path, rule: str) -> list[Result]:
    """The results of the seeds of a run that has ended."""
    seeds = Seeds(config.seed, config.seeds)
    with np.load(out / "clients.npz", allow_pickle=False) as arrays:
        shared = {name: arrays[name] for name in ("round", "malicious", "unseen")}
        each = seeds.with_axis({name: arrays[name] for name in arrays if name not in shared})
    weights = {}
    ids = None  # [S, M], of the clients of the last round, unless all take part
    small = config.partition == "nodes" or (config.clients or SMALL + 1) <= SMALL
    if (out / "graph.npz").exists() and small:
        with np.load(out / "graph.npz", allow_pickle=False) as arrays:
            named = {name: arrays[name] for name in arrays if name.startswith("weights")}
            weights = {name: value[:, -1] for name, value in seeds.with_axis(named).items()}
            ids = None if config.participation == 1 else seeds.with_axis(arrays["ids"])[:, -1]
    lines = read_lines(out / "metrics.jsonl")
    return [
        _scores(config, {name: array[place] for name, array in each.items()} | shared, rule)
        | {
            "seeds": seeds.numbers,  # of the one program, which `seconds` are of
            "rounds": [line["round"] for line in lines],
            "curves": {
                stage: [
                    _json_numbers(score_of(each_seed(line)[place], stage, "mean")) for line in lines
                ]
                for stage in STAGES[config.score_after]
                if stage != "both"
            },
            "weights": {name: _json_numbers(array[place]) for name, array in weights.items()},
            "ids": [] if ids is None else ids[place].tolist(),
            **{name: summary[name] for name in TOLD},
            "commit": _commit(),
            "date": date.today().isoformat(),
        }
        for place in range(seeds.count)
    ]


def _scores(config: Config, clients: dict[str, np.ndarray], rule: str) -> Result:
    """The scores of one seed by all rules, and those of its clients by one.

    Args:
      config: of the run.
      clients: the arrays of `clients.npz` of one seed.
      rule: of the scores of single clients.
    """
    stages = STAGES[config.score_after]
    return {
        "scores": {
            name: {
                stage: _json_numbers(scoring.score(clients, name, stage))
                for stage in stages
                if stage != "both" or name == "selected_on_val"
            }
            for name in scoring.RULES
        },
        "clients": {
            stage: _json_numbers(scoring.by_client(clients, rule, stage))
            for stage in stages
            if stage != "both" or rule == "selected_on_val"
        },
    }


def _json_numbers(values: Any) -> Any:
    """Numbers to four digits, NaN as None, ready for JSON."""
    if values is None:
        return None
    array = np.asarray(values, float)
    if array.ndim:
        return [_json_numbers(value) for value in array]
    return round(float(array), 4) if np.isfinite(array) else None


def _commit() -> str:
    """The commit of the code, "" if it is not known."""
    folder = Path(__file__).parents[2] / ".git"
    if folder.is_file():  # of a work tree beside the repository: "gitdir: FOLDER"
        folder = Path(folder.read_text().removeprefix("gitdir:").strip())
    if not (folder / "HEAD").exists():
        return ""
    head = (folder / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head[:10]
    name = head.removeprefix("ref: ")
    common = folder
    if (folder / "commondir").exists():
        common = folder / (folder / "commondir").read_text().strip()
    if (common / name).exists():
        return (common / name).read_text()[:10]
    refs = common / "packed-refs"
    lines = refs.read_text().splitlines() if refs.exists() else []
    return next((line[:10] for line in lines if line.endswith(f" {name}")), "")
