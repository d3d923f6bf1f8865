"""The command line: `jaxfl run | compare | describe | list | report`."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from jaxfl.errors import InputError, check, check_name
from jaxfl.experiment.config import Config, Setting, load_config, parse_hyper

Kind = Literal["algorithms", "datasets", "partitions", "models", "attacks"]


@dataclass(frozen=True)
class Launch(Setting):
    """What `run` and `compare` share."""

    coordinator: str | None = None
    """HOST:PORT of process 0, where several processes run together, on one host or on many"""
    processes: int | None = None
    """how many processes run together, each started with the same options"""
    process: int | None = None
    """number of this process, from 0; process 0 writes"""


@dataclass(frozen=True)
class Run(Launch):
    """Run one algorithm."""

    algorithm: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="ALGORITHM")] = None
    """which one, see `jaxfl list algorithms`; taken from --config if not given"""
    config: Path | None = None
    """config.json of an earlier run to repeat; other options change it"""
    hyper: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """hyper-parameters of the algorithm"""
    out: Path | None = None
    """directory to write; runs/TIME-ALGORITHM if not given"""
    overwrite: bool = False
    """replace a run that the directory holds"""


@dataclass(frozen=True)
class Compare(Launch):
    """Run several algorithms on the same clients and put them in one table and one picture."""

    algorithms: tuple[str, ...] = ("local", "fedavg", "fedavg_ft", "pfedgraph")
    """which ones, see `jaxfl list algorithms`"""
    hyper: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KEY=VALUE ...")] = ()
    """hyper-parameters, each for every algorithm that has it"""
    out: Path | None = None
    """directory to write; runs/TIME-compare if not given"""
    overwrite: bool = False
    """replace a comparison that the directory holds"""


@dataclass(frozen=True)
class List:
    """Show what there is to choose from, with the hyper-parameters of each algorithm."""

    kind: Annotated[tyro.conf.Positional[Kind | None], tyro.conf.arg(metavar="KIND")] = None
    """algorithms, datasets, partitions, models or attacks; all if not given"""
    data_dir: str | None = None
    """folder of NAME.npz files; the environment's JAXFL_DATA_DIR if not given"""


@dataclass(frozen=True)
class Describe(Setting):
    """Show who holds what: clients, examples, labels, imbalance."""

    out: Path | None = None
    """also draw it into this PNG file"""


@dataclass(frozen=True)
class Report:
    """Put finished runs in one table."""

    directories: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="DIR ...")]
    """directories of runs or comparisons"""
    out: Path | None = None
    """also write comparison.json, .md and .png there"""
    overwrite: bool = False
    """replace a comparison that the directory holds"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Bad input is one line on standard error and exit code 2; an interruption is 130."""
    console, errors = Console(), Console(stderr=True, soft_wrap=True, highlight=False)
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        command = parse(arguments)
        COMMANDS[type(command)](command, console)
    except InputError as error:
        errors.print(f"jaxfl: {error}", style="red", markup=False)
        return 2
    except KeyboardInterrupt:
        errors.print("jaxfl: interrupted", style="red")
        return 130
    return 0


def parse(arguments: Sequence[str]) -> Run | Compare | Describe | List | Report:
    """The command with its options; the options of `run --config FILE` start from the file's values."""
    for option in ("--hyper", "--algorithms"):
        check(arguments.count(option) < 2, f"{option} is given twice: give it once, with all its values behind it")
    default = Run()
    files = [b for a, b in pairwise(arguments) if a == "--config"]
    files += [a.removeprefix("--config=") for a in arguments if a.startswith("--config=")]
    if arguments[:1] == ["run"] and files:
        config = load_config(Path(files[-1]))
        default = Run(**{f.name: getattr(config, f.name) for f in dataclasses.fields(Setting)})
        for given, other in (("--local-steps", "local_epochs"), ("--local-epochs", "local_steps")):
            if any(a.split("=")[0] == given for a in arguments):  # the one given takes the place of the file's
                default = dataclasses.replace(default, **{other: None})
    subcommand = tyro.conf.subcommand
    commands = (
        Annotated[Run, subcommand("run", default=default)]
        | Annotated[Compare, subcommand("compare")]
        | Annotated[Describe, subcommand("describe")]
        | Annotated[List, subcommand("list")]
        | Annotated[Report, subcommand("report")]
    )
    return tyro.cli(
        commands,
        prog="jaxfl",
        description="Personalized federated learning on collaboration graphs, in JAX.",
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )


