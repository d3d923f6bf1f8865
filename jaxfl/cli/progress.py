"""Progress of runs and searches on the terminal, or as plain lines where there is no terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from jaxfl.experiment.config import Config
from jaxfl.experiment.store.records import LineOfRun
from jaxfl.experiment.tables.scores import alone_name, alone_text
from jaxfl.simulation.metrics import metric_of

WAITING = "waiting"
READING = "reading data"
COMPILING = "compiling"
WRITING = "writing files"


class Follower:
    """Follows runs: on a terminal a live line for each run, with its score as it goes.

    The line says what is waited for: the data, compiling, rounds and the time left for them, files.
    Without a terminal, as in the log of a cluster, compiling and each evaluation are
    plain lines.

    Attributes:
      configs: of the runs that have begun, by name, with every option filled in.
    """

    def __init__(self, configs: list[Config], console: Console):
        self.configs: dict[str, Config] = {}
        # the last score of runs that write their files, by name
        self.finished: dict[str, str] = {}
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", table_column=Column(no_wrap=True)),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = {config.name: self._task(config) for config in configs}
        if configs:
            self.progress.update(self.tasks[configs[0].name], state=READING)

    def __enter__(self) -> "Follower":
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._show_finished()
        self.progress.stop()

    def __call__(self, config: Config, line: LineOfRun | None) -> None:
        """Shows the round, the score and the speed of a run."""
        self.configs[config.name] = config
        if config.name not in self.tasks:  # a run that a worker has taken
            self.tasks[config.name] = self._task(config)
        task = self.tasks[config.name]
        self._show_finished(besides=config.name)
        if line is None:
            self.progress.update(task, state=COMPILING)
            if not self.console.is_terminal:
                self.console.print(Text(f"{config.name}: {COMPILING}"), soft_wrap=True)
            return
        self.progress.start_task(task)
        metric = metric_of(line["measure"])
        mean = line["deployed"]["mean"]
        score = (
            "no score" if mean is None else f"{metric.title} {metric.shown(mean):{metric.format}}"
        )
        state = score
        stopped = line.get("stopped")
        if stopped is not None:
            best = f"the best by validation was round {stopped['best_round']}"
            score = f"{score}, stopped after round {stopped['round']} ({best})"
        if line["round"] == config.rounds or stopped is not None:
            self.finished[config.name] = score
            state = f"{score}, {WRITING}"
        self.progress.update(task, completed=line["round"], state=state)
        if not self.console.is_terminal:
            words = f"{config.name}: round {line['round']} of {config.rounds}, {score}, "
            self.console.print(Text(f"{words}{line['seconds']:.1f} s"), soft_wrap=True)

    def _show_finished(self, besides: str = "") -> None:
        """Shows the scores alone of runs whose files are written: another one goes on."""
        for name in self.finished.keys() - {besides}:
            self.progress.update(self.tasks[name], state=self.finished.pop(name))

    def _task(self, config: Config) -> TaskID:
        """The line of a run that has not begun."""
        name, rounds = config.name, config.rounds
        return self.progress.add_task(name, total=rounds, state=WAITING, start=False)


class SearchFollower:
    """Follows a search: a bar of its trials, or plain lines where there is no terminal.

    Args:
      console: where to print.
      metrics: that are named for the search.
    """

    def __init__(self, console: Console, metrics: Sequence[str] = ()):
        self.console = console
        self.metrics = metrics
        self.progress = Progress(
            TextColumn("trials"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("trials", total=None, state=COMPILING)

    def __enter__(self) -> "SearchFollower":
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def __call__(self, done: int, total: int, best: float | None) -> None:
        """Shows how many trials are done, and the best validation score so far."""
        state = COMPILING
        if best is not None:
            value = alone_text(self.metrics, best)
            state = f"best validation {alone_name(self.metrics)} {value}"
        self.progress.update(self.task, completed=done, total=total, state=state)
        if not self.console.is_terminal:
            self.console.print(Text(f"{done} of {total} trials done, {state}"), soft_wrap=True)
