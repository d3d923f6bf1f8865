"""Progress of runs on the terminal."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from jaxfl.experiment.config import Config
from jaxfl.experiment.show.scores import MEASURES


class Follower:
    """A live progress bar, one task a run; nothing at all when the output is not a terminal."""

    def __init__(self, configs: list[Config], console: Console):
        self.progress = Progress(
            TextColumn("{task.description:<12}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks = {
            c.name: self.progress.add_task(c.name, total=c.rounds, state="") for c in configs
        }

    def __enter__(self) -> "Follower":
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def __call__(self, config: Config, line: dict[str, Any] | None) -> None:
        """Shows the round, the score and the speed of a run."""
        state = "compiling"
        if line is not None:
            name, shown, digits = MEASURES[line["measure"]]
            mean = line["before"]["mean"]
            score = "" if mean is None else f"{name} {shown(mean):{digits}}"
            state = f"{score}, {line['round'] / max(line['seconds'], 1e-9):.1f} rounds/s"
        done = 0 if line is None else line["round"]
        self.progress.update(self.tasks[config.name], completed=done, state=state)
