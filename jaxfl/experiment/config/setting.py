"""The complete description of a run: frozen dataclasses, checked when they are made."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.options import Names
from jaxfl.experiment.config import rules
from jaxfl.experiment.config.effects import check_together
from jaxfl.experiment.config.fields import (
    ClockOptions,
    DataOptions,
    KeepingOptions,
    ParticipationOptions,
    RunOptions,
    ScoreOptions,
    UploadOptions,
)
from jaxfl.experiment.config.hints import check_fields, hints, part
from jaxfl.experiment.config.notes import INPUT, NO_SCORE, PATH, RESUMABLE
from jaxfl.experiment.config.training_fields import ModelOptions, TrainingOptions


@dataclass(frozen=True)  # the fields of the last class come first
class SettingOptions(
    ClockOptions,
    KeepingOptions,
    ScoreOptions,
    RunOptions,
    ParticipationOptions,
    UploadOptions,
    TrainingOptions,
    ModelOptions,
    DataOptions,
):
    """Everything about a run but its algorithm, unchecked."""


@dataclass(frozen=True)
class Setting(SettingOptions):
    """Everything about a run but its algorithm.

    Raises:
      InputError: an option is out of its range, or two of them contradict each other.

    Example:
      >>> Setting(clients=10, participation=0.5).rounds
      20
    """

    def __post_init__(self):
        check_fields(self)
        check_together(self)
        rules.check_seeds(self.seed, self.seeds)
        rules.check_benign(self, self, self.clients)
        rules.check_noise(self, self)


@dataclass(frozen=True)
class Config(Setting):
    """One run: a setting, an algorithm and its hyper-parameters.

    Attributes:
      algorithm: what runs.
      hyper: its hyper-parameters by name.
      label: the name of the run in tables and pictures, where an algorithm is compared with itself
        under other hyper-parameters.
      plugin: the Python files that the command line ran first. Nothing runs them because they stand
        here.

    Raises:
      InputError: as `Setting`, or the algorithm has no such hyper-parameter or takes no such value.

    Example:
      >>> Config(algorithm="pfedgraph", hyper={"alpha": -1.0})
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: hyper-parameter alpha of pfedgraph is -1.0: expected ...
    """

    algorithm: Annotated[str, Names("algorithm", ALGORITHMS)] = "fedavg"
    hyper: dict[str, Any] = dataclasses.field(default_factory=dict)
    label: str | None = None
    plugin: Annotated[tuple[str, ...], PATH, INPUT, NO_SCORE, RESUMABLE] = ()

    def __post_init__(self):
        super().__post_init__()
        rules.check_hyper(self.algorithm, self.hyper)
        rules.check_label(self.label)

    @property
    def name(self) -> str:
        """The name of the run in tables and pictures: its label, or the algorithm."""
        return self.label or self.algorithm


@dataclass(frozen=True)
class ForeignConfig(Config):
    """The config of a finished run with names that only its plug-ins know: to show, not to run.

    Raises:
      InputError: a name cannot be printed, or a hyper-parameter is no value of a column.
    """

    def __post_init__(self):
        rules.check_label(self.label)
        rules.check_foreign(self.algorithm, self.hyper)


class Options(NamedTuple):
    """The options of a run by what they are about: a function takes those that it uses."""

    data: DataOptions
    model: ModelOptions
    training: TrainingOptions
    run: RunOptions
    participation: ParticipationOptions
    upload: UploadOptions
    scores: ScoreOptions
    keeping: KeepingOptions
    clock: ClockOptions


def by_subject(setting: Setting) -> Options:
    """The options of a setting, taken apart.

    Example:
      >>> by_subject(Config(rounds=5)).run.rounds
      5
    """
    return Options(*(part(setting, group) for group in hints(Options).values()))
