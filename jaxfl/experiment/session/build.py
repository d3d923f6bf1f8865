"""From a resolved config to all parts of a run: task, algorithm, participation, work, privacy."""

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.errors import check, warn
from jaxfl.core.facts import facts_of
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Federation,
    Loss,
    Participation,
    Pool,
    PRNGKey,
    State,
    Task,
    Work,
)
from jaxfl.data.source import client_names
from jaxfl.experiment.config import Config, Options, Resolved, devices_of, rules
from jaxfl.experiment.config.fields import ParticipationOptions
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.privacy.audit import audit
from jaxfl.experiment.privacy.guarantee import Exposure, Protection, expose
from jaxfl.experiment.session.availability import (
    Timing,
    check_late,
    make_participation,
    make_timing,
)
from jaxfl.experiment.session.gather import Data, malicious, true_groups, unseen
from jaxfl.experiment.session.initial_weights import begin_from
from jaxfl.experiment.session.make_task import architecture_of, compressor, make_task
from jaxfl.experiment.session.seeds import Seeds, seeds_of
from jaxfl.experiment.store.digests import digest_inputs
from jaxfl.experiment.store.records import Digests
from jaxfl.simulation import mesh
from jaxfl.simulation.metrics import Metric, named_metrics
from jaxfl.simulation.work import drop, given, read_fractions, stragglers

# Numbers in all test predictions together, at most. With two labels or more an example these are
# 2^24 examples, up to which sums of float32 count exactly.
TOGETHER = 2**25


class Method(NamedTuple):
    """What runs, by name."""

    algorithm: str
    hyper: dict[str, Any]
    label: str | None  # of the run


class Excess(NamedTuple):
    """What goes through the uplink of a client in a round: by how much compression changes it."""

    floats: int = 0
    # beyond 4 a float: negative if compressed
    bytes: int = 0


@dataclass(frozen=True)
class Built:
    """All parts of a run; nothing is computed yet."""

    method: Method
    options: Options  # nothing in them is left open
    data: Data
    task: Task
    algorithm: Algorithm
    participation: Participation
    seeds: Seeds
    malicious: np.ndarray  # which clients attack [C]
    unseen: np.ndarray  # which clients take part in no round [C]
    excess: Excess = field(default_factory=Excess)
    exposure: Exposure | None = None  # of who is protected by clipping
    timing: Timing | None = None  # of the virtual clock
    work: Work | None = None  # how much of its local training each client does
    lost: Loss | None = None  # whose uploads are lost
    # SHA-256 of each file that the run reads beside its data set, by the option that names it
    inputs: dict[str, str] = field(default_factory=dict)

    @property
    def digests(self) -> Digests:
        """Those of all that the run reads; if several processes run together, each must ask."""
        return {"data": [self.data.digest], "files": self.inputs}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics by which models are scored, at least one."""
        return rules.metrics_of(self.options.scores, self.data.source)

    @property
    def named_metrics(self) -> dict[str, Metric]:
        """The metrics that `--metric` names; empty without any, for the problem's own score."""
        return named_metrics(
            self.options.scores.metric, self.data.source.class_names, self.data.source.ends
        )

    @cached_property
    def pooled(self) -> np.ndarray | None:
        """The clients whose test predictions together have a score [C]; None if there is no such.

        There is none where no metric is named, none where all clients are tested on the same
        examples, none of clients on disk, who are not evaluated together, and none where there are
        more predictions than `TOGETHER`, which is warned of.
        """
        test = self.data.federation.test
        if not self.options.scores.metric or isinstance(test, Pool) or self.data.stored is not None:
            return None
        numbers = math.prod(test.mask.shape) * self.data.source.predictions
        if numbers > TOGETHER:
            warn(
                f"the test predictions of all clients are {numbers:.1e} numbers, more than "
                f"{TOGETHER:.1e}: there is no score of them together (pooled), only of each client"
            )
            return None
        return ~(self.malicious | self.unseen)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self.malicious.size

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        """The names of the clients; none where they have no names, or others in each seed."""
        names = {client_names(self.data.source, parts) for parts in self.data.parts}
        return names.pop() if len(names) == 1 else ()

    @cached_property
    def devices(self) -> int:
        """How many devices each process uses."""
        return devices_of(self.options.run, self.options.participation, self.clients)

    @cached_property
    def groups(self) -> list[np.ndarray | None]:
        """The true groups of the clients [C] in each seed and fold, None where all differ."""
        data, places = self.options.data, range(self.options.run.seeds)
        each = [true_groups(data, self.data.source, place) for place in places]
        return [groups for groups in each for _ in range(data.folds)]

    def evaluated(self, ids: np.ndarray) -> np.ndarray:
        """The clients that an evaluation scores [E], with several seeds [S, E].

        Args:
          ids: the clients of the last round [M] or [S, M].
        """
        clients = np.arange(self.clients, dtype=ids.dtype)
        if self.options.scores.eval_on == "all":
            return np.broadcast_to(clients, (*ids.shape[:-1], clients.size))
        newcomers = clients[self.unseen]
        newcomers = np.broadcast_to(newcomers, (*ids.shape[:-1], newcomers.size))
        return np.concatenate([ids, newcomers], axis=-1)

    def with_hyper(self, **hyper: Any) -> Algorithm:
        """The algorithm with other hyper-parameters, which may be traced."""
        return ALGORITHMS[self.method.algorithm](self.task, **(self.method.hyper | hyper))