def prepare(command: Launch, console: Console) -> None:
    """What has to be settled before JAX starts: processes, devices, and where compiled programs are kept.

    They are kept between runs, in JAX's own cache; a directory that the user has set for it stays.
    """
    import jax

    from jaxfl import mesh

    mesh.prepare_host(None if command.devices == "auto" else command.devices)
    given = (command.coordinator, command.processes, command.process)
    if any(value is not None for value in given):
        check(None not in given, "several processes need --coordinator, --processes and --process: give all three")
        mesh.join(*given)
        console.quiet = not mesh.leads()
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

    earlier = load_config(command.config) if command.config else None
    algorithm = command.algorithm or (earlier.algorithm if earlier else None)
    check(algorithm is not None, "no algorithm: name one (see jaxfl list algorithms) or give --config FILE")
    kept = earlier.hyper if earlier and earlier.algorithm == algorithm else {}
    config = Config(**setting(command), algorithm=algorithm, hyper=kept | parse_hyper(command.hyper))
    out = directory(command.out, algorithm)
    prepare(command, console)
    with Follower([config], console) as follow:
        summary = execute(config, out, overwrite=command.overwrite, follow=follow)
    console.print(report.table({algorithm: summary}))
    console.print(f"written to {out}", markup=False, highlight=False)


def compare(command: Compare, console: Console) -> None:
    """`jaxfl compare`."""
    from jaxfl import experiment
    from jaxfl.algorithms import ALGORITHMS
    from jaxfl.experiment.validate import hyper_parameters

    check(bool(command.algorithms), "no algorithms: name some, see jaxfl list algorithms")
    check(len(set(command.algorithms)) == len(command.algorithms), "an algorithm is named twice: name each once")
    for algorithm in command.algorithms:
        check_name("algorithm", algorithm, ALGORITHMS)
    hyper = parse_hyper(command.hyper)
    known = {algorithm: hyper_parameters(ALGORITHMS[algorithm]) for algorithm in command.algorithms}
    for name in hyper:
        check_name("hyper-parameter", name, set().union(*known.values()))
    configs = [
        Config(**setting(command), algorithm=algorithm, hyper={k: v for k, v in hyper.items() if k in known[algorithm]})
        for algorithm in command.algorithms
    ]
    out = directory(command.out, "compare")
    prepare(command, console)
    with Follower(configs, console) as follow:
        summaries = experiment.compare(configs, out, overwrite=command.overwrite, follow=follow)
    console.print(experiment.report.table(summaries))
    console.print(f"written to {out}", markup=False, highlight=False)


def show(command: List, console: Console) -> None:
    """`jaxfl list`."""
    from jaxfl.algorithms import ALGORITHMS
    from jaxfl.data import PARTITIONS
    from jaxfl.data.sources import names
    from jaxfl.experiment.validate import describe_factory, first_line
    from jaxfl.models import MODELS
    from jaxfl.uplink import ATTACKS

    tables = {
        "algorithms": {name: describe_factory(factory) for name, factory in ALGORITHMS.items()},
        "datasets": names(command.data_dir),
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
    from jaxfl.data import describe
    from jaxfl.experiment import files, plots
    from jaxfl.experiment.build import divide

    chosen, source, parts = divide(Setting(**setting(command)))
    table = Table("", "", title=f"{chosen.dataset}, {chosen.partition}", title_justify="left", show_header=False)
    for name, text in describe(source, parts[0]).items():
        table.add_row(name, text)
    console.print(table)
    if command.out:
        check(not command.out.exists(), f"{command.out} exists: name another file, or remove it")
        files.write(command.out, plots.partition(source, parts[0], chosen))
        console.print(f"written to {command.out}", markup=False, highlight=False)


def report(command: Report, console: Console) -> None:
    """`jaxfl report`."""
    from jaxfl import experiment

    runs = experiment.report.load(list(command.directories))
    if command.out:
        experiment.files.create(command.out, experiment.files.COMPARISON_FILES, command.overwrite)
    console.print(experiment.report.table({label: found["summary"] for label, found in runs.items()}))
    if command.out:
        experiment.summarise(runs, command.out)
        console.print(f"written to {command.out}", markup=False, highlight=False)


COMMANDS = {Run: run, Compare: compare, Describe: describe, List: show, Report: report}


class Follower:
    """A live progress bar, one task a run; nothing at all when the output is not a terminal."""

    def __init__(self, configs: list[Config], console: Console):
        self.progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = {c.algorithm: self.progress.add_task(c.algorithm, total=c.rounds, state="") for c in configs}

    def __enter__(self) -> "Follower":
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def __call__(self, config: Config, line: dict[str, Any] | None) -> None:
        """Shows the round, the score and the speed of a run."""
        from jaxfl.experiment.report import MEASURES

        state = "compiling"
        if line is not None:
            name, shown, digits = MEASURES[line["measure"]]
            mean = line["before"]["mean"]
            score = "" if mean is None else f"{name} {shown(mean):{digits}}"
            state = f"{score}, {line['round'] / max(line['seconds'], 1e-9):.1f} rounds/s"
        done = 0 if line is None else line["round"]
        self.progress.update(self.tasks[config.algorithm], completed=done, state=state)
