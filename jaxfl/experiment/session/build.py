"""From a resolved config to all parts of a run: task, algorithm, participation, work, privacy."""

import math
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

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
from jaxfl.experiment.config import Config, Resolved, Setting, devices_of, rules
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.privacy.audit import audit
from jaxfl.experiment.privacy.guarantee import Exposure, Protection, expose
from jaxfl.experiment.session.availability import (
    Timing,
    check_late,
    find_durations,
    late_arrivals,
    make_participation,
)
from jaxfl.experiment.session.clients import Data, malicious, true_groups, unseen
from jaxfl.experiment.session.initial import begin_from
from jaxfl.experiment.session.make_task import compressor, make_task
from jaxfl.experiment.session.seeds import Seeds, seeds_of
from jaxfl.experiment.session.stopping import check_stopping
from jaxfl.experiment.store.inputs import digest_inputs
from jaxfl.experiment.store.records import Digests
from jaxfl.simulation import mesh
from jaxfl.simulation.metrics import Metric, named_metrics
from jaxfl.simulation.work import drop, given, read_fractions, stragglers

# Numbers in all test predictions together, at most. With two labels or more an example these are
# 2^24 examples, up to which sums of float32 count exactly.
TOGETHER = 2**25


@dataclass(frozen=True)
class Built:
    """All parts of a run; nothing is computed yet."""

    config: Config  # nothing in it is left open
    data: Data
    task: Task
    algorithm: Algorithm
    participation: Participation
    # bytes that a client's uploads of a round take beyond 4 a float: negative if compressed
    excess: int = 0
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
    def seeds(self) -> Seeds:
        """The seeds and folds of the run."""
        return seeds_of(self.config)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics by which models are scored, at least one."""
        return rules.metrics_of(self.config, self.data.source.classes)

    @property
    def named_metrics(self) -> dict[str, Metric]:
        """The metrics that `--metric` names; empty without any, for the problem's own score."""
        return named_metrics(self.config.metric, self.data.source.class_names)

    @cached_property
    def pooled(self) -> np.ndarray | None:
        """The clients whose test predictions together have a score [C]; None if there is no such.

        There is none where no metric is named, none where all clients are tested on the same
        examples, none of clients on disk, who are not evaluated together, and none where there are
        more predictions than `TOGETHER`, which is warned of.
        """
        test = self.data.federation.test
        if not self.config.metric or isinstance(test, Pool) or self.data.stored is not None:
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
        return value_of(self.config.clients)

    @cached_property
    def client_names(self) -> tuple[str, ...]:
        """The names of the clients; none where they have no names, or others in each seed."""
        names = {client_names(self.data.source, parts) for parts in self.data.parts}
        return names.pop() if len(names) == 1 else ()

    @cached_property
    def devices(self) -> int:
        """How many devices each process uses."""
        return devices_of(self.config)

    @cached_property
    def malicious(self) -> np.ndarray:
        """Which clients attack [C]."""
        return malicious(self.config)

    @cached_property
    def unseen(self) -> np.ndarray:
        """Which clients take part in no round [C]."""
        return unseen(self.config)

    @cached_property
    def groups(self) -> list[np.ndarray | None]:
        """The true groups of the clients [C] in each seed and fold, None where all differ."""
        places = range(self.config.seeds)
        each = [true_groups(self.config, self.data.source, place) for place in places]
        return [groups for groups in each for _ in range(self.config.folds)]

    def with_hyper(self, **hyper: Any) -> Algorithm:
        """The algorithm with other hyper-parameters, which may be traced."""
        return ALGORITHMS[self.config.algorithm](self.task, **(self.config.hyper | hyper))


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
    config = resolved.config
    task = make_task(config, data.source)
    if config.init is not None:
        task = begin_from(task, config.algorithm, Path(config.init))
    algorithm = ALGORITHMS[config.algorithm](task, **config.hyper)
    first = seeds_of(config).one(data.federation)
    jax.eval_shape(partial(rehearse, algorithm), jax.random.key(0), first)
    if "accept" in config.defend:
        check_acceptance(config, first)
    check_top_edges(config)
    check_stopping(config, first.val.mask, ~(malicious(config) | unseen(config)))
    seen = np.flatnonzero(~unseen(config))
    timing = make_timing(config, seen)
    check_late(config.arrivals, config.algorithm)
    clients = value_of(config.clients)
    sample = make_participation(timing, seen, clients, config.participation)
    fractions = None
    if config.work_file is not None:
        fractions = read_fractions(config.work_file, clients)
    excess, exposure = inspect_uploads(config, task, data, first)
    return Built(
        config,
        data,
        task,
        algorithm,
        sample,
        excess,
        exposure,
        timing,
        work=make_work(config, fractions),
        lost=make_loss(config),
        inputs=digest_inputs(config),
    )


