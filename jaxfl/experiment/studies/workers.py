"""Workers that share a comparison or a search, on as many machines as share its directory."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from jaxfl.core.errors import InputError, check
from jaxfl.core.options import checked
from jaxfl.experiment.config import Config, load_configs, resolve
from jaxfl.experiment.config.paths import with_plugin
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.gather import Data, gather
from jaxfl.experiment.session.interrupt import answer, hint, interruptible, interruption
from jaxfl.experiment.session.make_program import make_program
from jaxfl.experiment.session.run import Follow, go_on, record_run, silent
from jaxfl.experiment.session.run_directory import begin
from jaxfl.experiment.session.run_pictures import draw_run
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.digests import check_inputs, digests_of
from jaxfl.experiment.store.read_records import (
    read_digests,
    read_lines,
    read_plan,
    read_search,
    read_trials,
)
from jaxfl.experiment.store.records import Line, Trial, TrialEntry
from jaxfl.experiment.studies import sweep
from jaxfl.experiment.studies.compare import (
    ENDS,
    check_options,
    is_finished,
    more_rounds,
    run_directories,
    write_table,
)
from jaxfl.experiment.studies.points import Point
from jaxfl.experiment.studies.shares import Share, take_all
from jaxfl.experiment.studies.trials import name_of, run_group


def work(
    directory: Path,
    *,
    devices: int | None = None,
    plugin: Sequence[str] | None = None,
    follow: Follow = silent,
) -> dict[str, str]:
    """Takes runs of a comparison, one after the other, until none is left to take.

    A run that another worker has is passed over; one that a worker has left is resumed. A run that
    fails is left to the others, and its error is raised when the rest is done. Whoever finds all
    runs finished writes the table, once.

    Args:
      directory: of the comparison, as `plan` or `compare` has written it.
      devices: as in `resume`.
      plugin: as in `resume`.
      follow: as in `execute`.

    Returns:
      The runs that are not finished, and who has them: "HOST, process 12", or "" if it is not
      known. Without any, the table is there.

    Raises:
      InputError: there is no such comparison, a process that is no worker writes into the
        directory, locks are not to be had there, what the runs read has changed, or as `execute`.
      Diverged: as `execute`.
      KeyboardInterrupt: as `execute`; another worker goes on.

    Example:
      >>> short = {"clients": 5, "rounds": 1, "local_steps": 5}
      >>> jaxfl.experiment.plan([Config(algorithm="local", **short)], Path("runs/shared"))
      >>> work(Path("runs/shared"))
      {}
    """
    configs = load_configs(directory / files.CONFIGS)
    directories = run_directories(configs, directory)
    table = directory / ENDS[1]
    with locks.shared(directory), hint(directory, *ENDS, always=True, option="--worker"):
        check_options(configs, directory)

        def finished() -> bool:
            return all(is_finished(directories[one.name], one) for one in configs)

        if table.exists():
            with locks.alone(table):
                if finished():
                    return {}
                # It is of runs that have been taken away since.
                files.remove(table)
        configs = [with_plugin(config, plugin) for config in configs]
        first = resolve(configs[0])
        data = gather(first)
        place = directory / files.INPUTS
        check_inputs(place, read_digests(place), digests_of(configs, [data.digest]))

        def share(config: Config) -> Share:
            run = directories[config.name]
            execute = partial(_execute, config, run, data, devices, plugin, follow)
            return Share(config.name, run / files.LOCK, partial(is_finished, run, config), execute)

        rest = take_all([share(config) for config in configs])
        if not rest:
            # Two workers may have finished the last runs in the same moment.
            with locks.alone(table):
                if not table.exists():
                    write_table(directory, directories, build(first, data))
        return rest


def _execute(
    config: Config,
    run: Path,
    data: Data,
    devices: int | None,
    plugin: Sequence[str] | None,
    follow: Follow,
) -> None:
    """Executes a run, or resumes it if it has begun, in a directory that this worker has locked."""
    if (run / "config.json").exists():
        rounds = more_rounds(run, config)
        go_on(run, devices=devices, rounds=rounds, plugin=plugin, follow=follow)
        return
    here = config if devices is None else replace(config, devices=devices)
    resolved = resolve(here, data.source)
    built = build(resolved, data)
    follow(resolved.config, None)
    program = make_program(built, run)
    # A worker that ended before it wrote config.json may have left a picture.
    begin(run, resolved.config, built, built.digests, overwrite=True, draw=draw_run)
    record_run(resolved.config, built, program, run, follow, draw_run)


def work_on_search(
    directory: Path, *, plugin: Sequence[str] | None = None, follow: sweep.Follow = sweep.silent
) -> dict[str, str]:
    """Takes trials of a search, those that share a program together, until none is left to take.

    Whoever finds all trials written closes the search, once. The scores are those that one process
    would find, bit for bit, since the same trials share a program.

    Args:
      directory: of the search, as `plan_search` or `search` has written it.
      plugin: as in `resume_search`.
      follow: as in `search`.

    Returns:
      The trials that are not written, and who has them, as `work` does. Without any, the search is
      finished.

    Raises:
      InputError: there is no such search, a process that is no worker writes into the directory,
        locks are not to be had there, or as `resume_search`.
      KeyboardInterrupt: as `search`; another worker goes on.

    Example:
      >>> config = Config(algorithm="fedprox", clients=5, rounds=1, local_steps=5)
      >>> sweep.plan_search(config, [{"mu": 0.1}, {"mu": 1.0}], Path("runs/shared_search"))
      >>> work_on_search(Path("runs/shared_search"))
      {}
    """
    plan_file, end = (directory / name for name in sweep.ENDS)
    plan = read_plan(plan_file)
    with locks.shared(directory), hint(directory, *sweep.ENDS, always=True, option="--worker"):
        if end.exists():
            return {}
        config, groups = sweep.groups_to_resume(directory, plan, plugin)
        file = directory / files.TRIALS

        def written() -> dict[int, Trial]:
            with locks.alone(file):  # nobody is writing half a line
                return read_trials(file, plan["points"])

        def is_done(group: list[int]) -> bool:
            # Whoever closes a search removes its trials, and first writes what they were, or first
            # removes the plan where no trial has a score.
            return written().keys() >= set(group) or end.exists() or not plan_file.exists()

        def execute(group: sweep.Group) -> None:
            with interruptible() as request:
                trials = run_group(group, plan, answer(request, "trials"))
                with locks.alone(file):
                    sweep.write_trials(trials, directory)
                sweep.report(written(), plan, follow)
            if request.is_set():
                raise interruption(request.number)

        sweep.report(written(), plan, follow)
        rest = take_all(
            [
                Share(
                    name_of(group.places),
                    locks.beside(directory / f"trial-{group.places[0]}"),
                    partial(is_done, group.places),
                    partial(execute, group),
                )
                for group in groups
            ]
        )
        if not rest:
            with locks.alone(end):
                if not end.exists():
                    check(plan_file.exists(), sweep.NO_SCORE)
                    sweep.close(config, plan, groups, written(), directory)
        return rest


@checked
def watch(
    directory: Path,
    measure: str,
    is_working: Callable[[], bool],
    *,
    follow: Follow = silent,
    pause: float = 0.5,
) -> None:
    """Follows the workers of a comparison by its files, until there is a table or nobody works.

    Args:
      directory: of the comparison.
      measure: the metric of its scores.
      is_working: whether a worker may still write.
      follow: as in `execute`; called for all runs.
      pause: seconds between two looks at the files.
    """
    configs = load_configs(directory / files.CONFIGS)
    directories = run_directories(configs, directory)
    counts = {config.name: -1 for config in configs}  # of lines; -1 before the run begins
    sizes = {config.name: 0 for config in configs}  # of the files that were read

    def look() -> None:
        for config in configs:
            run = directories[config.name]
            if counts[config.name] < 0 and (run / "config.json").exists():
                follow(config, None)
                counts[config.name] = 0
            size = _size(run / "metrics.jsonl")
            if size == sizes[config.name]:
                continue
            sizes[config.name] = size
            lines = _lines(run)
            for line in lines[max(counts[config.name], 0) :]:
                follow(config, {**line, "measure": measure})
                counts[config.name] = len(lines)

    _look_until(directory / ENDS[1], is_working, look, pause)


def watch_search(
    directory: Path,
    is_working: Callable[[], bool],
    *,
    follow: sweep.Follow = sweep.silent,
    pause: float = 0.5,
) -> None:
    """Follows the workers of a search by its files, until it is finished or nobody works.

    Args:
      directory: of the search.
      is_working: whether a worker may still write.
      follow: as in `search`.
      pause: seconds between two looks at the files.
    """
    plan = read_plan(directory / files.PLAN)
    count = -1

    def look() -> None:
        nonlocal count
        trials = _trials(directory, plan["points"])
        if len(trials) > count:
            count = len(trials)
            sweep.report(trials, plan, follow)

    _look_until(directory / sweep.ENDS[1], is_working, look, pause)


def _look_until(
    end: Path, is_working: Callable[[], bool], look: Callable[[], None], pause: float
) -> None:
    """Looks again and again until the last file is there or nobody works, and then once more."""
    while not end.exists() and is_working():
        look()
        time.sleep(pause)
    look()


def _size(file: Path) -> int:
    """The bytes of a file; 0 if there is none."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _lines(run: Path) -> list[Line]:
    """The metrics of a run that a worker may just be writing; none if they are not whole."""
    try:
        return read_lines(run / "metrics.jsonl")
    except InputError:
        return []


def _trials(directory: Path, points: list[Point]) -> Mapping[int, Trial | TrialEntry]:
    """The trials of a search that a worker may just be writing; none if they are not whole."""
    try:
        written = read_trials(directory / files.TRIALS, points)
    except InputError:
        return {}
    end = directory / sweep.ENDS[1]  # written before the trials are removed
    return dict(enumerate(read_search(end)["trials"])) if end.exists() else written