def build(resolved: Resolved[Config], data: Data) -> Built:
    """Makes every part of the run and traces a round of it.

    Args:
      resolved: what to run.
      data: its clients.

    Raises:
      InputError: the config does not fit the data, the model or the algorithm.

    Example:
      >>> resolved = resolve(Config(algorithm="fedavg", clients=10, participation=0.5))
      >>> built = build(resolved, gather(resolved))
      >>> built.participation(jax.random.key(0), 0).shape
      (5,)
    """
    config, options = resolved.config, resolved.options
    method = Method(config.algorithm, config.hyper, config.label)
    name, clients = method.algorithm, value_of(options.data.clients)
    task = make_task(options, data.source)
    if options.model.init is not None:
        task = begin_from(task, name, Path(options.model.init))
    algorithm = ALGORITHMS[name](task, **method.hyper)
    seeds = seeds_of(options.data, options.run.seeds)
    first = seeds.one(data.federation)
    jax.eval_shape(partial(trace_round, algorithm), jax.random.key(0), first)
    attackers = malicious(options.upload, clients)
    newcomers = unseen(options.participation, attackers)
    accepts, stop_after = "accept" in options.upload.defend, options.scores.stop_after
    if accepts:
        check_acceptance(name)
    if accepts or stop_after is not None:
        check_validating(accepts, stop_after, first.val.mask, ~(attackers | newcomers))
    check_top_edges(name, options.run.top_edges)
    seen = np.flatnonzero(~newcomers)
    participation = options.participation
    fraction, lost = participation.participation, None
    if participation.drop > 0 or participation.drop_stragglers:
        lost = drop(participation.drop, stragglers=participation.drop_stragglers)
    timing = make_timing(options.clock, seen, clients, fraction, options.run.rounds)
    check_late(options.clock.arrivals, name)
    excess, exposure = inspect_uploads(method, task, options, data, first)
    return Built(
        method,
        options,
        data,
        task,
        algorithm,
        make_participation(timing, seen, architecture_of(options), fraction),
        seeds,
        attackers,
        newcomers,
        excess,
        exposure,
        timing,
        work=make_work(participation, clients, options.training.local_epochs),
        lost=lost,
        inputs=digest_inputs(config),
    )