def make_timing(setting: Setting, seen: np.ndarray) -> Timing | None:
    """The virtual clock of a run; None if it has none.

    Args:
      setting: of the run.
      seen: ids of the clients that take part.

    Raises:
      InputError: the file of durations does not fit, or an asynchronous step would wait for all
        clients.
    """
    durations = find_durations(
        value_of(setting.clients), setting.speeds, setting.speed_seed, setting.durations
    )
    if durations is None:
        return None
    if setting.arrivals == "synchronous":
        return Timing(durations)
    return late_arrivals(durations, seen, setting.participation, setting.rounds)


def make_work(setting: Setting, fractions: np.ndarray | None) -> Work | None:
    """How much of its local training each client does, None if all clients do all of it.

    Args:
      setting: of the run.
      fractions: the part of its local steps that each client takes [C], where a file has it.
    """
    if fractions is not None:
        return given(fractions)
    if setting.stragglers == 0:
        return None
    return stragglers(setting.stragglers, least=setting.least_work, epochs=setting.local_epochs)


def make_loss(setting: Setting) -> Loss | None:
    """Whose uploads are lost in a round, None if all arrive."""
    if setting.drop == 0 and not setting.drop_stragglers:
        return None
    return drop(setting.drop, stragglers=setting.drop_stragglers)


def rehearse(algorithm: Algorithm, key: PRNGKey, federation: Federation) -> State:
    """One round of everybody, to be traced: what does not fit is known before anything is run."""
    ids = jnp.arange(federation.train.mask.shape[0])
    state = algorithm.init(key, federation.train)
    return algorithm.round(key, state, Cohort(ids, federation.train, federation.val, round=0))[0]


def check_acceptance(config: Config, federation: Federation) -> None:
    """Checks that acceptance by clients has an effect.

    Raises:
      InputError: the method offers no model to single clients, or nobody has validation data.
    """
    *first, last = [
        name for name, factory in ALGORITHMS.items() if facts_of(factory).offers_mixture
    ]
    check(
        facts_of(ALGORITHMS[config.algorithm]).offers_mixture,
        f"--defend accept: {config.algorithm} offers no mixture that a client could refuse, choose "
        f"{', '.join(first)} or {last}, or leave it out (a method of your own says so by "
        "offers_mixture=True among its facts)",
    )
    check(
        bool(jnp.any(mesh.fetch(federation.val.mask))),
        "--defend accept: no client has validation data, choose a larger --val",
    )


def check_top_edges(config: Config) -> None:
    """Checks that the method has a graph of which it may keep a part.

    Raises:
      InputError: --top-edges is given, and the method does not say that it takes it.
    """
    names = [name for name, factory in ALGORITHMS.items() if facts_of(factory).takes_top_edges]
    check(
        config.top_edges is None or facts_of(ALGORITHMS[config.algorithm]).takes_top_edges,
        f"--top-edges: {config.algorithm} has no weights of which a client could keep the largest, "
        f"choose {', '.join(names[:-1])} or {names[-1]}, or leave it out",
    )


def make_protection(setting: Setting) -> Protection | None:
    """What clipping and noise are to protect; None without clipping."""
    if setting.clip is not None:
        return Protection("client", setting.clip, setting.noise, setting.delta)
    if setting.example_clip is not None:
        return Protection("example", setting.example_clip, setting.example_noise, setting.delta)
    return None


def inspect_uploads(
    config: Config, task: Task, data: Data, first: Federation
) -> tuple[int, Exposure | None]:
    """What an audit of the method says of compression and of clipping, where there is any.

    Args:
      config: of the run.
      task: what the method is given.
      data: of all seeds.
      first: the federation of the first seed.

    Returns:
      `excess` and `exposure` of `Built`.
    """
    protection, smaller = make_protection(config), compressor(config)
    if protection is None and smaller is None:
        return 0, None
    unit = "client" if protection is None else protection.unit
    report = audit(ALGORITHMS[config.algorithm], task, config.hyper, first, unit)
    excess = 0
    if smaller is not None:
        excess = sum(smaller.bytes(model) - 4 * tree.size(model) for model in report.round.uploads)
    if protection is None:
        return excess, None
    steps, epochs = config.local_steps, config.local_epochs
    amount = {"steps": value_of(steps)} if epochs is None else {"epochs": epochs}
    mask = mesh.fetch(data.federation.train.mask)
    return excess, expose(protection, report, mask, config.batch_size, amount)
