"""What the files of runs, comparisons and searches hold, as types; `read_records` reads them.

A file is valid if each field that its type names has a value of this type. Further fields
are left alone. docs/files.md says what the fields mean.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np

from jaxfl.experiment.config import Config
from jaxfl.experiment.privacy.guarantee import Privacy
from jaxfl.simulation.statistics import (
    RoundStatistics,
    SeedStatistics,
    Stopped,
    TimedStatistics,
    each_seed,
)

# Measures of mixing weights by name; of a model whose parts have their own weights, by part.
GraphMeasures = dict[str, float | dict[str, float | None] | None]


class InputArray(TypedDict):
    """One array of several that the models of a run take."""

    shape: list[int]  # of one example
    dtype: str
    scale: float | None  # None: models see it as it is
    vocabulary: list[int]


class Inputs(TypedDict):
    """What the models of a run take and predict."""

    shape: list[int]  # of one example
    dtype: str
    classes: int  # 0 if the targets are numbers
    scale: float | list[float]  # models see (x - shift) / scale
    shift: float | list[float]
    vocabulary: list[int]  # number of ids in x, if these are ids
    # shape of the targets of an example, if they are several
    target: NotRequired[list[int]]
    # by their names, where an input is a dict of arrays; `shape` and `vocabulary` are then empty
    arrays: NotRequired[dict[str, InputArray]]
    several: NotRequired[bool]  # an example may have several labels
    survival: NotRequired[bool]  # targets are times to an event
    ends: NotRequired[list[float]]  # of the bins of time whose hazards the models predict
    class_names: NotRequired[list[str]]
    # of data of `jaxfl prepare csv`: what a CSV file becomes, see `data.table.schema`
    schema: NotRequired[str]


class Amounts(TypedDict):
    """What all clients sent, received and computed in all rounds so far, mean over the seeds."""

    up: int  # floats
    down: int
    up_bytes: int
    batches: int  # on which a gradient was computed


class Traffic(Amounts):
    """The same, and the uploads of a run that loses some."""

    reported: NotRequired[int]
    lost: NotRequired[int]


class FurtherScores(SeedStatistics):
    """The scores by one more metric in a line of `metrics.jsonl`."""

    unseen: NotRequired[SeedStatistics]


class FurtherSummary(TypedDict):
    """The scores by one more metric in `summary.json`.

    Those that are selected are of the evaluation that the first metric selects.
    """

    final: SeedStatistics
    selected_on_val: SeedStatistics
    unseen: NotRequired[SeedStatistics]
    constant: NotRequired[FurtherScores]  # of the constant predictors


class Line(RoundStatistics, Traffic):
    """A line of `metrics.jsonl`."""

    seconds: float
    loss: float | None
    unseen: NotRequired[SeedStatistics]  # of the clients that take part in no round
    scores: NotRequired[dict[str, FurtherScores]]  # by each further metric
    metrics: NotRequired[dict[str, float | None]]  # that the method defines
    graph: NotRequired[GraphMeasures]
    diverged: NotRequired[list[int]]  # ids of clients
    # the share of the clients whose deployed model predicts one label for all of their test
    # examples, of the clients whose test examples have several
    one_label: NotRequired[float]


class LineOfRun(Line):
    """A line, and what its scores are."""

    measure: str
    stopped: NotRequired[Stopped]  # of the last line of such a run


class RunName(TypedDict):
    """The method of a run, and the label of the run if it has one."""

    algorithm: str
    label: NotRequired[str]


class Summary(RunName, TimedStatistics, Traffic):
    """The content of `summary.json`."""

    measure: str  # the metric of these scores, the first one that was named
    final: SeedStatistics
    selected_on_val: SeedStatistics
    unseen: NotRequired[SeedStatistics]
    scores: NotRequired[dict[str, FurtherSummary]]  # by each further metric
    constant: NotRequired[FurtherScores]  # of the constant predictors, see `session.constant`
    one_label: NotRequired[float]  # that of the last line
    rounds: NotRequired[int]
    stopped: NotRequired[Stopped]
    seconds: float
    compile_seconds: float
    graph: NotRequired[GraphMeasures]
    diverged: NotRequired[dict[str, int]]  # id of a client -> rounds that it was left out of
    privacy: NotRequired[Privacy]
    inputs: NotRequired[Inputs]
    clients: NotRequired[list[str]]  # the names of the clients, if they have some
    devices: NotRequired[int]
    versions: NotRequired[dict[str, str]]


class ComparisonRun(TypedDict):
    """What is read of an entry of `comparison.json`."""

    algorithm: str
    directory: str


class ComparisonEntry(ComparisonRun, TimedStatistics, Amounts):
    """An entry of `comparison.json`."""

    run: str  # its label in the table
    stopped: NotRequired[Stopped]
    measure: str
    final: SeedStatistics
    selected_on_val: SeedStatistics
    unseen: NotRequired[SeedStatistics]
    scores: NotRequired[dict[str, FurtherSummary]]
    constant: NotRequired[FurtherScores]
    one_label: NotRequired[float]
    seconds: float
    compile_seconds: float
    graph: NotRequired[GraphMeasures]


class Trial(TypedDict):
    """A trial of a search: mean scores of the deployed models, None if there are none."""

    point: dict[str, Any]  # a value for each name that is searched
    val: float | None
    test: float | None


class TrialEntry(TypedDict):
    """A trial in `sweep.json`, whose test score is written only on demand."""

    point: dict[str, Any]
    val: float | None
    test_not_for_choosing: NotRequired[float | None]


class Digests(TypedDict):
    """What a run, or the runs of a comparison or of a search read."""

    data: list[str]  # SHA-256 of the clients' data of each setting
    files: dict[str, str]  # that of each other file, by the option that names it, and its path


class Plan(TypedDict):
    """What a search is to try: the content of `search.json`."""

    config: dict[str, Any]
    points: list[dict[str, Any]]
    show_test: bool
    inputs: Digests


class TrialLine(TypedDict):
    """A line of `trials.jsonl`: a trial of a search that is under way."""

    place: int  # in the list of points
    val: float | None
    test_not_for_choosing: float | None


class Search(TypedDict):
    """The content of `sweep.json`."""

    trials: list[TrialEntry]  # the best first
    best: Trial


@dataclass(frozen=True)
class RunRecord:
    """A finished run as tables and pictures take it.

    Attributes:
      summary: that of `summary.json`.
      lines: those of `metrics.jsonl`.
      config: None if there is none that this version can read.
      name: its label or its algorithm; None if only the table has a name for it.
      directory: where it lies; None if it was not read from files.
      client_scores: the last test scores of the deployed models of a run of one seed [C], NaN for
        clients that do not count; None if they were not asked for.
      pooled_seeds: the seeds, of runs that are taken for one run of several seeds.
      pooled_directories: where these runs lie, in the order of their seeds.
    """

    summary: Summary
    lines: list[Line]
    config: Config | None = None
    name: str | None = None
    directory: Path | None = None
    client_scores: np.ndarray | None = None
    pooled_seeds: tuple[int, ...] = ()
    pooled_directories: tuple[Path, ...] = ()

    @property
    def directories(self) -> tuple[Path, ...]:
        """Where it lies; of runs that are taken for one, where each of them lies."""
        return self.pooled_directories or (() if self.directory is None else (self.directory,))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds; counted from 0 where the config is unknown."""
        if self.pooled_seeds:
            return self.pooled_seeds
        if self.config is None:
            return tuple(range(len(each_seed(self.summary["final"]))))
        return tuple(range(self.config.seed, self.config.seed + self.config.seeds))

    @property
    def folds(self) -> int:
        """The folds of each seed; 1 where the config is unknown."""
        return 1 if self.config is None else self.config.folds

    @property
    def members(self) -> list[tuple[int, int]]:
        """The seed and the fold of each entry of `seeds` in the summary."""
        return [(seed, fold) for seed in self.seeds for fold in range(self.folds)]

    @property
    def hyper(self) -> dict[str, Any]:
        """The hyper-parameters that were given; none where the config is unknown."""
        return {} if self.config is None else self.config.hyper

    def option(self, name: str) -> Any:
        """The value of an option; None where the config is unknown."""
        return None if self.config is None else getattr(self.config, name)


Runs = dict[str, RunRecord]  # by the label in tables