def make_work(options: ParticipationOptions, clients: int, epochs: int | None) -> Work | None:
    """How much of its local training each client does, None if all clients do all of it.

    Args:
      options: of the run.
      clients: their number.
      epochs: local epochs of a round, if it has no local steps.
    """
    if options.work_file is not None:
        return given(read_fractions(options.work_file, clients))
    if options.stragglers == 0:
        return None
    return stragglers(options.stragglers, least=options.least_work, epochs=epochs)


def trace_round(algorithm: Algorithm, key: PRNGKey, federation: Federation) -> State:
    """One round of everybody, to be traced: what does not fit is known before anything is run."""
    ids = jnp.arange(federation.train.mask.shape[0])
    state = algorithm.init(key, federation.train)
    return algorithm.round(key, state, Cohort(ids, federation.train, federation.val, round=0))[0]


def check_acceptance(algorithm: str) -> None:
    """Raises an `InputError` if the method offers no model that a client could refuse."""
    *first, last = [
        name for name, factory in ALGORITHMS.items() if facts_of(factory).offers_mixture
    ]
    check(
        facts_of(ALGORITHMS[algorithm]).offers_mixture,
        f"--defend accept: {algorithm} offers no mixture that a client could refuse, choose "
        f"{', '.join(first)} or {last}, or leave it out (a method of your own says so by "
        "offers_mixture=True among its facts)",
    )


def check_validating(
    accepts: bool, stop_after: int | None, mask: Array | np.ndarray, counted: np.ndarray
) -> None:
    """Raises an `InputError` if what needs validation data finds none.

    Args:
      accepts: whether clients accept models by their validation data.
      stop_after: whether the run is to stop by it, see `ScoreOptions`.
      mask: of the validation examples [C, n].
      counted: the clients whose scores count [C].
    """
    validates = mesh.fetch(mask).any(axis=-1)
    check(
        not accepts or bool(validates.any()),
        "--defend accept: no client has validation data, choose a larger --val",
    )
    check(
        stop_after is None or bool(validates[counted].any()),
        "--stop-after is given, and no client whose scores count has validation data: give a "
        "larger --val, or leave it out",
    )


def check_top_edges(algorithm: str, top_edges: int | None) -> None:
    """Checks that the method has a graph of which it may keep a part.

    Raises:
      InputError: --top-edges is given, and the method does not say that it takes it.
    """
    names = [name for name, factory in ALGORITHMS.items() if facts_of(factory).takes_top_edges]
    check(
        top_edges is None or facts_of(ALGORITHMS[algorithm]).takes_top_edges,
        f"--top-edges: {algorithm} has no weights of which a client could keep the largest, "
        f"choose {', '.join(names[:-1])} or {names[-1]}, or leave it out",
    )


def inspect_uploads(
    method: Method, task: Task, options: Options, data: Data, first: Federation
) -> tuple[Excess, Exposure | None]:
    """What an audit of the method says of compression and of clipping, where there is any.

    Args:
      method: what runs.
      task: what it is given.
      options: of the uploads, and of the training.
      data: of all seeds.
      first: the federation of the first seed.

    Returns:
      `excess` and `exposure` of `Built`.
    """
    upload, training = options.upload, options.training
    smaller, protection = compressor(upload), None
    if upload.clip is not None:
        protection = Protection("client", upload.clip, upload.noise, upload.delta)
    elif training.example_clip is not None:
        clip, noise = training.example_clip, training.example_noise
        protection = Protection("example", clip, noise, upload.delta)
    if protection is None and smaller is None:
        return Excess(), None
    unit = "client" if protection is None else protection.unit
    report = audit(ALGORITHMS[method.algorithm], task, method.hyper, first, unit)
    excess = Excess()
    if smaller is not None:
        floats = sum(tree.size(model) for model in report.round.uploads)
        excess = Excess(floats, sum(map(smaller.bytes, report.round.uploads)) - 4 * floats)
    if protection is None:
        return excess, None
    return excess, expose(protection, report, mesh.fetch(data.federation.train.mask), training)
