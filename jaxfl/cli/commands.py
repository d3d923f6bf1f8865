"""What each command does. What needs JAX is imported here and there, once processes and devices are settled."""

import dataclasses
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jaxfl.cli.options import Compare, Describe, List, Prepare, Report, Resume, Run, Sweep
from jaxfl.cli.progress import Follower
from jaxfl.errors import check, check_name
from jaxfl.experiment.config import Config, Setting, load_config, parse_hyper, parse_value


def settle(command: Setting | Resume, console: Console) -> None:
    """What has to be settled before JAX starts: processes, devices, and where compiled programs are kept.

    They are kept between runs, in JAX's own cache; a directory that the user has set for it stays.
    """
    import jax

    from jaxfl import mesh

    mesh.prepare_host(None if command.devices == "auto" else command.devices)
    given = [getattr(command, name, None) for name in ("coordinator", "processes", "process")]
    if any(value is not None for value in given):
        check(
            None not in given,
            "several processes need --coordinator, --processes and --process: give all three",
        )
        mesh.join(*given)
        console.quiet = not mesh.is_main_process()
    if jax.config.jax_compilation_cache_dir is None:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(root / "jaxfl"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def setting(command: Setting) -> dict[str, Any]:
    """The fields of a command that describe the run."""
    return {field.name: getattr(command, field.name) for field in dataclasses.fields(Setting)}


def directory(out: Path | None, name: str) -> Path:
    """The given directory, or a new one under `runs` with the time in its name."""
    return out or Path("runs") / f"{datetime.now():%Y%m%d-%H%M%S}-{name}"


def run(command: Run, console: Console) -> None:
    """`jaxfl run`."""
    from jaxfl.experiment import execute, report
    from jaxfl.experiment.validate import check_config

    earlier = load_config(command.config) if command.config else None
    algorithm = command.algorithm or (earlier.algorithm if earlier else None)
    check(
        algorithm is not None,
        "no algorithm: name one (see jaxfl list algorithms) or give --config FILE",
    )
    kept = earlier.hyper if earlier and earlier.algorithm == algorithm else {}
    config = Config(
        **setting(command), algorithm=algorithm, hyper=kept | parse_hyper(command.hyper)
    )
    check_config(config)
    out = directory(command.out, algorithm)
    settle(command, console)
    with Follower([config], console) as follow:
        summary = execute(config, out, overwrite=command.overwrite, follow=follow)
    console.print(report.table({algorithm: summary}))
    console.print(f"written to {out}", markup=False, highlight=False)


def resume(command: Resume, console: Console) -> None:
    """`jaxfl resume`."""
    from jaxfl import experiment

    config = experiment.to_resume(command.directory)
    check(
        command.devices is None or command.devices >= 1,
        f"--devices is {command.devices}: expected 1 or more",
    )
    settle(dataclasses.replace(command, devices=command.devices or config.devices), console)
    with Follower([config], console) as follow:
        summary = experiment.resume(command.directory, devices=command.devices, follow=follow)
    console.print(experiment.report.table({config.algorithm: summary}))
    console.print(f"written to {command.directory}", markup=False, highlight=False)


def compare(command: Compare, console: Console) -> None:
    """`jaxfl compare`."""
    from jaxfl import experiment
    from jaxfl.algorithms import ALGORITHMS
    from jaxfl.experiment.validate import check_config, hyper_parameters

    algorithms = tuple(ALGORITHMS) if command.algorithms == ("all",) else command.algorithms
    check(bool(algorithms), "no algorithms: name some, see jaxfl list algorithms")
    check(len(set(algorithms)) == len(algorithms), "an algorithm is named twice: name each once")
    for algorithm in algorithms:
        check_name("algorithm", algorithm, ALGORITHMS)
    hyper = parse_hyper(command.hyper)
    known = {algorithm: hyper_parameters(ALGORITHMS[algorithm]) for algorithm in algorithms}
    for name in hyper:
        check_name("hyper-parameter", name, set().union(*known.values()))
    configs = [
        Config(
            **setting(command),
            algorithm=algorithm,
            hyper={k: v for k, v in hyper.items() if k in known[algorithm]},
        )
        for algorithm in algorithms
    ]
    for config in configs:
        check_config(config)
    out = directory(command.out, "compare")
    settle(command, console)
    with Follower(configs, console) as follow:
        options = {"overwrite": command.overwrite, "equal_budget": command.equal_budget}
        summaries = experiment.compare(configs, out, **options, follow=follow)
    console.print(experiment.report.table(summaries))
    console.print(f"written to {out}", markup=False, highlight=False)


def sweep(command: Sweep, console: Console) -> None:
    """`jaxfl sweep`."""
    from jaxfl.experiment import files
    from jaxfl.experiment import sweep as searching
    from jaxfl.experiment.validate import check_config, check_count

    space = searching.parse_space(command.over, parse_value)
    check(
        bool(space),
        "nothing to vary: give --over NAME=VALUE,VALUE, for example --over alpha=0.2,0.5,0.8",
    )
    ranges = [name for name, choice in space.items() if isinstance(choice, tuple)]
    check(
        not ranges or command.trials is not None,
        f"{', '.join(ranges)}: a range needs --trials, how many to draw",
    )
    if command.trials is not None:
        check_count("trials", command.trials)
    config = Config(
        **setting(command), algorithm=command.algorithm, hyper=parse_hyper(command.hyper)
    )
    check_config(config)
    points = (
        searching.random(space, command.trials, command.seed)
        if command.trials
        else searching.grid(space)
    )
    out = directory(command.out, "sweep")
    files.check_free(out, command.overwrite)
    settle(command, console)
    trials = searching.search(config, points)
    files.create(out, files.SWEEP_FILES, command.overwrite)
    best = searching.record(config, trials, out)
    table = Table(*space, "validation", title=command.algorithm, title_justify="left")
    for trial in trials[:20]:
        cells = [
            f"{value:.4g}" if isinstance(value, float) else str(value)
            for value in trial["point"].values()
        ]
        table.add_row(*cells, "-" if trial["val"] is None else f"{trial['val']:.4f}")
    console.print(table)
    console.print(
        f"test score of the first: {best['test']:.4f}"
        if best["test"] is not None
        else "no test score"
    )
    console.print(
        f"written to {out}; jaxfl run --config {out / 'best.json'} runs the first",
        markup=False,
        highlight=False,
    )


def prepare(command: Prepare, console: Console) -> None:
    """`jaxfl prepare`."""
    from jaxfl.data.prepare import prepare as write
    from jaxfl.data.sources import SOURCES, data_dir

    check(
        command.name not in SOURCES,
        f"{command.name} is embedded: --dataset {command.name} needs no preparation",
    )
    folder = data_dir(command.data_dir)
    check(folder is not None, "no folder to write to: give --data-dir DIR or set JAXFL_DATA_DIR")
    file = write(
        command.name,
        folder,
        manual_dir=command.tfds_manual_dir,
        words=command.words,
        length=command.length,
    )
    console.print(
        f"{file}: --dataset {file.stem} --data-dir {folder}", markup=False, highlight=False
    )


def show(command: List, console: Console) -> None:
    """`jaxfl list`."""
    from jaxfl.algorithms import ALGORITHMS
    from jaxfl.data import PARTITIONS, list_data_sets
    from jaxfl.experiment.validate import describe_factory, first_line
    from jaxfl.models import MODELS
    from jaxfl.uplink import ATTACKS

    tables = {
        "algorithms": {name: describe_factory(factory) for name, factory in ALGORITHMS.items()},
        "datasets": list_data_sets(command.data_dir),
        "partitions": {name: first_line(function) for name, function in PARTITIONS.items()},
        "models": {name: first_line(function) for name, function in MODELS.items()},
        "attacks": {name: first_line(function) for name, function in ATTACKS.items()},
    }
    for kind in [command.kind] if command.kind else tables:
        table = Table("name", "what it is", title=kind, title_justify="left")
        for name, text in tables[kind].items():
            table.add_row(name, text)
        console.print(table)


def describe(command: Describe, console: Console) -> None:
    """`jaxfl describe`."""
    from jaxfl.data import describe_partition
    from jaxfl.experiment import files, plots
    from jaxfl.experiment.build import divide

    if command.out:
        check(
            not os.path.lexists(command.out),
            f"{command.out} exists: name another file, or remove it",
        )
        files.check_writable(command.out)
    chosen, source, parts = divide(Setting(**setting(command)))
    table = Table(
        "",
        "",
        title=f"{chosen.dataset}, {chosen.partition}",
        title_justify="left",
        show_header=False,
    )
    for name, text in describe_partition(source, parts[0]).items():
        table.add_row(name, text)
    console.print(table)
    if command.out:
        files.create(command.out.parent, (), overwrite=True)
        files.write(command.out, plots.partition(source, parts[0], chosen))
        console.print(f"written to {command.out}", markup=False, highlight=False)


def report(command: Report, console: Console) -> None:
    """`jaxfl report`."""
    from jaxfl import experiment

    runs = experiment.report.load(list(command.directories))
    if command.out:
        experiment.files.create(command.out, experiment.files.COMPARISON_FILES, command.overwrite)
    console.print(
        experiment.report.table({label: found["summary"] for label, found in runs.items()})
    )
    if command.out:
        experiment.summarise(runs, command.out)
        console.print(f"written to {command.out}", markup=False, highlight=False)


COMMANDS = {
    Run: run,
    Resume: resume,
    Compare: compare,
    Sweep: sweep,
    Describe: describe,
    Prepare: prepare,
    List: show,
    Report: report,
}
