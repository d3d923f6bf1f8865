"""The types of scores in results and files: statistics over clients, by stage and by seed."""

from typing import Literal, NotRequired, TypedDict

# What a score is. A score of "rmse" is stored as minus the mean squared error.
Measure = Literal["accuracy", "rmse"]
Statistic = Literal["mean", "weighted", "std", "worst10"]


class Statistics(TypedDict):
    """The numbers that papers report for one evaluation, each None if no client has a score."""

    mean: float | None
    weighted: float | None  # the mean weighted by the clients' numbers of examples
    std: float | None  # over clients
    worst10: float | None  # the mean of the worst tenth of the clients


class StageStatistics(TypedDict):
    """The statistics of each stage that was scored, see `jaxfl.simulation.evaluate.Evaluation`."""

    deployed: Statistics
    trained: NotRequired[Statistics]
    fine_tuned: NotRequired[Statistics]


class SeedStatistics(StageStatistics):
    """The mean over the seeds; of several seeds also those of each seed."""

    seeds: NotRequired[list[StageStatistics]]


class RoundStatistics(SeedStatistics):
    """The statistics after a round, and the time on the virtual clock of a run that has one."""

    round: int
    time: NotRequired[float]  # the mean over the seeds
    times: NotRequired[list[float]]  # of each seed


class Reached(TypedDict):
    """When a seed first had a target score: None if it never had."""

    round: NotRequired[float | None]
    time: NotRequired[float | None]  # on the virtual clock of a run that has one


class Target(Reached):
    """A target score, and the mean over the seeds of when they had it: None if a seed never had."""

    score: float
    seeds: NotRequired[list[Reached]]  # of several seeds


class TimedStatistics(TypedDict):
    """What a summary says of the virtual clock and of a target, if the run has them."""

    time: NotRequired[float]
    times: NotRequired[list[float]]
    target: NotRequired[Target]
