"""Options of the virtual clock: how fast clients are, when the server takes a step, a target."""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxfl.errors import check
from jaxfl.experiment.config.fields import SEED
from jaxfl.options import POSITIVE, Range

# Beyond, the times of clients are too far apart to be added.
SPREAD = Range(low=0, high=10)


@dataclass(frozen=True)
class ClockOptions:
    """A virtual clock of clients that differ in speed, and when a target is reached."""

    speeds: Annotated[float | None, SPREAD] = None
    """clients take different times for a round: sigma of their log-normal distribution, whose
    median is 1, and 0 if all take 1; a virtual clock then runs beside the rounds"""
    speed_seed: Annotated[int, SEED] = 0
    """which clients are slow, whatever the seed of the run"""
    durations: str | None = None
    """NumPy file (.npy) with the time that each client takes for a round, in place of --speeds"""
    arrivals: Literal["synchronous", "asynchronous"] = "synchronous"
    """when a round ends: with the slowest client of a drawn cohort, or (asynchronous) as soon as
    --participation of all clients have arrived, while the others go on training"""
    target: Annotated[float | None, POSITIVE] = None
    """mean score of which the summary says when it is first reached: an accuracy in (0, 1], or an
    RMSE; in rounds, and in virtual time with --speeds or --durations"""


def has_clock(options: ClockOptions) -> bool:
    """Whether a virtual clock runs beside the rounds."""
    return options.speeds is not None or options.durations is not None


def check_clock(options: ClockOptions) -> None:
    """Raises an `InputError` if the times of the clients are given twice."""
    check(
        options.speeds is None or options.durations is None,
        "both --speeds and --durations are given: choose one",
    )


def check_target(options: ClockOptions, classes: int) -> None:
    """Raises an `InputError` if the target is no score of the data.

    Args:
      options: with the target.
      classes: of the data; 0 for numbers as targets.
    """
    check(
        options.target is None or not classes or options.target <= 1,
        f"--target is {options.target}: expected an accuracy in (0, 1], such as 0.8",
    )
