"""A whole run: a config in, a directory of metrics, arrays and pictures out.

Where several processes run together, each calls these functions alike and the first one writes.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxfl.core.errors import Diverged, InputError, check, warn
from jaxfl.data.improbable import without_validation_score
from jaxfl.experiment.config import Config, load_config, resolve
from jaxfl.experiment.config.paths import with_plugin
from jaxfl.experiment.session import checkpoints
from jaxfl.experiment.session.build import Built, build
from jaxfl.experiment.session.clients import gather
from jaxfl.experiment.session.constant import evaluate_constant
from jaxfl.experiment.session.directory import begin, finish, reopen, vanished_files
from jaxfl.experiment.session.history import History
from jaxfl.experiment.session.interrupt import answer, hint, interruptible, interruption
from jaxfl.experiment.session.models import (
    better,
    drop_snapshots,
    models_of,
    no_best,
    tell_size,
    write_snapshot,
)
from jaxfl.experiment.session.program import Program, evaluated_ids, records, stops
from jaxfl.experiment.session.stored_program import make_program
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.read_records import check_version, read_summary
from jaxfl.experiment.store.records import Line, LineOfRun, Summary
from jaxfl.simulation import processes
from jaxfl.simulation.metrics import metric_of

# The files with which the directory of a run begins and ends
ENDS = ("config.json", "summary.json")
# (config, a line of metrics.jsonl and its measure; at first None)
Follow = Callable[[Config, LineOfRun | None], None]


def silent(config: Config, line: LineOfRun | None) -> None:
    """Follows a run without a word."""


def execute(
    config: Config, out: Path, *, overwrite: bool = False, follow: Follow = silent
) -> Summary:
    """One run from beginning to end; nothing is written before all is checked, loaded and compiled.

    Args:
      config: what to run.
      out: the directory to write, see docs/files.md.
      overwrite: replace a run that it holds.
      follow: called when the run begins and after each evaluation.

    Returns:
      The content of `summary.json`.

    Raises:
      InputError: the config does not fit the data, the directory holds a run, another process
        writes into it, or files of the run vanished while it was under way.
      Diverged: a client diverged, and the config says `fail_on_divergence`.
      KeyboardInterrupt: Ctrl-C or SIGTERM (`Terminated`), after the stretch of rounds that was
        under way: with a checkpoint, or with all files if it was the last one.

    Example:
      >>> config = Config(algorithm="fedavg", clients=5, rounds=1, local_steps=5)
      >>> summary = execute(config, Path("runs/mine"))
      >>> sorted(summary["final"]["deployed"])
      ['mean', 'std', 'weighted', 'worst10']
    """
    locks.check_free([out], overwrite)
    built = _build(config)
    follow(built.config, None)
    program = make_program(built, out)
    digests = built.digests  # which all processes compute together
    with locks.locked(out):
        if processes.is_main_process():
            begin(out, built, digests, overwrite)
        with hint(out, *ENDS):
            return record_run(program, out, follow).summary(program.seconds)


def resume(
    directory: Path,
    *,
    devices: int | None = None,
    rounds: int | None = None,
    plugin: Sequence[str] | None = None,
    follow: Follow = silent,
) -> Summary:
    """Goes on with a run that was stopped, from its newest checkpoint, or from round 0 without one.

    On the same number of devices the whole is what it would have been without the stop, bit for
    bit. A damaged checkpoint is skipped with a warning in favour of the one before.

    With `rounds`, a finished run goes on too, if it has a checkpoint of its last round. It has one
    evaluation more than a run of so many rounds from the beginning if it had ended between two.

    Args:
      directory: of the run.
      devices: how many of each process to use, if not as many as before.
      rounds: how many rounds the run shall have in all, if not as many as before.
      plugin: the files that `--plugin` has run now, if the command line goes on.
      follow: as in `execute`.

    Returns:
      The content of `summary.json`.

    Raises:
      InputError: the directory holds no run or a finished one, another process writes into it, the
        options have changed since the checkpoint (`RESUMABLE` marks those that may), the data or a
        file that the options name have changed, all checkpoints are damaged, or files of the run
        vanished.

    Example:
      >>> summary = resume(Path("runs/digits"), rounds=2)  # it had 1 round and its checkpoint
      >>> jaxfl.load("runs/digits").metrics["round"].tolist()
      [1, 2]
    """
    to_resume(directory, rounds)
    with locks.locked(directory):
        return go_on(directory, devices=devices, rounds=rounds, plugin=plugin, follow=follow)


def go_on(
    directory: Path,
    *,
    devices: int | None = None,
    rounds: int | None = None,
    plugin: Sequence[str] | None = None,
    follow: Follow = silent,
) -> Summary:
    """As `resume`, in a directory that this process has locked."""
    with hint(directory, *ENDS, rounds=rounds):
        config = to_resume(directory, rounds)  # another process may have finished it
        config = with_plugin(config, plugin)
        built = _build(config if devices is None else replace(config, devices=devices))
        newest = checkpoints.find_checkpoint(directory, built.config, built.digests)
        follow(built.config, None)
        program = make_program(built, directory, int(newest.name) if newest else 0)
        if rounds is not None and processes.is_main_process():
            reopen(directory, rounds)
    with hint(directory, *ENDS):
        return record_run(program, directory, follow, newest).summary(program.seconds)


def to_resume(directory: Path, rounds: int | None = None) -> Config:
    """The config of a run that can go on.

    Args:
      directory: of the run.
      rounds: how many rounds it shall have; with more than before, a finished run goes on too.

    Raises:
      InputError: there is no such run.
    """
    configs = directory.glob("*/config.json") if os.path.isdir(directory) else ()
    below = [
        path.parent.name for path in sorted(configs) if not (path.parent / "summary.json").exists()
    ]
    hint = (
        f"resume {' or '.join(below)} in it"
        if below
        else "give the directory of a run that was stopped"
    )
    check(os.path.isfile(directory / "config.json"), f"{directory} holds no run to resume: {hint}")
    config = load_config(directory / "config.json")
    check_version(directory / "metrics.jsonl")
    if (directory / "summary.json").exists():
        stopped = read_summary(directory / "summary.json").get("stopped")
        check(
            stopped is None,
            f"the run in {directory} is finished: --stop-after {config.stop_after} ended it after "
            f"round {stopped and stopped['round']}, whatever its --rounds; run anew with a larger "
            "--stop-after",
        )
        if rounds is None:
            raise InputError(
                f"the run in {directory} is finished: give --rounds, more than {config.rounds}, "
                "and it goes on"
            )
        check(
            rounds > config.rounds,
            f"--rounds is {rounds}, and the run in {directory} has {config.rounds}: give more",
        )
        newest = files.checkpoints(directory)[-1:]
        check(
            bool(newest) and int(newest[0].name) == config.rounds,
            f"{directory} holds no checkpoint of its last round: only a run with "
            "--checkpoint-every can go on after its end",
        )
    return config if rounds is None else replace(config, rounds=rounds)


def record_run(
    program: Program, out: Path, follow: Follow, checkpoint: Path | None = None
) -> History:
    """Executes a compiled run, from a checkpoint if one is given, and writes its directory."""
    built, config = program.built, program.built.config
    history = History(built, out / files.ROUNDS)
    best = no_best(program) if config.keep_models else None
    if best and processes.is_main_process():
        tell_size(best, out, config)
    if checkpoint is not None:
        program, best = checkpoints.read_checkpoint(checkpoint, program, best, history)
    if processes.is_main_process():
        history.archive.drop_later()
        drop_snapshots(out, program.done)
        files.write_file(out / "metrics.jsonl", files.json_lines(history.lines))
    due = stops(config.rounds, config.checkpoint_every) if config.checkpoint_every else []
    paths = []
    state = program.state
    with interruptible() as request:
        # A checkpoint may be of the end of a run that has ended by --stop-after.
        for record in () if history.stopped else records(program, answer(request)):
            state = record.state
            line = history.add(record)
            if line is not None:
                if processes.is_main_process():
                    files.append_lines(out / "metrics.jsonl", [line])
                follow(config, _line_of_run(line, history))
                best = best and better(best, program, record)
            write_snapshot(program, state, record.round, out)
            _check_convergence(config, history, record.round)
            is_last = record.round == config.rounds or history.stopped is not None
            must_stop = not is_last and processes.any_process(request.is_set())
            if record.round in due or must_stop or (is_last and due):
                program.before_checkpoint(record.state)
                paths.append(checkpoints.write_checkpoint(out, record, history, best, built))
            if must_stop:
                message = f"after round {record.round}: jaxfl resume {out} goes on"
                raise interruption(request.number, message)
            if is_last:
                break
        evaluated = evaluated_ids(built, history.ids[-1][:, -1])
        history.add_constant(evaluate_constant(built, evaluated), evaluated)
        models = models_of(program, state, best) if best else {}
        if processes.is_main_process():
            vanished = vanished_files(out, history, paths)
            finish(out, built, history, program.seconds, models)
            if not config.checkpoint_every:
                # Only a checkpoint of the last round could read them again.
                history.archive.remove()
                if built.data.stored is not None:
                    files.remove(out / files.STATES)
            _tell(out, built, history, vanished, evaluated)
        if processes.any_process(request.is_set()):
            raise interruption(request.number, f"the run in {out} is finished")
    return history


def _line_of_run(line: Line, history: History) -> LineOfRun:
    """The newest line of a run, as it is followed."""
    shown: LineOfRun = {**line, "measure": history.measure}
    if history.stopped is not None:
        shown["stopped"] = history.stopped
    return shown


def _build(config: Config) -> Built:
    resolved = resolve(config)
    return build(resolved, gather(resolved))


def _tell(
    out: Path, built: Built, history: History, vanished: list[str], evaluated: np.ndarray
) -> None:
    """Says what the user of a finished run must know."""
    if history.lines and history.lines[-1]["deployed"]["mean"] is None:
        warn(
            f"no client of the run in {out} has a score: every benign client that was evaluated "
            f"lacks test examples{_undefined(built)}; choose another --test or --own, or --eval-on "
            "all"
        )
    config = built.config
    if config.stop_after is not None and np.isnan(history.validation).all():
        warn(
            f"no client of the run in {out} has a validation score{_undefined(built)}: "
            f"--stop-after {config.stop_after} could not end it"
        )
    _warn_of_undefined(history, evaluated)
    if vanished:
        raise InputError(
            f"{', '.join(vanished)} in {out} vanished or changed during the run: the scores and "
            "the summary are complete, run again for the rest"
        )


def _undefined(built: Built) -> str:
    """The other reason why clients have no score, of metrics that are named."""
    if not built.config.metric:
        return ""
    return f", or has examples on which {metric_of(built.metrics[0]).title} is not defined"


def _warn_of_undefined(history: History, evaluated: np.ndarray) -> None:
    """Warns of clients with validation examples, of which the first metric makes no score.

    Args:
      history: of the run.
      evaluated: ids of the clients that were evaluated last [S, E].
    """
    clients = history.without_validation_score(evaluated)
    message = without_validation_score(metric_of(history.measure).title, clients, history.names)
    if message:
        warn(message)


def _check_convergence(config: Config, history: History, number: int) -> None:
    """Raises `Diverged` if a client was left out by round `number` and the config says to stop."""
    if config.fail_on_divergence and history.diverged:
        ids = ", ".join(
            history.names[one] if history.names else str(one) for one in sorted(history.diverged)
        )
        raise Diverged(
            f"an update of client {ids} was not finite, by round {number}: lower --lr, or leave "
            "out --fail-on-divergence to go on without such updates"
        )
