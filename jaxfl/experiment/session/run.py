"""A whole run: a config in, a directory of metrics, arrays and pictures out.

Where several processes run together, each calls these functions alike and the first one writes.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from jaxfl.core.errors import Diverged, InputError, check, warn
from jaxfl.data.data_warnings import without_validation_score
from jaxfl.experiment.config import Config, load_config, resolve
from jaxfl.experiment.config.paths import MODELS, with_plugin
from jaxfl.experiment.session import checkpoints, models, run_directory
from jaxfl.experiment.session.agreement import check_agreement
from jaxfl.experiment.session.build import Built, build
from jaxfl.experiment.session.constant_scores import evaluate_constant
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.session.history import History
from jaxfl.experiment.session.interrupt import answer, hint, interruptible, interruption
from jaxfl.experiment.session.make_program import make_program
from jaxfl.experiment.session.run_directory import Draw
from jaxfl.experiment.session.run_pictures import draw_run
from jaxfl.experiment.session.run_program import Program, records, stops
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.read_records import read_summary
from jaxfl.experiment.store.records import LineOfRun, Summary
from jaxfl.simulation import processes
from jaxfl.simulation.metrics import metric_of

# The files with which the directory of a run begins and ends
ENDS = ("config.json", "summary.json")
# (config, a line of metrics.jsonl and its measure; at first None)
Follow = Callable[[Config, LineOfRun | None], None]


def silent(config: Config, line: LineOfRun | None) -> None:
    """Follows a run without a word."""


def execute(
    config: Config,
    out: Path,
    *,
    overwrite: bool = False,
    follow: Follow = silent,
    draw: Draw = draw_run,
) -> Summary:
    """One run from beginning to end; nothing is written before all is checked, loaded and compiled.

    Args:
      config: what to run.
      out: the directory to write, see docs/files.md.
      overwrite: replace a run that it holds.
      follow: called when the run begins and after each evaluation.
      draw: makes the pictures, when the run begins and when it is finished.

    Returns:
      The content of `summary.json`.

    Raises:
      InputError: the config does not fit the data, the directory holds a run, another process
        writes into it, or files of the run vanished while it was under way.
      Diverged: a client diverged, and the config says `fail_on_divergence`.
      KeyboardInterrupt: Ctrl-C or SIGTERM (`Terminated`), after the segment of rounds that was
        under way: with a checkpoint, or with all files if it was the last one.

    Example:
      >>> config = Config(algorithm="fedavg", clients=5, rounds=1, local_steps=5)
      >>> summary = execute(config, Path("runs/mine"))
      >>> sorted(summary["final"]["deployed"])
      ['mean', 'std', 'weighted', 'worst10']
    """
    locks.check_free([out], overwrite)
    config, built = _build(config)
    follow(config, None)
    program = make_program(built, out)
    digests = built.digests  # which all processes compute together
    with locks.locked(out):
        if processes.is_main_process():
            run_directory.begin(out, config, built, digests, overwrite, draw)
        with hint(out, *ENDS):
            return record_run(config, built, program, out, follow, draw)


def resume(
    directory: Path,
    *,
    devices: int | None = None,
    rounds: int | None = None,
    plugin: Sequence[str] | None = None,
    follow: Follow = silent,
    draw: Draw = draw_run,
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
      draw: as in `execute`.

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
        return go_on(
            directory, devices=devices, rounds=rounds, plugin=plugin, follow=follow, draw=draw
        )


def go_on(
    directory: Path,
    *,
    devices: int | None = None,
    rounds: int | None = None,
    plugin: Sequence[str] | None = None,
    follow: Follow = silent,
    draw: Draw = draw_run,
) -> Summary:
    """As `resume`, in a directory that this process has locked."""
    with hint(directory, *ENDS, rounds=rounds):
        config = to_resume(directory, rounds)  # another process may have finished it
        config = with_plugin(config, plugin)
        config, built = _build(config if devices is None else replace(config, devices=devices))
        newest = checkpoints.find_checkpoint(directory, config, built.digests)
        follow(config, None)
        program = make_program(built, directory, int(newest.name) if newest else 0)
        if rounds is not None and processes.is_main_process():
            run_directory.reopen(directory, rounds)
    with hint(directory, *ENDS):
        return record_run(config, built, program, directory, follow, draw, newest)


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
            "--keep checkpoints=can go on after its end",
        )
    return config if rounds is None else replace(config, rounds=rounds)


def record_run(
    config: Config,
    built: Built,
    program: Program,
    out: Path,
    follow: Follow,
    draw: Draw,
    checkpoint: Path | None = None,
) -> Summary:
    """Executes a compiled run and writes its directory.

    Args:
      config: of the run.
      built: its parts.
      program: they, compiled.
      out: the directory, which `begin` has opened.
      follow: as in `execute`.
      draw: as in `execute`.
      checkpoint: from which the run goes on.
    """
    run, keeping = built.options.run, built.options.keeping
    is_main = processes.is_main_process()
    history = History(built, out / files.ROUNDS)
    best = models.no_best(program) if keeping.keep_models != "none" else None
    if best and is_main:
        models.tell_size(best, out, keeping.snapshot_every, run.rounds)
    if checkpoint is not None:
        padded = built.data.stored is None
        program, best = checkpoints.read_checkpoint(checkpoint, program, best, history, padded)
    if is_main:
        history.archive.drop_later()
        models.drop_snapshots(out, program.done)
        files.write_file(out / "metrics.jsonl", files.json_lines(history.lines))
    due = stops(run.rounds, keeping.checkpoint_every) if keeping.checkpoint_every else []
    paths = []
    state = program.state
    with interruptible() as request:
        # A checkpoint may be of the end of a run that has ended by --stop-after.
        for record in () if history.stopped else records(program, answer(request)):
            state, number = record.state, record.round
            line = history.add(record)
            if line is not None:
                if is_main:
                    files.append_lines(out / "metrics.jsonl", [line])
                shown: LineOfRun = {**line, "measure": history.measure}
                if history.stopped is not None:
                    shown["stopped"] = history.stopped
                follow(config, shown)
                best = best and models.better(best, program, record)
            if keeping.snapshot_every and number % keeping.snapshot_every == 0:
                models.write_snapshot(program.deploy(state), number, out)
            if run.fail_on_divergence:
                _check_convergence(history, number)
            is_last = number == run.rounds or history.stopped is not None
            must_stop = not is_last and processes.any_process(request.is_set())
            if number in due or must_stop or (is_last and due):
                program.before_checkpoint(state)
                paths.append(
                    checkpoints.write_checkpoint(out, config, record, history, best, built)
                )
            if must_stop:
                message = f"after round {number}: jaxfl resume {out} goes on"
                raise interruption(request.number, message)
            if is_last:
                break
        evaluated = program.evaluated(history.ids[-1][:, -1])
        history.add_constant(evaluate_constant(built, evaluated), evaluated)
        if best:
            by_name = {"last": program.deploy(state), "best": best.models}
            models.write_models(by_name, out / MODELS)
        summary = history.summary(program.seconds)
        if is_main:
            vanished = run_directory.vanished_files(out, history, keeping, paths)
            run_directory.write_arrays(out, history)
            draw(out, config, built, history.lines)
            files.write_json(out / "summary.json", summary)
            if not keeping.checkpoint_every:
                # Only a checkpoint of the last round could read them again.
                history.archive.remove()
                if built.data.stored is not None:
                    files.remove(out / files.STATES)
            _tell(out, built, history, vanished, evaluated)
        if processes.any_process(request.is_set()):
            raise interruption(request.number, f"the run in {out} is finished")
    return summary


def _build(config: Config) -> tuple[Config, Built]:
    """The complete config and the parts of a run."""
    resolved = resolve(config)
    check_agreement([resolved])
    return resolved.config, build(resolved, gather(resolved))


def _tell(
    out: Path, built: Built, history: History, vanished: list[str], evaluated: np.ndarray
) -> None:
    """Says what the user of a finished run must know."""
    if history.lines and history.lines[-1]["deployed"]["mean"] is None:
        warn(
            f"no client of the run in {out} has a score: every benign client that was evaluated "
            f"lacks test examples{_undefined(built)}; choose another --test or --test-fraction, or "
            "--eval-on all"
        )
    stop_after = built.options.scores.stop_after
    if stop_after is not None and np.isnan(history.validation).all():
        warn(
            f"no client of the run in {out} has a validation score{_undefined(built)}: "
            f"--stop-after {stop_after} could not end it"
        )
    clients, labels = history.without_validation_score(evaluated), built.data.source.y_train
    message = without_validation_score(
        metric_of(history.measure).title,
        clients,
        [labels[np.concatenate([rows[one] for rows in built.data.parts])] for one in clients],
        history.names,
        stratified=built.options.data.split == "stratified",
    )
    if message:
        warn(message)
    benign = sorted(one for one in history.diverged if not built.malicious[one])
    if benign:
        some = ", ".join(map(str, benign[:8])) + (", ..." if len(benign) > 8 else "")
        warn(
            f"{len(benign)} of {built.clients} clients of the run in {out} had updates that are "
            f"not finite, which did not count (client {some}; diverged in summary.json): lower "
            "--lr, or what else makes them large"
        )
    if vanished:
        raise InputError(
            f"{', '.join(vanished)} in {out} vanished or changed during the run: the scores and "
            "the summary are complete, run again for the rest"
        )


def _undefined(built: Built) -> str:
    """The other reason why clients have no score, of metrics that are named."""
    if not built.options.scores.metric:
        return ""
    return f", or has examples on which {metric_of(built.metrics[0]).title} is not defined"


def _check_convergence(history: History, number: int) -> None:
    """Raises `Diverged` if a client was left out by round `number`."""
    if history.diverged:
        ids = ", ".join(
            history.names[one] if history.names else str(one) for one in sorted(history.diverged)
        )
        raise Diverged(
            f"an update of client {ids} was not finite, by round {number}: lower --lr, or leave "
            "out --fail-on-divergence to go on without such updates"
        )
