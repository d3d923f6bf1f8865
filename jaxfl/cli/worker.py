"""One worker of a comparison or a search: `jaxfl resume --worker`."""

import os

from rich.console import Console

from jaxfl import experiment
from jaxfl.cli.command_options import Compare, Resume
from jaxfl.cli.progress import Follower, SearchFollower
from jaxfl.cli.search import check_as_it_began, is_search, show_search
from jaxfl.cli.start import plugins, settle
from jaxfl.core.errors import check
from jaxfl.experiment.config import load_configs
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.store import files
from jaxfl.experiment.store.finished_runs import load_finished
from jaxfl.experiment.store.read_records import read_plan
from jaxfl.experiment.studies.compare import run_directories
from jaxfl.experiment.studies.workers import work_on_search
from jaxfl.experiment.tables.formats import print_scores
from jaxfl.experiment.trackers import Tracking, each_of


def work(command: Resume, console: Console) -> None:
    """`jaxfl resume --worker`."""
    check_workers(command)
    check_fields(command, "devices")
    work_here = share_trials if is_search(command.directory) else share_runs
    rest = work_here(command, console)
    if not rest:
        return
    names = [f"{name} ({who})" if who else name for name, who in rest.items()]
    console.print(
        f"nothing is left to take: the worker that ends last writes the table. Still under way: "
        f"{', '.join(names)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def share_runs(command: Resume, console: Console) -> dict[str, str]:
    """Takes runs of a comparison, and prints the table if they are all finished.

    Returns:
      As `experiment.work`.
    """
    out = command.directory
    configs = load_configs(out / files.CONFIGS)
    settle(command, command.devices or configs[0].devices, console)
    tracking = Tracking(command.track, run_directories(configs, out))
    with Follower([], console) as follow, tracking as track:
        rest = experiment.work(
            out,
            devices=command.devices,
            plugin=plugins(command.plugin),
            follow=each_of(follow, track),
        )
    if not rest:
        print_scores(load_finished([out]), console)
        console.print(f"written to {out}", markup=False, highlight=False)
    return rest


def share_trials(command: Resume, console: Console) -> dict[str, str]:
    """Takes trials of a search, and prints the best if they are all written.

    Returns:
      As `work_on_search`.
    """
    out = command.directory
    check_as_it_began(command)
    options = read_plan(out / files.PLAN)["config"]
    settle(command, options.get("devices", "auto"), console)
    with SearchFollower(console, options.get("metric", ())) as follow:
        rest = work_on_search(out, plugin=plugins(command.plugin), follow=follow)
    if not rest:
        show_search(out, console)
    return rest


def check_workers(command: Resume) -> None:
    """Raises an `InputError` if no workers can go on with what the directory holds."""
    directory = command.directory
    check(
        is_search(directory) or os.path.isfile(directory / files.CONFIGS),
        f"{directory} holds no comparison or search that workers could share: give the --out "
        "directory of jaxfl compare or jaxfl sweep",
    )
    check(
        command.rounds is None,
        "workers take runs as they were planned: give --rounds to jaxfl resume without workers",
    )
    check_one_process(command)


def check_one_process(command: Resume | Compare) -> None:
    """Raises an `InputError` if workers are to be several processes each."""
    check(command.join is None, "a worker is one process: leave out --join")
