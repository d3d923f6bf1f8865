"""Who is available when: the cohorts of a run, and its virtual clock."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError, check
from jaxfl.core.facts import facts_of
from jaxfl.core.types import Participation
from jaxfl.experiment.config.fields import ClockOptions
from jaxfl.simulation import clock, participation


class Timing(NamedTuple):
    """The times of a run, the same for all its seeds."""

    # the time that each client takes for a round
    durations: Float[np.ndarray, "c"]
    # of an asynchronous run: the clients that arrive for each step of the server
    ids: Int[np.ndarray, "t m"] | None = None
    # likewise: when it takes the step
    times: Float[np.ndarray, "t"] | None = None

    def after(self, ids: np.ndarray, elapsed: np.ndarray, number: int) -> np.ndarray:
        """The time of each seed after some rounds [S].

        Args:
          ids: the cohorts of these rounds [S, L, M].
          elapsed: the time before them [S].
          number: how many rounds are done after them.
        """
        if self.times is None:
            return clock.waiting(ids, self.durations, elapsed)[:, -1]
        return np.full(len(ids), self.times[number - 1])


def make_timing(
    options: ClockOptions, seen: Int[np.ndarray, "n"], clients: int, fraction: float, rounds: int
) -> Timing | None:
    """The virtual clock of a run; None if none runs.

    Args:
      options: of the clock.
      seen: the clients that take part.
      clients: the number of all clients.
      fraction: of those that take part, in each round; where clients arrive asynchronously, for
        whose arrival a step of the server waits.
      rounds: of the run.

    Raises:
      InputError: the file of durations does not fit, or an asynchronous step would wait for all
        clients.
    """
    if options.durations is not None:
        durations = clock.given_durations(options.durations, clients)
    elif options.speeds is not None:
        durations = clock.log_normal(clients, options.speeds, options.speed_seed)
    else:
        return None
    if options.arrivals == "synchronous":
        return Timing(durations)
    sample = participation.uniform(seen.size, fraction)
    buffer = jax.eval_shape(sample, jax.random.key(0), 0).size
    check(
        buffer < seen.size,
        f"arrivals=asynchronous waits for all {seen.size} clients with --participation "
        f"{fraction}: give a smaller fraction, such as 0.1",
    )
    places, times = clock.arrivals(durations[seen], buffer, rounds)
    return Timing(durations, seen[places], times)


def make_participation(
    timing: Timing | None,
    seen: Int[np.ndarray, "n"],
    architecture_of: Int[np.ndarray, "c"],
    fraction: float,
) -> Participation:
    """The clients that arrive, or a uniform sample in each round, without those that are in none.

    Of several architectures it is a sample of as many of each.

    Args:
      timing: the virtual clock, if one runs.
      seen: the clients that take part.
      architecture_of: the number of each client's model.
      fraction: of those that take part, in each round.

    Raises:
      InputError: clients with several models are to arrive asynchronously.
    """
    clients, kinds = architecture_of.size, architecture_of.max() + 1
    if timing is not None and timing.ids is not None:
        check(
            kinds == 1,
            "arrivals=asynchronous, and clients have several models: a round needs as many clients "
            "of each, leave it out",
        )
        return participation.schedule(timing.ids)
    if kinds > 1 and fraction < 1:
        each = max(1, round(fraction * clients / kinds))
        return participation.stratified(architecture_of, min(each, clients // kinds))
    sample = participation.uniform(seen.size, fraction)
    return sample if seen.size == clients else participation.among(seen, sample)


def check_late(arrivals: str, algorithm: str) -> None:
    """Raises an `InputError` if clients that arrive late train from what is newer than their start.

    Args:
      arrivals: "synchronous" or "asynchronous".
      algorithm: the name of the method, which states what its clients train from.
    """
    if arrivals == "synchronous":
        return
    facts = facts_of(ALGORITHMS[algorithm])
    if facts.mixes_before_training:
        newest = "mixtures of what others have sent by now"
    elif facts.starts_from_server:
        newest = "the server's newest model"
    else:
        return
    raise InputError(
        f"arrivals=asynchronous: clients of {algorithm} train from {newest}, which did not exist "
        "when late clients began: choose fedasync, fedbuff or a method whose clients train from "
        "what they have received last, such as pfedgraph (a method of your own says so by "
        "starts_from_server=False among its facts)"
    )
