"""A whole run: a config in, a directory of metrics, arrays and pictures out.

Where several processes run together, each calls these functions alike and the first one writes.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxfl import mesh
from jaxfl.errors import Diverged, check
from jaxfl.experiment.config import Config, load_config, resolve
from jaxfl.experiment.session import checkpoints, output
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.clients import gather
from jaxfl.experiment.session.history import History
from jaxfl.experiment.session.interrupt import interruptible
from jaxfl.experiment.session.program import Program, compile_run, stops
from jaxfl.experiment.session.records import records
from jaxfl.experiment.store import files

# (config, a line of metrics.jsonl and its measure; at first None)
Follow = Callable[[Config, dict[str, Any] | None], None]


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
      InputError: the config does not fit the data, or the directory holds a run.
      Diverged: a client diverged, and the config says `fail_on_divergence`.
      KeyboardInterrupt: Ctrl-C or SIGTERM, after the stretch of rounds that was under way, with a
        checkpoint.
    """
    files.check_free([out], overwrite)
    program = _compile(config, follow)
    if mesh.is_main_process():
        output.begin(out, program.built, overwrite)
    return record_run(program, out, follow).summary(program.seconds)


def resume(
    directory: Path, *, devices: int | None = None, follow: Follow = silent
) -> dict[str, Any]:
    """Goes on with a run that was stopped, from its newest checkpoint, or from round 0 without one.

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
    program = _compile(config if devices is None else replace(config, devices=devices), follow)
    newest = (files.checkpoints(directory) or [None])[-1]
    return record_run(program, directory, follow, newest).summary(program.seconds)


def to_resume(directory: Path) -> Config:
    """The config of a run that was stopped.

    Raises:
      InputError: there is no such run.
    """
    below = [
        path.parent.name
        for path in sorted(directory.glob("*/config.json"))
        if not (path.parent / "summary.json").exists()
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


def record_run(
    program: Program, out: Path, follow: Follow, checkpoint: Path | None = None
) -> History:
    """Executes a compiled run, from a checkpoint if one is given, and writes its directory."""
    built, config = program.built, program.built.config
    history = History(built)
    best = checkpoints.no_best(program) if config.checkpoint_every else None
    if checkpoint is not None:
        program, best = checkpoints.read_checkpoint(checkpoint, program, best, history)
    if mesh.is_main_process():
        files.write_file(out / "metrics.jsonl", files.json_lines(history.lines))
    due = stops(config.rounds, config.checkpoint_every) if config.checkpoint_every else []
    with interruptible() as asked:
        for record in records(program):
            line = history.add(record)
            if line is not None:
                if mesh.is_main_process():
                    files.append_line(out, line)
                follow(config, line | {"measure": history.measure})
                best = best and checkpoints.better(best, program, record)
            _check_convergence(config, history, record.round)
            stopped = record.round < config.rounds and mesh.any_process(asked.is_set())
            if record.round in due or stopped:
                checkpoints.write_checkpoint(out, record, history, best)
            if stopped:
                raise KeyboardInterrupt(f"after round {record.round}: jaxfl resume {out} goes on")
    if mesh.is_main_process():
        output.finish(out, built, history, program.seconds)
    return history


def _compile(config: Config, follow: Follow) -> Program:
    resolved = resolve(config)
    built = build(resolved, gather(resolved))
    follow(config, None)
    return compile_run(built)


def _check_convergence(config: Config, history: History, number: int) -> None:
    """Raises `Diverged` if a client was left out by round `number` and the config says to stop."""
    if config.fail_on_divergence and history.diverged:
        gone = ", ".join(map(str, sorted(history.diverged)))
        raise Diverged(
            f"an update of client {gone} was not finite, by round {number}: lower --lr, or leave "
            "out --fail-on-divergence to go on without such updates"
        )
