"""What each command does. JAX starts to compute only once processes and devices are settled."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from jaxfl import experiment
from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import supervisor
from jaxfl.cli.choices import cite, describe
from jaxfl.cli.finished import predict, report
from jaxfl.cli.listing import show
from jaxfl.cli.options import (
    Cite,
    Compare,
    Describe,
    List,
    Predict,
    Prepare,
    Report,
    Resume,
    Run,
    SettingOptions,
    Sweep,
)
from jaxfl.cli.prepare import prepare
from jaxfl.cli.progress import Follower, SearchFollower
from jaxfl.core.errors import check
from jaxfl.core.text import visible
from jaxfl.experiment.config import (
    Config,
    hyper_by_algorithm,
    load_config,
    parse_hyper,
    parse_methods,
    parse_value,
    preset,
)
from jaxfl.experiment.config.hints import check_fields, option
from jaxfl.experiment.session.run import to_resume
from jaxfl.experiment.store import files
from jaxfl.experiment.store.files import read_arrays
from jaxfl.experiment.store.finished import load_finished
from jaxfl.experiment.store.records import RunRecord, Runs, Trial, read_plan, read_search
from jaxfl.experiment.studies import points
from jaxfl.experiment.studies import sweep as search
from jaxfl.experiment.studies.compare import comparison_to_resume, run_directories
from jaxfl.experiment.tables.formats import print_scores
from jaxfl.experiment.tables.scores import alone_name, alone_text, alone_value
from jaxfl.experiment.trackers import Tracking, check_library, each_of
from jaxfl.simulation import mesh, scoring

# The preset of `jaxfl compare` where no option says anything about the data.
DEMONSTRATION = "demo"
# Seconds that a process waits for the others that run with it.
JOIN_TIMEOUT = 300.0
SETTING = [field.name for field in dataclasses.fields(SettingOptions)]


def settle(command: SettingOptions | Resume, devices: int | str, console: Console) -> None:
    """What has to be settled before JAX starts: processes, devices, and its cache."""
    check_library(getattr(command, "track", None))
    mesh.prepare_host(None if isinstance(devices, str) else devices)
    process_options = [
        getattr(command, name, None) for name in ("coordinator", "processes", "process")
    ]
    cluster = getattr(command, "cluster", False)
    seconds = getattr(command, "join_timeout", None)
    several = cluster or any(value is not None for value in process_options)
    if seconds is not None:
        check_fields(command, "join_timeout")
        check(
            several,
            "--join-timeout is for several processes: give --coordinator, --processes and "
            "--process, or --cluster, too",
        )
    timeout = JOIN_TIMEOUT if seconds is None else float(seconds)
    if cluster:
        check(
            process_options == [None] * 3,
            "--cluster takes --coordinator, --processes and --process from the cluster: give it "
            "alone, or leave it out",
        )
        mesh.join_processes(timeout=timeout)
    elif several:
        check(
            None not in process_options,
            "several processes need --coordinator, --processes and --process: give all three, or "
            "--cluster alone",
        )
        mesh.join_processes(*process_options, timeout=timeout)
    mesh.check_backend()
    console.quiet = not mesh.is_main_process()
    mesh.keep_programs()


def setting(command: SettingOptions) -> dict[str, Any]:
    """The fields of a command that describe the run."""
    return {name: getattr(command, name) for name in SETTING}


@contextlib.contextmanager
def directory(out: Path | None, name: str) -> Iterator[Path]:
    """The given directory, or a new one under `runs` with the time in its name."""
    given = contextlib.nullcontext(out) if out is not None else None
    with given or files.new_directory(f"runs/{datetime.now():%Y%m%d-%H%M%S}-{name}") as path:
        supervisor.tell_directory(str(path))
        yield path


def run(command: Run, console: Console) -> None:
    """`jaxfl run`."""
    template = load_config(command.config) if command.config else None
    algorithm = command.algorithm or (template.algorithm if template else "")
    check(
        bool(algorithm),
        "no algorithm: name one (see jaxfl list algorithms) or give --config FILE",
    )
    hyper = template.hyper if template and template.algorithm == algorithm else {}
    if command.preset:
        hyper = preset(command.preset).hyper.get(algorithm, {})
    before = template.plugin if template else ()
    check(
        bool(command.plugin) or not before,
        f"the run of {command.config} had --plugin {' '.join(before)}: give it again, or take "
        "`plugin` out of the file",
    )
    config = Config(
        **setting(command),
        algorithm=algorithm,
        hyper=hyper | parse_hyper(command.hyper),
        plugin=plugins(command.plugin),
    )
    settle(command, command.devices, console)
    with directory(command.out, algorithm) as out:
        tracking = Tracking(command.track, {config.name: out})
        with Follower([config], console) as follow, tracking as track:
            options = {"overwrite": command.overwrite, "follow": each_of(follow, track)}
            summary = experiment.execute(config, out, **options)
        print_scores({algorithm: RunRecord(summary, [], follow.configs[algorithm])}, console)
        show_protocol(command, {algorithm: (algorithm, out)}, console)
        console.print(f"written to {out}", markup=False, highlight=False)


def plugins(paths: Sequence[Path]) -> tuple[str, ...]:
    """The plug-ins of a command line, as config.json has them."""
    return tuple(str(path.absolute()) for path in paths)


def resume(command: Resume, console: Console) -> None:
    """`jaxfl resume`."""
    supervisor.tell_directory(str(command.directory))
    if is_search(command.directory):
        resume_search(command, console)
        return
    if os.path.isfile(command.directory / files.CONFIGS):
        resume_comparison(command, console)
        return
    config = to_resume(command.directory, command.rounds)
    check_fields(command, "devices", "rounds")
    settle(command, command.devices or config.devices, console)
    tracking = Tracking(command.track, {config.name: command.directory})
    with Follower([config], console) as follow, tracking as track:
        options = {"devices": command.devices, "rounds": command.rounds}
        summary = experiment.resume(
            command.directory,
            **options,
            plugin=plugins(command.plugin),
            follow=each_of(follow, track),
        )
    run = RunRecord(summary, [], follow.configs[config.name])
    print_scores({config.name: run}, console)
    console.print(f"written to {command.directory}", markup=False, highlight=False)


def resume_comparison(command: Resume, console: Console) -> None:
    """`jaxfl resume`, of a comparison."""
    check_fields(command, "devices", "rounds")
    configs = comparison_to_resume(command.directory, command.rounds)
    settle(command, command.devices or configs[0].devices, console)
    tracking = Tracking(command.track, run_directories(configs, command.directory))
    with Follower(configs, console) as follow, tracking as track:
        options = {"devices": command.devices, "rounds": command.rounds}
        experiment.resume_comparison(
            command.directory,
            **options,
            plugin=plugins(command.plugin),
            follow=each_of(follow, track),
        )
    if mesh.is_main_process():
        print_scores(load_finished([command.directory]), console)
        console.print(f"written to {command.directory}", markup=False, highlight=False)


def is_search(directory: Path) -> bool:
    """Whether `jaxfl resume` goes on with a search there."""
    return os.path.isfile(directory / files.PLAN)


def compare(command: Compare, console: Console) -> None:
    """`jaxfl compare`."""
    configs = configs_of(command)
    settle(command, command.devices, console)
    with directory(command.out, "compare") as out:
        tracking = Tracking(command.track, run_directories(configs, out))
        with Follower(configs, console) as follow, tracking as track:
            options = {"overwrite": command.overwrite, "equal_budget": command.equal_budget}
            summaries = experiment.compare(configs, out, **options, follow=each_of(follow, track))
        runs = {
            name: RunRecord(summary, [], follow.configs[name])
            for name, summary in summaries.items()
        }
        show_comparison(command, configs, runs, out, console)


def configs_of(command: Compare) -> list[Config]:
    """The runs of a comparison."""
    words = tuple(ALGORITHMS) if command.algorithms == ("all",) else command.algorithms
    methods = parse_methods(words)
    algorithms = [algorithm for algorithm, _ in methods.values()]
    preset_hyper = preset(command.preset).hyper if command.preset else {}
    shared = hyper_by_algorithm(parse_hyper(command.hyper), algorithms)
    return [
        Config(
            **setting(command),
            algorithm=algorithm,
            hyper=preset_hyper.get(algorithm, {}) | shared[algorithm] | hyper,
            label=None if word == algorithm else word,
            plugin=plugins(command.plugin),
        )
        for word, (algorithm, hyper) in methods.items()
    ]


def show_comparison(
    command: Compare, configs: list[Config], runs: Runs, out: Path, console: Console
) -> None:
    """Prints what has come out of a comparison.

    Args:
      command: of the comparison.
      configs: of its runs.
      runs: the finished runs, by name.
      out: its directory.
      console: where to print.
    """
    print_scores(runs, console)
    directories = run_directories(configs, out)
    locations = {config.name: (config.algorithm, directories[config.name]) for config in configs}
    show_protocol(command, locations, console)
    if command.preset == DEMONSTRATION:
        console.print(
            f"This is the demonstration (--preset {DEMONSTRATION}). With --dataset or another "
            "option of the data, its data are not used.",
            markup=False,
            highlight=False,
        )
    console.print(f"written to {out}", markup=False, highlight=False)


def show_protocol(
    command: Run | Compare, runs: dict[str, tuple[str, Path]], console: Console
) -> None:
    """Prints the scores of runs as the table of the command's preset takes them, if it has one.

    Args:
      command: names the preset.
      runs: label -> algorithm and directory.
      console: where to print.
    """
    if command.preset is None or not mesh.is_main_process():
        return
    protocol = preset(command.preset)
    if (protocol.rule, protocol.stage, protocol.stages) == ("last", "deployed", {}):
        return  # the table of scores says the same
    title = f"{command.preset}, {protocol.rule}"
    metrics = command.metric
    table = Table("", escape(alone_name(metrics)), title=title, title_justify="left")
    for label, (algorithm, out) in runs.items():
        stage = protocol.stage_of(algorithm)
        if stage != "deployed" and command.score_after != "trained":
            table.add_row(Text(label), f"- (its stage needs --score-after trained: {stage})")
            continue
        clients = read_arrays(out / "clients.npz")
        stored = scoring.scores(clients, protocol.rule, stage)
        scores = [alone_value(metrics, score) for score in stored]
        spread = f" ± {np.std(scores, ddof=1):.4f}" if len(scores) > 1 else ""
        table.add_row(Text(label), f"{np.mean(scores):.4f}{spread}")
    console.print(table)


def sweep(command: Sweep, console: Console) -> None:
    """`jaxfl sweep`."""
    config, some = trials_of(command)
    settle(command, command.devices, console)
    with directory(command.out, "sweep") as out:
        options = {"overwrite": command.overwrite, "show_test": command.show_test}
        with SearchFollower(console, config.metric) as follow:
            trials = search.search(config, some, out, **options, follow=follow)
    show_trials(trials, dataclasses.asdict(config), command.show_test, out, console)


def trials_of(command: Sweep) -> tuple[Config, list[points.Point]]:
    """The run of a search, and what is to be tried."""
    space = points.parse_space(command.over, parse_value)
    check(
        bool(space),
        "nothing to vary: give --over NAME=VALUE,VALUE, for example --over alpha=0.2,0.5,0.8",
    )
    ranges = [name for name, choice in space.items() if isinstance(choice, tuple)]
    lists = {name: choice for name, choice in space.items() if isinstance(choice, list)}
    check(
        not ranges or command.trials is not None,
        f"{', '.join(ranges)}: a range needs --trials, how many to draw",
    )
    check_fields(command, "trials")
    config = Config(
        **setting(command),
        algorithm=command.algorithm,
        hyper=parse_hyper(command.hyper),
        plugin=plugins(command.plugin),
    )
    if command.trials:
        return config, points.random_points(space, command.trials, command.seed)
    return config, points.grid_points(lists)


def resume_search(command: Resume, console: Console) -> None:
    """`jaxfl resume`, of a search."""
    check_as_it_began(command)
    config, plan = search.search_to_resume(command.directory)
    settle(command, config.devices, console)
    with SearchFollower(console, config.metric) as follow:
        trials = search.resume_search(
            command.directory, plugin=plugins(command.plugin), follow=follow
        )
    show_trials(trials, plan["config"], plan["show_test"], command.directory, console)


def check_as_it_began(command: Resume) -> None:
    """Raises an `InputError` if an option would change a search that goes on."""
    together = ("coordinator", "processes", "process", "cluster", "join_timeout")
    fixed = ("rounds", "devices", "track", *together)
    names = [option(name) for name in fixed if getattr(command, name) not in (None, False)]
    check(
        not names,
        f"a search goes on as it began, in one process: leave out {' and '.join(names)}",
    )


def show_search(out: Path, console: Console) -> None:
    """Prints the best trials of a finished search, by its files."""
    plan, found = read_plan(out / files.PLAN), read_search(out / "sweep.json")
    trials: list[Trial] = [
        {**trial, "test": trial.get("test_not_for_choosing")} for trial in found["trials"]
    ]
    trials[0] = found["best"]
    show_trials(trials, plan["config"], plan["show_test"], out, console)


def show_trials(
    trials: list[Trial], options: dict[str, Any], show_test: bool, out: Path, console: Console
) -> None:
    """Prints the best trials of a search.

    Args:
      trials: the best first.
      options: of the config of the trials.
      show_test: whether their test scores are shown too.
      out: the directory of the search.
      console: where to print.
    """
    columns: list[Literal["val", "test"]] = ["val", "test"] if show_test else ["val"]
    metrics = options.get("metric", ())
    name = escape(alone_name(metrics))
    titles = {"val": "validation", "test": "test (not for choosing)"}
    if metrics:
        titles["val"] = f"validation {name}"
    heads = [*map(visible, trials[0]["point"]), *(titles[column] for column in columns)]
    table = Table(*heads, title=options["algorithm"], title_justify="left")
    for trial in trials[:20]:
        cells = [
            f"{value:.4g}" if isinstance(value, float) else Text(visible(str(value)))
            for value in trial["point"].values()
        ]
        scores = [alone_text(metrics, trial[column]) for column in columns]
        table.add_row(*cells, *scores)
    console.print(table)
    test = trials[0]["test"]
    value = alone_text(metrics, test)
    console.print("no test score" if test is None else f"test {name} of the first: {value}")
    console.print(
        f"written to {out}; jaxfl run --config {out / 'best.json'} runs the first",
        markup=False,
        highlight=False,
    )


COMMANDS = {
    Run: run,
    Resume: resume,
    Compare: compare,
    Sweep: sweep,
    Describe: describe,
    Prepare: prepare,
    List: show,
    Predict: predict,
    Report: report,
    Cite: cite,
}
