"""What each command does. JAX starts to compute only once processes and devices are settled."""

import os
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from jaxfl import experiment
from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import supervisor
from jaxfl.cli.choices import cite, describe
from jaxfl.cli.command_options import (
    Cite,
    Compare,
    Describe,
    List,
    Predict,
    Prepare,
    Report,
    Resume,
    Run,
    Sweep,
    Worth,
)
from jaxfl.cli.listing import show
from jaxfl.cli.predict import predict
from jaxfl.cli.prepare_data import prepare
from jaxfl.cli.progress import Follower
from jaxfl.cli.report import report
from jaxfl.cli.search import is_search, resume_search, sweep
from jaxfl.cli.start import directory, plugins, setting, settle
from jaxfl.cli.worth import worth
from jaxfl.core.errors import check
from jaxfl.experiment.config import (
    Config,
    hyper_by_algorithm,
    load_config,
    parse_hyper,
    parse_methods,
    preset,
)
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.config.json_text import with_none
from jaxfl.experiment.reading.by_client import ALONE, client_answers
from jaxfl.experiment.reading.client_tables import client_sections
from jaxfl.experiment.session.run import to_resume
from jaxfl.experiment.store import files
from jaxfl.experiment.store.files import read_arrays
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.store.records import RunRecord, Runs
from jaxfl.experiment.studies.compare import comparison_to_resume, run_directories
from jaxfl.experiment.tables.formats import print_scores, print_sections
from jaxfl.experiment.tables.scores import alone_name, alone_value
from jaxfl.experiment.trackers import Tracking, each_of
from jaxfl.simulation import processes, scoring

# The preset of `jaxfl compare` where no option says anything about the data.
DEMONSTRATION = "demo"


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
        hyper=hyper | with_none(algorithm, parse_hyper(command.hyper)),
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
        summary = experiment.resume(
            command.directory,
            devices=command.devices,
            rounds=command.rounds,
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
    if processes.is_main_process():
        print_scores(load_finished([command.directory]), console)
        console.print(f"written to {command.directory}", markup=False, highlight=False)


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
    if command.preset and preset(command.preset).by_client:
        show_clients(out, console)
    if command.preset == DEMONSTRATION:
        console.print(
            f"This is the demonstration (--preset {DEMONSTRATION}). With --dataset or another "
            "option of the data, its data are not used.",
            markup=False,
            highlight=False,
        )
    console.print(f"written to {out}", markup=False, highlight=False)


def show_clients(out: Path, console: Console) -> None:
    """Prints what each client gains, as `jaxfl report --clients` does, where there is a `local`.

    Args:
      out: the directory of a comparison.
      console: where to print.
    """
    if not processes.is_main_process():
        return
    runs = load_finished([out])
    if any(run.summary["algorithm"] == ALONE for run in runs.values()):
        tables = [table for one in client_answers(runs) for table in client_sections(one)]
        print_sections(tables, console)


def show_protocol(
    command: Run | Compare, runs: dict[str, tuple[str, Path]], console: Console
) -> None:
    """Prints the scores of runs as the table of the command's preset takes them, if it has one.

    Args:
      command: names the preset.
      runs: label -> algorithm and directory.
      console: where to print.
    """
    if command.preset is None or not processes.is_main_process():
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
        spread = f" ±{np.std(scores, ddof=1):.4f}" if len(scores) > 1 else ""
        table.add_row(Text(label), f"{np.mean(scores):.4f}{spread}")
    console.print(table)


COMMANDS = {
    Run: run,
    Resume: resume,
    Compare: compare,
    Sweep: sweep,
    Describe: describe,
    Prepare: prepare,
    List: show,
    Predict: predict,
    Worth: worth,
    Report: report,
    Cite: cite,
}
