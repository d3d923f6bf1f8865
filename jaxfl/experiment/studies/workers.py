"""Workers that share the runs of a comparison, on as many machines as share its directory.

There is no server: a worker takes a run by the lock of its directory, which the system releases
when the worker ends, however it ends.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from jaxfl.core.errors import Diverged, InputError
from jaxfl.core.options import checked
from jaxfl.experiment.config import Config, load_configs, resolve
from jaxfl.experiment.config.paths import with_plugin
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.clients import Data, gather
from jaxfl.experiment.session.directory import begin
from jaxfl.experiment.session.interrupt import hint
from jaxfl.experiment.session.run import Follow, go_on, record_run, silent
from jaxfl.experiment.session.stored_program import make_program
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.inputs import check_inputs, digests_of
from jaxfl.experiment.store.records import Line, read_digests, read_lines
from jaxfl.experiment.studies.compare import (
    ENDS,
    is_finished,
    more_rounds,
    run_directories,
    write_table,
)
from jaxfl.simulation.statistics import Measure

Failures = dict[str, InputError | Diverged]  # by the name of the run


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
    with locks.shared(directory), hint(directory, *ENDS, always=True, option="--worker"):
        table = directory / ENDS[1]
        if not unfinished(configs, directory) and table.exists():
            return {}
        configs = [with_plugin(config, plugin) for config in configs]
        first = resolve(configs[0])
        data = gather(first)
        place = directory / files.INPUTS
        check_inputs(place, read_digests(place), digests_of(configs, [data.digest]))
        failures = _take_all(configs, directory, data, devices, plugin, follow)
        if failures:
            words = [f"{name}: {error}" for name, error in failures.items()]
            raise type(next(iter(failures.values())))("; ".join(words))
        rest = unfinished(configs, directory)
        if not rest:
            # Two workers may have finished the last runs in the same moment.
            with locks.alone(table):
                if not table.exists():
                    write_table(directory, run_directories(configs, directory), build(first, data))
        return rest


def unfinished(configs: list[Config], directory: Path) -> dict[str, str]:
    """The runs of a comparison that are not finished, and who has them, as `work` returns them."""
    directories = run_directories(configs, directory)
    return {
        config.name: locks.holder(directories[config.name] / files.LOCK)
        for config in configs
        if not is_finished(directories[config.name], config)
    }


def _take_all(
    configs: list[Config],
    directory: Path,
    data: Data,
    devices: int | None,
    plugin: Sequence[str] | None,
    follow: Follow,
) -> Failures:
    """Takes runs until none is left, also those that other workers leave in the meantime."""
    directories = run_directories(configs, directory)
    failures: Failures = {}
    is_new = True
    while is_new:
        is_new = False
        for config in configs:
            if config.name in failures:
                continue
            try:
                is_new |= _take(config, directories[config.name], data, devices, plugin, follow)
            except (InputError, Diverged) as error:
                failures[config.name] = error
    return failures


def _take(
    config: Config,
    run: Path,
    data: Data,
    devices: int | None,
    plugin: Sequence[str] | None,
    follow: Follow,
) -> bool:
    """Takes a run, unless another worker has it or it is finished.

    Returns:
      Whether this worker has taken it.
    """
    if is_finished(run, config):
        return False
    with locks.claim(run / files.LOCK) as ours:
        # Another worker may have finished it in the meantime.
        if not ours or is_finished(run, config):
            return False
        _execute(config, run, data, devices, plugin, follow)
        return True


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
    built = build(resolve(here, data.source), data)
    follow(built.config, None)
    program = make_program(built, run)
    # A worker that ended before it wrote config.json may have left a picture.
    begin(run, built, built.digests, overwrite=True)
    record_run(program, run, follow)


@checked
def watch(
    directory: Path,
    measure: Measure,
    is_working: Callable[[], bool],
    *,
    follow: Follow = silent,
    pause: float = 0.5,
) -> None:
    """Follows the workers of a comparison by its files, until there is a table or nobody works.

    Args:
      directory: of the comparison.
      measure: of its scores.
      is_working: whether a worker may still write.
      follow: as in `execute`; called for all runs.
      pause: seconds between two looks at the files.
    """
    configs = load_configs(directory / files.CONFIGS)
    directories = run_directories(configs, directory)
    counts = {config.name: -1 for config in configs}  # of lines; -1 before the run begins
    is_over = False
    while not is_over:
        is_over = (directory / ENDS[1]).exists() or not is_working()
        for config in configs:
            run = directories[config.name]
            if counts[config.name] < 0 and (run / "config.json").exists():
                follow(config, None)
                counts[config.name] = 0
            lines = _lines(run)
            for line in lines[max(counts[config.name], 0) :]:
                follow(config, {**line, "measure": measure})
                counts[config.name] = len(lines)
        if not is_over:
            time.sleep(pause)


def _lines(run: Path) -> list[Line]:
    """The metrics of a run that a worker may just be writing; none if they are not whole."""
    try:
        return read_lines(run / "metrics.jsonl")
    except InputError:
        return []
