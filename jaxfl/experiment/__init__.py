"""Whole runs: a config in, a directory of metrics, arrays and pictures out.

Where several processes run together, each calls these functions alike and the first one writes.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxfl import mesh
from jaxfl.errors import Diverged, check
from jaxfl.experiment import checkpoints, files, plots, report
from jaxfl.experiment.budget import equalise
from jaxfl.experiment.build import build, gather, malicious
from jaxfl.experiment.config import Config, Setting, load_config
from jaxfl.experiment.interrupt import interruptible
from jaxfl.experiment.metrics import History
from jaxfl.experiment.run import Program, compile_run, run, stops
from jaxfl.experiment.validate import check_config

__all__ = ["Config", "Setting", "compare", "execute", "load_config", "resume"]

Follow = Callable[
    [Config, dict[str, Any] | None], None
]  # (config, a line and its measure; at first None)


def silent(config: Config, line: dict[str, Any] | None) -> None:
    """Follows a run without a word."""


def execute(
    config: Config, out: Path, *, overwrite: bool = False, follow: Follow = silent
) -> dict[str, Any]:
    """One run from beginning to end; nothing is written before all is checked, loaded and compiled.

    Args:
      config: what to run.
      out: the directory to write, see docs/files.md.
      overwrite: replace a run that it holds.
      follow: called when the run begins and after each evaluation.

    Returns:
      The content of `summary.json`.

    Raises:
      InputError: the config is wrong, does not fit the data, or the directory holds a run.
      Diverged: a client diverged, and the config says `fail_on_divergence`.
      KeyboardInterrupt: Ctrl-C or SIGTERM, after the stretch of rounds that was under way, with a
        checkpoint.
    """
    check_free([out], overwrite)
    built = build(config)
    follow(config, None)
    program = compile_run(built)
    if mesh.is_main_process():
        files.begin(out, built, overwrite)
    return _record(program, out, follow)


def resume(
    directory: Path, *, devices: int | None = None, follow: Follow = silent
) -> dict[str, Any]:
    """Goes on with a run that was stopped, from its newest checkpoint, or from the beginning if it has none.

    On the same number of devices the whole is what it would have been without the stop, bit for
    bit.

    Args:
      directory: of the run.
      devices: how many of each process to use, if not as many as before.
      follow: as in `execute`.

    Returns:
      The content of `summary.json`.

    Raises:
      InputError: the directory holds no run, or a finished one, or its checkpoint is of another
        run.
    """
    config = to_resume(directory)
    built = build(config if devices is None else dataclasses.replace(config, devices=devices))
    follow(config, None)
    program = compile_run(built)
    return _record(program, directory, follow, (files.checkpoints(directory) or [None])[-1])


def to_resume(directory: Path) -> Config:
    """The config of a run that was stopped; an `InputError` if there is none."""
    below = [
        p.parent.name
        for p in sorted(directory.glob("*/config.json"))
        if not (p.parent / "summary.json").exists()
    ]
    hint = (
        f"resume {' or '.join(below)} in it"
        if below
        else "give the directory of a run that was stopped"
    )
    check((directory / "config.json").is_file(), f"{directory} holds no run to resume: {hint}")
    check(
        not (directory / "summary.json").exists(),
        f"the run in {directory} is finished: there is nothing to resume",
    )
    return load_config(directory / "config.json")


def check_free(directories: list[Path], overwrite: bool) -> None:
    """As `files.check_free`, in the process that will write."""
    if mesh.is_main_process():
        for directory in directories:
            files.check_free(directory, overwrite)


def _record(
    program: Program, out: Path, follow: Follow, checkpoint: Path | None = None
) -> dict[str, Any]:
    """Executes a compiled run, from a checkpoint if one is given, and writes its directory."""
    built, config = program.built, program.built.config
    sizes = mesh.fetch(built.data.federation.sizes)
    measure = "accuracy" if built.data.source.classes else "rmse"
    history = History(
        config,
        sizes.reshape(config.seeds, -1),
        malicious(config),
        measure,
        excess=built.excess,
        exposure=built.exposure,
    )
    best = checkpoints.no_best(program) if config.checkpoint_every else None
    if checkpoint is not None:
        program, best = checkpoints.read(checkpoint, program, best, history)
    if mesh.is_main_process():
        files.write(out / "metrics.jsonl", files.json_lines(history.lines))
    due = stops(config.rounds, config.checkpoint_every) if config.checkpoint_every else []
    with interruptible() as asked:
        for record in run(program):
            line = history.add(record)
            if line is not None:
                if mesh.is_main_process():
                    files.append(out, line)
                follow(config, line | {"measure": measure})
                best = best and checkpoints.better(best, program, record)
            check_convergence(config, history, record.round)
            stopped = record.round < config.rounds and mesh.any_process(asked.is_set())
            if record.round in due or stopped:
                checkpoints.write(out, record, history, best)
            if stopped:
                raise KeyboardInterrupt(f"after round {record.round}: jaxfl resume {out} goes on")
    if mesh.is_main_process():
        files.finish(out, built, history, program.seconds)
    return history.summary(program.seconds)


def check_convergence(config: Config, history: History, number: int) -> None:
    """Raises `Diverged` if a client was left out by round `number` and the config says to stop then."""
    if config.fail_on_divergence and history.diverged:
        gone = ", ".join(map(str, sorted(history.diverged)))
        raise Diverged(
            f"an update of client {gone} was not finite, by round {number}: lower --lr, or leave out "
            "--fail-on-divergence to go on without such updates"
        )


def compare(
    configs: list[Config],
    out: Path,
    *,
    overwrite: bool = False,
    equal_budget: bool = False,
    follow: Follow = silent,
) -> dict[str, dict[str, Any]]:
    """Runs of several algorithms in `out/ALGORITHM`, with a table and a picture of them all in `out`.

    Args:
      configs: of one setting; they share its clients.
      out: the directory to write, see docs/files.md.
      overwrite: replace a comparison that it holds.
      equal_budget: every algorithm takes as many gradients, see `budget.equalise`.
      follow: as in `execute`.

    Returns:
      algorithm -> the content of its `summary.json`.

    Raises:
      InputError: as `execute`, for the first config that is wrong, before anything is run.
    """
    for config in configs:
        check_config(config)
    check(bool(configs), "nothing to compare: give a config for each algorithm")
    check(
        len({config.algorithm for config in configs}) == len(configs),
        "an algorithm is named twice: name each once",
    )
    directories = [out / config.algorithm for config in configs]
    check_free([out, *directories], overwrite)
    data = gather(configs[0])
    every = [
        build(config, data) for config in (equalise(configs, data) if equal_budget else configs)
    ]
    summaries = {}
    for built, directory in zip(every, directories, strict=True):
        follow(built.config, None)
        program = compile_run(built)
        if built is every[0] and mesh.is_main_process():
            files.create(out, (*files.COMPARISON_FILES, files.GRAPHS), overwrite)
        if mesh.is_main_process():
            files.begin(directory, built, overwrite)
        summaries[built.config.algorithm] = _record(program, directory, follow)
    if not mesh.is_main_process():
        return summaries
    mixed = {directory.name: files.last_graph(directory) for directory in directories}
    mixed = {label: last for label, last in mixed.items() if last is not None}
    if mixed:
        files.write(out / files.GRAPHS, plots.graphs(mixed, data.source, data.parts[0]))
    return summarise(report.load(directories), out)


def summarise(runs: dict[str, dict[str, Any]], out: Path) -> dict[str, dict[str, Any]]:
    """Writes the comparison of finished runs, as `report.load` returns them, into `out`; returns their summaries."""
    summaries = {label: found["summary"] for label, found in runs.items()}
    files.write_json(out / "comparison.json", report.comparison(summaries))
    files.write(out / "comparison.md", report.markdown(summaries))
    files.write(out / "comparison.png", plots.comparison(runs))
    return summaries
