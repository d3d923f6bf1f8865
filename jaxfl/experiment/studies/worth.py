"""What each client is worth to each other one: the federation without it, all of them at once.

A coalition is some of the clients, who run the method among themselves with the examples, the
options and the seeds of a finished run. Coalitions of one size are one program, as seeds are.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core import tree
from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.types import (
    Algorithm,
    Dataset,
    Evaluate,
    Federation,
    Fit,
    Gradient,
    Objective,
    Params,
    PRNGKey,
    Task,
)
from jaxfl.experiment.config import Config, Resolved, by_subject, devices_of
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.reading.conformal import last_mixtures
from jaxfl.experiment.reading.gains import (
    Result,
    intervals_over_examples,
    mean,
    predict_all,
    result_over_seeds,
)
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.session.build import build
from jaxfl.experiment.session.run_program import START, one_seed, wait_for
from jaxfl.experiment.tables.differences import overlap
from jaxfl.simulation import mesh
from jaxfl.simulation.evaluate import test_sets
from jaxfl.simulation.metrics import Metric, metric_of

TOGETHER = 256  # clients at most that train side by side, of a seed
# Options that name clients by their numbers, or end a run before its last round.
REFUSED = ("attack", "malicious", "unseen", "work_file", "store", "stop_after")


class Worth(NamedTuple):
    """What each client is worth to each other one.

    Attributes:
      run: that of all C clients.
      results: of each receiver and each sender [C][C]: the receiver's score in the run of all, and
        how far it is better than in the run without the sender.
      without: the receiver's score in the run without the sender [C, C], NaN on the diagonal.
      graph: the weight of each sender in the receiver's model [C, C], the mean over the seeds; None
        if the method has no weights.
    """

    run: FinishedRun
    results: list[list[Result]]
    without: np.ndarray
    graph: np.ndarray | None


class Coalitions(NamedTuple):
    """K coalitions of M clients each that have run the method, with S seeds and folds.

    Attributes:
      scores: of the last deployed models by the first metric, as they are stored [S, K, M].
      models: that they deploy [S, K, M, ...].
      algorithm: which predicts with them.
    """

    scores: np.ndarray
    models: PyTree
    algorithm: Algorithm

    def predict(self, place: tuple[int, int], train: Dataset, x: PyTree) -> np.ndarray:
        """Logits or numbers for the inputs [n, ...], in the first seed.

        Args:
          place: a coalition, and a client in it.
          train: the training examples of the client.
          x: inputs.
        """
        model = tree.at(self.models, (0, *place))
        if self.algorithm.recall is not None:
            model = self.algorithm.recall(model, train)
        return np.asarray(jitted(self.algorithm.apply)(model, x))


@cache
def jitted(apply: Callable) -> Callable:
    """The function, compiled once for all clients."""
    return jax.jit(apply)


def leave_one_out(run: FinishedRun) -> Worth:
    """Runs the method of a finished run without each of its clients.

    With several seeds or folds the interval of a difference is that of the paired t-test over them;
    with one it is a bootstrap over the receiver's test examples, as in `reading.by_client`.

    Args:
      run: with its models, whose data set is at hand.

    Raises:
      InputError: the run has one client alone or an option that names single ones, the method does
        not run with one fewer, or the data set is not there.

    Example:
      >>> worth = leave_one_out(load("runs/digits"))
      >>> len(worth.results), worth.without.shape
      (5, (5, 5))
    """
    clients = run.config.clients or 0
    check(clients > 1, f"the run of {run.directory} has one client: there is nobody to leave out")
    everybody = range(clients)
    rest = np.stack([np.delete(everybody, one) for one in everybody])
    found = run_coalitions(run, rest)
    # Of each seed, receiver and sender, as tables show them
    metric = metric_of(run.summary["measure"], run.class_names, run.ends)
    shown = np.vectorize(metric.shown, [float])
    scores = shown(run.seeds.with_axis(run.clients["deployed_test"])[:, -1])
    without = np.full((len(scores), clients, clients), np.nan)
    for sender, members in enumerate(rest):
        without[:, members, sender] = shown(found.scores[:, sender])
    if run.seeds.count > 1:
        shared = overlap(run.config)
        results = [
            [
                result_over_seeds(metric, scores[:, one], without[:, one, other], overlap=shared)
                for other in everybody
            ]
            for one in everybody
        ]
    else:
        results = [_over_examples(run, metric, found, one, without[0, one]) for one in everybody]
    graph = last_mixtures(run)
    return Worth(
        run,
        results,
        np.array([[mean(without[:, one, other]) for other in everybody] for one in everybody]),
        None if graph is None else graph.mean(axis=0),
    )


def run_coalitions(run: FinishedRun, coalitions: np.ndarray) -> Coalitions:
    """Runs the method of a finished run among some of its clients alone, K times side by side.

    Each coalition has the examples that its clients have in the run, and the run's options and
    seeds: it is the run that there would be without the others.

    Args:
      run: whose data set is at hand.
      coalitions: the ids of the clients of each, in ascending order [K, M].

    Raises:
      InputError: as `leave_one_out`.
    """
    config = run.config
    defaults = Config(algorithm=config.algorithm)
    given = [one for one in REFUSED if getattr(config, one) != getattr(defaults, one)]
    check(
        not given,
        f"the run of {run.directory} has {', '.join(map(option, given))}, which does not say what "
        "holds of some of its clients alone: give a run without",
    )
    size, seeds = coalitions.shape[1], run.seeds
    fewer = Resolved(config, run.data.source).replace(clients=size)
    first = members_of(seeds.one(run.data.federation), coalitions[0])
    try:
        # Every seed has the shapes of the first, and no seed is told.
        built = build(
            fewer.replace(seeds=1, folds=1), dataclasses.replace(run.data, federation=first)
        )
    except InputError as error:
        raise InputError(f"{config.algorithm} does not run with {size} clients: {error}") from error
    method, ids = built.method, jnp.arange(size)

    def of_one(members: Array, seed: Array, federation: Federation) -> tuple[Array, Params, Array]:
        part = members_of(federation, members)
        task = numbered(built.task, members)
        algorithm = ALGORITHMS[method.algorithm](task, **method.hyper)
        init, advance, deploy, assess = one_seed(built, algorithm, "none")
        state, (info, _) = advance(config.rounds, seed, part, init(seed, part), START)
        models = deploy(part, state, ids)
        scores = assess(seed, part, models, config.rounds, ids).deployed.test
        finite = info.reported if info.lost is None else info.reported | info.lost
        return scores, models, finite.all()

    def of_seed(seed: Array, federation: Federation) -> tuple:
        return jax.lax.map(
            lambda members: of_one(members, seed, federation),
            jnp.asarray(coalitions),
            batch_size=max(1, TOGETHER // size),
        )

    whole = by_subject(config)
    devices = devices_of(whole.run, whole.participation, run.config.clients or 0)
    with jax.set_mesh(mesh.make_mesh(devices)), jax.debug_nans(False):
        results = jax.jit(seeds.each(of_seed, (0, 0)))(seeds.argument(), run.data.federation)
        wait_for(results, lambda: None)
    scores, models, finite = seeds.with_axis(results)
    if not bool(finite.all()):
        warn("updates were not finite in some of the runs without a client, and were left out")
    return Coalitions(np.asarray(scores), models, built.algorithm)


def numbered(task: Task, members: Array) -> Task:
    """The task whose clients draw the random numbers that they draw in the run of all.

    So two runs differ by what a client is worth, and not by the order of the batches.

    Args:
      task: of a coalition.
      members: the ids of its clients among all [M].
    """

    def trainer(objective: Objective, **changes: Any) -> Fit:
        fit = task.trainer(objective, **changes)
        return lambda key, params, anchor, cohort: fit(
            key, params, anchor, cohort._replace(ids=members[cohort.ids])
        )

    def gradient(objective: Objective) -> Gradient:
        of_all = task.gradient(objective)
        return lambda key, params, data, ids: of_all(key, params, data, members[ids])

    def evaluate(objective: Objective) -> Evaluate:
        of_all = task.evaluate(objective)
        return lambda key, params, data, ids: of_all(key, params, data, members[ids])

    def upload(
        key: PRNGKey, before: Params, after: Params, ids: Array, lost: Array | None = None
    ) -> tuple[Params, Array]:
        return task.upload(key, before, after, members[ids], lost)

    return task._replace(trainer=trainer, gradient=gradient, evaluate=evaluate, upload=upload)


def members_of(federation: Federation, ids: Array | np.ndarray) -> Federation:
    """The federation of some of the clients alone.

    Args:
      federation: of all clients [C, ...].
      ids: of these clients [M].

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> members_of(federation, np.array([0, 7])).train.mask.shape[0]
      2
    """
    train, val = tree.take((federation.train, federation.val), jnp.asarray(ids))
    return Federation(train, val, test_sets(federation.test, jnp.asarray(ids)))


def _over_examples(
    run: FinishedRun,
    metric: Metric,
    found: Coalitions,
    client: int,
    without: np.ndarray,
) -> list[Result]:
    """What each sender is worth to a client in one seed, by a bootstrap over its test examples.

    Args:
      run: that of all clients.
      metric: of the scores.
      found: the runs without one client, in the order of the clients.
      client: the receiver.
      without: its score without each sender [C], NaN in its own place.
    """
    score = metric.shown(float(run.clients["deployed_test"][-1, client]))
    nothing = Result(score, math.nan, math.nan, math.nan)
    senders = np.flatnonzero(np.isfinite(without))
    if math.isnan(score) or not senders.size:
        return [nothing] * len(without)
    examples = run.test(client)
    train = tree.at(run.data.federation.train, client)
    predictions = [predict_all(partial(run.scores, client), examples.x)]
    for sender in senders.tolist():
        # Its place among the clients without the sender
        place = (sender, client - (sender < client))
        predictions.append(predict_all(partial(found.predict, place, train), examples.x))
    intervals, few = intervals_over_examples(metric, predictions, examples, seed=client)
    results = [nothing] * len(without)
    for sender, (low, high) in zip(senders.tolist(), intervals, strict=True):
        gain = metric.sign * (score - without[sender])
        results[sender] = Result(score, gain, -high, -low, few)
    return results
