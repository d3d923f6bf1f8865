"""The virtual clock of a run: its cohorts if clients arrive late, and its times."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jaxfl.core.dataflow import follow, mark, traced_call
from jaxfl.core.errors import InputError, check
from jaxfl.core.facts import facts_of
from jaxfl.core.types import (
    AlgorithmFactory,
    Cohort,
    Dataset,
    Federation,
    Loss,
    Participation,
    State,
    Task,
    Work,
)
from jaxfl.experiment.config import Config, Setting, has_clock
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
    if config.durations is None:
        durations = clock.log_normal(config.clients, config.speeds, config.speed_seed)
    else:
        durations = clock.given_durations(config.durations, config.clients)
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


def check_late(config: Config, factory: AlgorithmFactory, task: Task, first: Federation) -> None:
    """Raises an `InputError` if clients that arrive late train from what is newer than their start.

    Args:
      config: of the run.
      factory: its method.
      task: what the method is given.
      first: the federation of the first seed.
    """
    if config.arrivals == "synchronous":
        return
    if facts_of(factory).mixes_before_training:
        newest = "mixtures of what others have sent by now"
    elif starts_from_server(factory, task, config.hyper, first):
        newest = "the server's newest model"
    else:
        return
    raise InputError(
        f"--arrivals asynchronous: clients of {config.algorithm} train from {newest}, which did "
        "not exist when late clients began: choose fedasync, fedbuff or a method whose clients "
        "train from what they have received last, such as pfedgraph"
    )


def starts_from_server(
    factory: AlgorithmFactory, task: Task, hyper: dict[str, Any], federation: Federation
) -> bool:
    """Whether local training begins from the server's state, or is drawn to it.

    If not, clients train from what they have kept since they last took part. The answer is read
    from the program of a round; nothing is computed. An answer of False can be relied on for the
    server's state. Of mixtures that a round makes of other clients' states before training it says
    nothing: the method states them, `mixes_before_training`.

    Args:
      factory: the method.
      task: what it is given.
      hyper: its hyper-parameters.
      federation: of one seed.
    """

    def trainer(objective, **differing):
        fit = task.trainer(objective, **differing)

        def marked(key, params, anchor, cohort):
            outside, results = traced_call(fit, key, params, anchor, cohort)
            return mark("fit", (params, anchor, outside), results)

        return marked

    algorithm = factory(task._replace(trainer=trainer), **hyper)

    def proceed(server: Any, clients: Any, key: Any, train: Dataset, val: Dataset) -> State:
        cohort = Cohort(jnp.arange(train.mask.shape[0]), train, val, round=0)
        return algorithm.round(key, State(clients, server), cohort)[0]

    key = jax.random.key(0)
    shape = partial(jax.tree.map, lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype))
    train, val = shape((federation.train, federation.val))
    clients, server = jax.eval_shape(algorithm.init, key, train)
    program = jax.make_jaxpr(proceed)(server, clients, key, train, val).jaxpr
    own = len(jax.tree.leaves(server))
    return follow(program, [place < own for place in range(len(program.invars))]).learned


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
