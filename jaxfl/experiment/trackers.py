"""Sends what runs measure to a tracker: TensorBoard, Weights & Biases, MLflow or Trackio.

Each tracker is a function below, which opens a run of it. Its library is imported only if it is
asked for, and reads its own settings, such as `WANDB_MODE` or `MLFLOW_TRACKING_URI`.
"""

import dataclasses
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from flax.traverse_util import flatten_dict

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.options import checked
from jaxfl.experiment.config import Config
from jaxfl.experiment.session.run import Follow
from jaxfl.experiment.store.read_records import read_summary
from jaxfl.experiment.store.records import LineOfRun, Summary
from jaxfl.simulation import processes
from jaxfl.simulation.evaluation import STAGES
from jaxfl.simulation.metrics import METRICS, entry_of
from jaxfl.simulation.statistics import StageStatistics

Tracker = Literal["tensorboard", "wandb", "mlflow", "trackio"]

Number = float | int
Numbers = dict[str, Number]

PROJECT = "jaxfl"  # where the settings of a tracker name no project or experiment


class Tracked(NamedTuple):
    """A run of a tracker."""

    # takes in the numbers after a round: (numbers, round)
    log: Callable[[Numbers, int], None]
    # ends the run, with the numbers of its summary, none if it was stopped: (numbers, last round)
    close: Callable[[Numbers, int], None]


def tensorboard(name: str, directory: Path, options: dict[str, Any]) -> Tracked:
    """Event files in the folder `tensorboard` of the run's directory."""
    from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]

    writers = []

    def log(numbers: Numbers, step: int) -> None:
        if not writers:  # the files are made when the run has its directory
            writers.append(SummaryWriter(str(directory / "tensorboard"), purge_step=step))
            text = f"```\n{json.dumps(options, indent=2)}\n```"
            writers[0].add_text("config", text, step)
        for key, value in numbers.items():
            writers[0].add_scalar(key, value, step)
        writers[0].flush()

    def close(final: Numbers, step: int) -> None:
        if writers:
            log(final, step)
            writers[0].close()

    return Tracked(log, close)


def wandb(name: str, directory: Path, options: dict[str, Any]) -> Tracked:
    """A run of the project `WANDB_PROJECT` of Weights & Biases."""
    import wandb  # pyright: ignore[reportMissingImports]

    project = os.environ.get("WANDB_PROJECT", PROJECT)
    run = wandb.init(project=project, name=name, config=options, reinit="create_new")

    def close(final: Numbers, step: int) -> None:
        run.summary.update(final)
        run.finish(exit_code=0 if final else 1)

    return Tracked(lambda numbers, step: run.log(numbers, step=step), close)


def mlflow(name: str, directory: Path, options: dict[str, Any]) -> Tracked:
    """A run of the experiment `MLFLOW_EXPERIMENT_NAME`."""
    import mlflow  # pyright: ignore[reportMissingImports]

    experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
    run = mlflow.MlflowClient().create_run(experiment.experiment_id, run_name=name).info.run_id
    mlflow.log_params(options, run_id=run)

    def log(numbers: Numbers, step: int) -> None:
        mlflow.log_metrics(numbers, step=step, run_id=run)

    def close(final: Numbers, step: int) -> None:
        log(final, step)
        mlflow.MlflowClient().set_terminated(run, "FINISHED" if final else "KILLED")

    return Tracked(log, close)


def trackio(name: str, directory: Path, options: dict[str, Any]) -> Tracked:
    """A run of the project `TRACKIO_PROJECT`."""
    import trackio  # pyright: ignore[reportMissingImports]

    project = os.environ.get("TRACKIO_PROJECT", PROJECT)
    run = trackio.init(project=project, name=name, config=options, embed=False)

    def close(final: Numbers, step: int) -> None:
        if final:
            run.log(final, step=step)
        run.finish()

    return Tracked(lambda numbers, step: run.log(numbers, step=step), close)


# The function of each tracker, which opens a run of a name, and the library that it needs.
TRACKERS: dict[Tracker, tuple[Callable[[str, Path, dict[str, Any]], Tracked], str]] = {
    "tensorboard": (tensorboard, "tensorboardX"),
    "wandb": (wandb, "wandb"),
    "mlflow": (mlflow, "mlflow"),
    "trackio": (trackio, "trackio"),
}


