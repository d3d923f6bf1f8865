"""`jaxfl sweep`, and `jaxfl resume` of a search."""

import dataclasses
import os
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from jaxfl.cli.command_options import Resume, Sweep
from jaxfl.cli.progress import SearchFollower
from jaxfl.cli.start import directory, plugins, setting, settle
from jaxfl.core.errors import check
from jaxfl.core.text import visible
from jaxfl.experiment.config import Config, parse_hyper, parse_value
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.config.hints import check_fields
from jaxfl.experiment.config.json_text import with_none
from jaxfl.experiment.store import files
from jaxfl.experiment.store.read_records import read_plan, read_search
from jaxfl.experiment.store.records import Trial
from jaxfl.experiment.studies import points
from jaxfl.experiment.studies import sweep as search
from jaxfl.experiment.tables.scores import alone_name, alone_text


def is_search(directory: Path) -> bool:
    """Whether `jaxfl resume` goes on with a search there."""
    return os.path.isfile(directory / files.PLAN)


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
        hyper=with_none(command.algorithm, parse_hyper(command.hyper)),
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
    fixed = ("rounds", "devices", "track", "join")
    names = [option(name) for name in fixed if getattr(command, name) is not None]
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
