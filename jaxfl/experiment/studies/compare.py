"""Runs of several algorithms on the same clients, with a table and a picture of them all."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from jaxfl.core.errors import check
from jaxfl.experiment.config import Config, load_config, load_configs, resolve, to_json
from jaxfl.experiment.config.changes import differences
from jaxfl.experiment.config.paths import with_plugin
from jaxfl.experiment.session.agreement import check_agreement
from jaxfl.experiment.session.build import Built, build
from jaxfl.experiment.session.gather import gather
from jaxfl.experiment.session.interrupt import hint
from jaxfl.experiment.session.make_program import make_program
from jaxfl.experiment.session.run import Follow, execute, record_run, resume, silent, to_resume
from jaxfl.experiment.session.run_directory import begin
from jaxfl.experiment.session.run_pictures import draw_run
from jaxfl.experiment.store import files, locks
from jaxfl.experiment.store.digests import check_inputs, digests_of
from jaxfl.experiment.store.finished_runs import load_finished, read_run
from jaxfl.experiment.store.read_records import read_digests, read_summary
from jaxfl.experiment.store.records import Digests, Summary
from jaxfl.experiment.studies.budget import equalise
from jaxfl.experiment.studies.comparison import write_comparison
from jaxfl.experiment.studies.redraw import draw_graphs_of
from jaxfl.simulation import processes

# The files with which the directory of a comparison begins and ends
ENDS = (files.CONFIGS, "comparison.json")


def compare(
    configs: list[Config],
    out: Path,
    *,
    overwrite: bool = False,
    equal_budget: bool = False,
    follow: Follow = silent,
) -> dict[str, Summary]:
    """Runs several algorithms in `out/ALGORITHM`, with a table and a picture of them all in `out`.

    A run with a label is in `out/LABEL`, where `-` stands for what a directory should not be named.

    Args:
      configs: of one setting; they share its clients. An algorithm may occur several times, under
        labels that differ.
      out: the directory to write, see docs/files.md.
      overwrite: replace a comparison that it holds.
      equal_budget: every algorithm takes as many gradients, see `budget.equalise`.
      follow: as in `execute`.

    Returns:
      The name of each run (its label or algorithm) -> the content of its `summary.json`.

    Raises:
      InputError: as `execute`, for the first config that is wrong, before anything is run.
      KeyboardInterrupt: as `execute`; `resume_comparison` goes on.

    Example:
      >>> short = {"clients": 5, "rounds": 1, "local_steps": 5}
      >>> configs = [Config(algorithm=name, **short) for name in ("fedavg", "local")]
      >>> sorted(compare(configs, Path("runs/both")))
      ['fedavg', 'local']
    """
    ready = _build_all(configs, out, overwrite, equal_budget)
    with ExitStack() as stack:
        return _run_all(ready, out, overwrite, follow, stack)


def plan(
    configs: list[Config], out: Path, *, overwrite: bool = False, equal_budget: bool = False
) -> None:
    """Writes what workers need for a comparison, whose runs they take: see `workers.work`.

    It runs nothing; what cannot be run is refused here, by the process that plans.

    Args:
      configs: as in `compare`.
      out: as in `compare`.
      overwrite: as in `compare`.
      equal_budget: as in `compare`.

    Raises:
      InputError: as `compare`.

    Example:
      >>> short = {"clients": 5, "rounds": 1, "local_steps": 5}
      >>> plan([Config(algorithm="local", **short)], Path("runs/planned"))
      >>> sorted(path.name for path in Path("runs/planned").iterdir())
      ['configs.json', 'inputs.json']
    """
    ready = _build_all(configs, out, overwrite, equal_budget)
    configs = [config for config, _ in ready]
    digests = digests_of(configs, [ready[0][1].data.digest])
    with locks.locked(out):
        _write_plan(configs, digests, out, overwrite)


def _build_all(
    configs: list[Config], out: Path, overwrite: bool, equal_budget: bool
) -> list[tuple[Config, Built]]:
    """Checks and builds the runs of a comparison, which share one `Data`; writes nothing."""
    names = [files.directory_name(config.name) for config in configs]
    check(bool(configs), "nothing to compare: give a config for each algorithm")
    twice = [name for name, count in Counter(map(str.casefold, names)).items() if count > 1]
    check(
        not twice,
        f"two runs would be written to {''.join(twice[:1])}: name each algorithm once, or give "
        "each run a label of its own",
    )
    locks.check_free([out, *(out / name for name in names)], overwrite)
    first = resolve(configs[0])
    every = [first, *(resolve(config, first.source) for config in configs[1:])]
    check_agreement(every)
    data = gather(first)
    if equal_budget:
        every = equalise(every, data)
    return [(resolved.config, build(resolved, data)) for resolved in every]


def _write_plan(configs: list[Config], digests: Digests, out: Path, overwrite: bool) -> None:
    """Opens the directory of a comparison, which this process has locked.

    Earlier runs of these names are removed, which would count as finished.
    """
    files.create(out, files.EVERYTHING, overwrite)
    for run in filter(Path.exists, run_directories(configs, out).values()):
        with locks.locked(run):
            files.create(run, files.EVERYTHING, overwrite)
    files.write_json(out / files.INPUTS, digests)
    # From now on the comparison can be resumed.
    files.write_file(out / files.CONFIGS, to_json(configs))


def resume_comparison(
    directory: Path,
    *,
    devices: int | None = None,
    rounds: int | None = None,
    plugin: Sequence[str] | None = None,
    follow: Follow = silent,
) -> dict[str, Summary]:
    """Goes on with a comparison: finished runs stay, the others are resumed or begun.

    Args:
      directory: of the comparison.
      devices: as in `resume`.
      rounds: how many rounds all runs shall have, if not as many as before; as in `resume`.
      plugin: as in `resume`.
      follow: as in `execute`.

    Returns:
      As `compare`.

    Raises:
      InputError: as `resume`, or the comparison is finished.
    """
    configs = comparison_to_resume(directory, rounds)
    directories = run_directories(configs, directory)
    with ExitStack() as stack:
        stack.enter_context(locks.locked(directory))
        with hint(directory, *ENDS, rounds=rounds):
            comparison_to_resume(directory, rounds)  # another process may have finished it
            configs = [with_plugin(config, plugin) for config in configs]
            first = resolve(configs[0])
            place = directory / files.INPUTS
            check_inputs(place, read_digests(place), digests_of(configs, [gather(first).digest]))
            if rounds is not None and processes.is_main_process():
                # From now on the comparison has so many rounds, and counts as stopped.
                files.remove(directory / "comparison.json")
                files.write_file(directory / files.CONFIGS, to_json(configs))
        stack.enter_context(hint(directory, *ENDS, always=True))
        for config in configs:
            run = directories[config.name]
            if is_finished(run, config):
                result = read_run(run)
                follow(config, {**result.lines[-1], "measure": result.summary["measure"]})
            elif (run / "config.json").exists():
                more = more_rounds(run, config)
                resume(run, devices=devices, rounds=more, plugin=plugin, follow=follow)
            else:
                changes = {} if devices is None else {"devices": devices}
                # What a process left that ended before it wrote config.json
                execute(replace(config, **changes), run, overwrite=True, follow=follow)
        if not processes.is_main_process():
            return {}
        return write_table(directory, directories, build(first, gather(first)))


def comparison_to_resume(directory: Path, rounds: int | None = None) -> list[Config]:
    """The configs of a comparison that can go on.

    Args:
      directory: of the comparison.
      rounds: how many rounds its runs shall have.

    Raises:
      InputError: there is no such comparison, or it is finished, or one of its directories holds a
        run with other options.
    """
    configs = load_configs(directory / files.CONFIGS)
    if rounds is not None:
        configs = [replace(config, rounds=rounds) for config in configs]
    check_options(configs, directory)
    directories = run_directories(configs, directory)
    for run in directories.values():
        if (run / "summary.json").exists():
            read_summary(run / "summary.json")
    rest = [one for one in configs if not is_finished(directories[one.name], one)]
    check(
        bool(rest) or not (directory / "comparison.json").exists(),
        f"the comparison in {directory} is finished: give --rounds, more than "
        f"{configs[0].rounds}, and it goes on",
    )
    for config in rest:
        run = directories[config.name]
        if (run / "config.json").exists():
            to_resume(run, more_rounds(run, config))
    return configs


def check_options(configs: list[Config], directory: Path) -> None:
    """Raises an `InputError` if the directory of a run holds one with other options."""
    directories = run_directories(configs, directory)
    for config in configs:
        run = directories[config.name]
        if (run / "config.json").exists():
            changes = differences(asdict(load_config(run / "config.json")), config, 0)
            check(
                not changes,
                f"{run} holds another run than {directory / files.CONFIGS} names "
                f"({'; '.join(changes)}): move it away, and the run of the comparison begins",
            )


def is_finished(run: Path, config: Config) -> bool:
    """Whether the run is finished and has as many rounds as the config says.

    One that `--stop-after` has ended would have no more of them.
    """
    if not (run / "summary.json").exists():
        return False
    return more_rounds(run, config) is None or "stopped" in read_summary(run / "summary.json")


def more_rounds(run: Path, config: Config) -> int | None:
    """The rounds that a run that has begun shall have; None if its own config says the same."""
    same = load_config(run / "config.json").rounds == config.rounds
    return None if same else config.rounds


def run_directories(configs: list[Config], out: Path) -> dict[str, Path]:
    """The directory of each run, by its name."""
    return {config.name: out / files.directory_name(config.name) for config in configs}


def _run_all(
    ready: list[tuple[Config, Built]], out: Path, overwrite: bool, follow: Follow, stack: ExitStack
) -> dict[str, Summary]:
    """Executes the runs one after the other, and writes the comparison.

    As soon as the first program is compiled, the directory is locked in `stack`, and from then on
    an interruption says how to go on with it.
    """
    summaries = {}
    configs = [config for config, _ in ready]
    digests = digests_of(configs, [ready[0][1].data.digest])
    directories = run_directories(configs, out)
    for place, (config, built) in enumerate(ready):
        run = directories[config.name]
        follow(config, None)
        program = make_program(built, run)
        if place == 0:
            stack.enter_context(locks.locked(out))
            if processes.is_main_process():
                _write_plan(configs, digests, out, overwrite)
            stack.enter_context(hint(out, *ENDS, always=True))
        with locks.locked(run):
            if processes.is_main_process():
                begin(run, config, built, built.digests, overwrite, draw_run)
            summary = record_run(config, built, program, run, follow, draw_run)
        summaries[config.name] = summary
    if not processes.is_main_process():
        return summaries
    return write_table(out, directories, ready[0][1])


def write_table(out: Path, directories: dict[str, Path], first: Built) -> dict[str, Summary]:
    """Writes the graphs of all runs side by side, the table and the picture.

    Args:
      out: the directory of the comparison.
      directories: those of its finished runs, by their names.
      first: the first run.
    """
    draw_graphs_of(directories, out, first)
    return write_comparison(load_finished(list(directories.values())), out)
