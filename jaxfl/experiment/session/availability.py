"""The virtual clock of a run: its cohorts if clients arrive late, and its times."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError, check
from jaxfl.core.facts import facts_of
from jaxfl.core.types import Loss, Participation, Work
from jaxfl.experiment.config import Setting, has_clock
from jaxfl.experiment.config.fields import value_of
from jaxfl.experiment.session.clients import unseen
from jaxfl.simulation import clock, participation, work
from jaxfl.simulation.statistics import TimedStatistics


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


def make_timing(config: Setting) -> Timing | None:
    """The virtual clock of a run; None if it has none.

    Raises:
      InputError: the file of durations does not fit, or an asynchronous step would wait for all
        clients.
    """
    if not has_clock(config):
        return None
    clients = value_of(config.clients)
    if config.durations is None:
        durations = clock.log_normal(clients, value_of(config.speeds), config.speed_seed)
    else:
        durations = clock.given_durations(config.durations, clients)
    if config.arrivals == "synchronous":
        return Timing(durations)
    seen = np.flatnonzero(~unseen(config))
    sample = participation.uniform(seen.size, config.participation)
    buffer = jax.eval_shape(sample, jax.random.key(0), 0).size
    check(
        buffer < seen.size,
        f"--arrivals asynchronous waits for all {seen.size} clients with --participation "
        f"{config.participation}: give a smaller fraction, such as 0.1",
    )
    places, times = clock.arrivals(durations[seen], buffer, config.rounds)
    return Timing(durations, seen[places], times)


def make_participation(config: Setting, timing: Timing | None) -> Participation:
    """The clients that arrive, or a uniform sample in each round, without those that are in none.

    Args:
      config: of the run.
      timing: its virtual clock.
    """
    if timing is not None and timing.ids is not None:
        return participation.schedule(timing.ids)
    seen = np.flatnonzero(~unseen(config))
    sample = participation.uniform(seen.size, config.participation)
    return sample if seen.size == config.clients else participation.among(seen, sample)


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
        f"--arrivals asynchronous: clients of {algorithm} train from {newest}, which did not exist "
        "when late clients began: choose fedasync, fedbuff or a method whose clients train from "
        "what they have received last, such as pfedgraph (a method of your own says so by "
        "starts_from_server=False among its facts)"
    )


def time_of(timing: Timing | None, elapsed: np.ndarray) -> TimedStatistics:
    """`time` of a line of `metrics.jsonl`, the mean over the seeds, and `times` of several seeds.

    Args:
      timing: of the run; without one there is no time.
      elapsed: the time of each seed [S].
    """
    if timing is None:
        return {}
    found: TimedStatistics = {"time": float(elapsed.mean())}
    if len(elapsed) > 1:
        found["times"] = elapsed.tolist()
    return found


def given_fractions(setting: Setting, clients: int) -> np.ndarray | None:
    """The part of its local steps that each client takes [C], where a file has it.

    Args:
      setting: of the run.
      clients: C.

    Raises:
      InputError: the file does not have a fraction for each client.
    """
    if setting.work_file is None:
        return None
    return work.read_fractions(setting.work_file, clients)


def make_work(setting: Setting, fractions: np.ndarray | None) -> Work | None:
    """How much of its local training each client does, None if all clients do all of it.

    Args:
      setting: of the run.
      fractions: see `given_fractions`.
    """
    if fractions is not None:
        return work.given(fractions)
    if setting.stragglers == 0:
        return None
    return work.stragglers(
        setting.stragglers, least=setting.least_work, epochs=setting.local_epochs
    )


def make_loss(setting: Setting) -> Loss | None:
    """Whose uploads are lost in a round, None if all arrive."""
    if setting.drop == 0 and not setting.drop_stragglers:
        return None
    return work.drop(setting.drop, stragglers=setting.drop_stragglers)