class Tracking:
    """A `follow` for `execute`, `resume` and `compare` that sends what runs measure to a tracker.

    The runs may follow each other, as in a comparison: each is a run of the tracker. Use it as a
    context, which ends the last run. Of several processes, the first one tracks.

    A tracker that fails while a run is under way is left out with a warning: the run goes on.

    Args:
      tracker: which one; None for none.
      directories: of each run, by the name of its config.

    Raises:
      InputError: the tracker's library is not installed.
    """

    def __init__(self, tracker: Tracker | None, directories: dict[str, Path]):
        check_library(tracker)
        self.tracker: Tracker | None = tracker if processes.is_main_process() else None
        self.directories = directories
        self.config: Config | None = None
        self.run: Tracked | None = None
        self.step = 0

    def __enter__(self) -> "Tracking":
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def __call__(self, config: Config, line: LineOfRun | None) -> None:
        """Begins a run, or sends what is new of it.

        Raises:
          InputError: the tracker opens no run, for example because nobody is logged in.
        """
        if self.tracker is None:
            return
        if line is None:
            self.end()
            self.begin(config, self.tracker)
        # A finished run of a comparison that goes on has one line and does not begin.
        elif self.run is not None and self.config is not None and self.config.name == config.name:
            self.step = line["round"]
            try:
                self.run.log(numbers_of(line), self.step)
            except Exception as error:  # whatever a library raises
                self._leave_out(error)

    def begin(self, config: Config, tracker: Tracker) -> None:
        """Opens a run of the tracker, with all options of the config."""
        directory = self.directories[config.name]
        several = len(self.directories) > 1
        name = f"{directory.parent.name}/{directory.name}" if several else directory.name
        try:
            self.run = TRACKERS[tracker][0](name or config.name, directory, options_of(config))
        except Exception as error:  # whatever a library raises
            raise InputError(
                f"--track {tracker}: it opens no run ({' '.join(str(error).split()):.200}): mend "
                "its settings, or leave --track out"
            ) from error
        self.config = config
        self.step = 0

    def end(self) -> None:
        """Ends the run of the tracker that is open, if any."""
        if self.run is None or self.config is None:
            return
        summary = self.directories[self.config.name] / "summary.json"
        # Before the first evaluation it may be that of a run that is about to be replaced.
        record = read_summary(summary) if self.step and summary.exists() else None
        try:
            self.run.close(final_numbers(record) if record else {}, self.step)
        except Exception as error:  # whatever a library raises
            self._leave_out(error)
        self.run = None

    def _leave_out(self, error: Exception) -> None:
        self.run = None
        warn(f"--track {self.tracker} failed, and the run goes on without it: {error!r:.200}")


def each_of(*followers: Follow) -> Follow:
    """A `follow` that calls several, one after the other."""

    def follow(config: Config, line: LineOfRun | None) -> None:
        for one in followers:
            one(config, line)

    return follow


@checked
def check_library(tracker: Tracker | None) -> None:
    """Raises an `InputError` if the library of a tracker is not installed."""
    if tracker is None:
        return
    library = TRACKERS[tracker][1]
    check(
        library in sys.modules or importlib.util.find_spec(library) is not None,
        f"--track {tracker} needs {library}, which is not installed: pip install 'jaxfl[{tracker}]'"
        ", or leave --track out",
    )


def options_of(config: Config) -> dict[str, Any]:
    """All options of a config, hyper-parameters as `hyper.NAME`."""
    options = dataclasses.asdict(config)
    hyper = options.pop("hyper")
    return options | {f"hyper.{name}": value for name, value in hyper.items()}


def shown_name(metric: str) -> str:
    """The name of a stored score: "negative_log_loss" where lower values of the metric are better.

    Example:
      >>> shown_name("accuracy"), shown_name("log_loss"), shown_name("rmse")
      ('accuracy', 'negative_log_loss', 'negative_rmse')
      >>> shown_name("recall:died"), shown_name("recall:>50K")
      ('recall_of_died', 'recall_of__3e_50K')
    """
    entry = METRICS.get(entry_of(metric))
    # A class may have any name, and trackers take few letters.
    words = metric.replace(":", "_of_", 1)
    name = re.sub(r"[^\w. -]", lambda letter: f"_{ord(letter[0]):x}_", words)
    return f"negative_{name}" if entry is not None and entry.better == "lower" else name


def numbers_of(line: LineOfRun) -> Numbers:
    """The numbers of a line of metrics.jsonl under the names that a tracker shows.

    Args:
      line: with its `measure`. What is null there is left out.
    """
    measure = shown_name(line["measure"])
    numbers = _scores("test", line, measure) | {
        "train/loss": line["loss"],
        "train/batches": line["batches"],
        "time/seconds": line["seconds"],
        "time/virtual": line.get("time"),
        "sent/up_floats": line["up"],
        "sent/down_floats": line["down"],
        "sent/up_bytes": line["up_bytes"],
    }
    if "unseen" in line:
        numbers |= _scores("unseen", line["unseen"], measure)
    for name, scores in line.get("scores", {}).items():
        numbers[f"test/{shown_name(name)}"] = scores["deployed"]["mean"]
    numbers |= {f"method/{name}": value for name, value in line.get("metrics", {}).items()}
    numbers |= flatten_dict({"graph": line.get("graph", {})}, sep="/")
    return {name: value for name, value in numbers.items() if value is not None}


def final_numbers(summary: Summary) -> Numbers:
    """The numbers of a summary.json under the names that a tracker shows."""
    measure = shown_name(summary["measure"])
    numbers = _scores("final", summary["final"], measure)
    numbers |= _scores("selected_on_val", summary["selected_on_val"], measure)
    for name, further in summary.get("scores", {}).items():
        for group in ("final", "selected_on_val"):
            numbers[f"{group}/{shown_name(name)}"] = further[group]["deployed"]["mean"]
    return {name: value for name, value in numbers.items() if value is not None}


def _scores(group: str, stages: StageStatistics, measure: str) -> dict[str, Number | None]:
    """The scores of the deployed models, and those of other stages under their names."""
    numbers = {f"{group}/{measure}_weighted": stages["deployed"]["weighted"]}
    for stage in STAGES:
        if scores := stages.get(stage):
            behind = "" if stage == "deployed" else f"_{stage}"
            numbers[f"{group}/{measure}{behind}"] = scores["mean"]
            numbers[f"{group}/worst10{behind}"] = scores["worst10"]
    return numbers
