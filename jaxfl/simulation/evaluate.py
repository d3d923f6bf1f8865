"""Evaluation: scores of the models on the clients' data, as deployed and after local training.

Programs find the type of its result, `Evaluation`, here too.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Int

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.options import checked
from jaxfl.core.over_clients import over_clients
from jaxfl.core.types import (
    Algorithm,
    Chunk,
    Cohort,
    Dataset,
    Federation,
    Objective,
    Params,
    Pool,
    PRNGKey,
    Problem,
    State,
    Task,
)
from jaxfl.simulation.checks import (
    check_algorithm,
    check_client_axis,
    check_federation,
    check_ids,
    check_key,
    check_structure,
    label_check,
)
from jaxfl.simulation.client_scores import metrics_of_clients, scores_and_labels
from jaxfl.simulation.evaluation import After, Scores
from jaxfl.simulation.evaluation import Evaluation as Evaluation
from jaxfl.simulation.label_range import one_label
from jaxfl.simulation.metrics import Metric, named_metrics
from jaxfl.training.objectives import data_loss, loss_of

# Beside the metrics that are named; no name of a metric is empty.
ONE_LABEL = ""


@runtime_checkable
class EvaluateState(Protocol):
    """(key, federation, state, ids [M], trained=None, round=None) -> Evaluation."""

    def __call__(
        self,
        key: PRNGKey,
        federation: Federation,
        state: State,
        ids: Int[Array, "m"] | Int[np.ndarray, "m"],
        trained: Params | None = None,
        round: Int[Array, ""] | int | None = None,
    ) -> Evaluation:
        """See `make_evaluate`."""
        ...


@checked
def make_evaluate(
    algorithm: Algorithm,
    task: Task,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    after: After = "fine_tuned",
    metrics: Sequence[str] | Mapping[str, Metric] = (),
    pooled: Bool[np.ndarray, "c"] | None = None,
) -> EvaluateState:
    """The jitted function that evaluates the clients `ids`.

    The deployed models are scored, and beside them the models after local training that `after`
    names:

    - "fine_tuned": the deployed models after the task's own local training on its data loss, which
      does not change the state;
    - "trained": the models that the clients trained in the last round, before the server answered.
      They need no further training;
    - "none": no others.

    A client whose model is not finite after training has the deployed model instead.

    Args:
      algorithm: says which model a client deploys and how the client predicts. Its `recall` is
        applied to all models that are scored.
      task: has the loss of fine-tuning and the score.
      batch_size: number of examples predicted at a time, see `score_clients`.
      chunk: clients computed side by side, see `over_clients`.
      after: the models after local training that are scored.
      metrics: what the models are scored by: names of `jaxfl.metrics.METRICS`, or metrics by names
        of one's own. The scores are those of the first one, and `Scores.further` has the others.
        Without any, the mean of the task's own score.
      pooled: the clients whose test predictions together have a score too [C], in `Scores.pooled`;
        those of them among `ids`. It needs metrics, and test sets of the clients' own.

    Returns:
      evaluate(key, federation, state, ids [M], trained=None, round=None) -> Evaluation with scores
      [M]. `trained` has the models [M, ...] of "trained", `Info.trained` of the round whose clients
      are `ids`. If the task's optimiser depends on the round, fine-tuning has that of the given
      round. Where its arguments are not traced, it raises an InputError if the state is not one of
      this algorithm and these clients, or if an id or a label is out of range.

    Raises:
      InputError: something else stands in the place of the algorithm or the task, or a metric is
        unknown.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3))
      >>> algorithm = jaxfl.algorithms.fedavg(task)
      >>> evaluate = jaxfl.make_evaluate(algorithm, task, after="none")
      >>> key = jax.random.key(0)
      >>> state = algorithm.init(key, federation.train)
      >>> evaluate(key, federation, state, jnp.arange(150)).deployed.test.shape
      (150,)
      >>> evaluate = jaxfl.make_evaluate(algorithm, task, after="none", metrics=["mae", "r2"])
      >>> evaluate(key, federation, state, jnp.arange(150)).deployed.further["r2"].test.shape
      (150,)
    """
    check_algorithm(algorithm)
    of_models = make_evaluate_models(
        algorithm,
        task,
        batch_size=batch_size,
        chunk=chunk,
        after=after,
        metrics=metrics,
        pooled=pooled,
    )

    @jax.jit
    def compiled(
        key: PRNGKey,
        federation: Federation,
        state: State,
        ids: Int[Array, "m"],
        trained: Params | None = None,
        round: Int[Array, ""] | int | None = None,
    ) -> Evaluation:
        deployed = algorithm.models(state, _cohort(federation, ids, round))
        return of_models(key, federation, deployed, ids, trained, round)

    check_label_range = label_check(algorithm)

    @wraps(compiled)
    def evaluate(
        key: PRNGKey,
        federation: Federation,
        state: State,
        ids: Int[Array, "m"] | Int[np.ndarray, "m"],
        trained: Params | None = None,
        round: Int[Array, ""] | int | None = None,
    ) -> Evaluation:
        arguments = (key, federation, state, ids, trained, round)
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(arguments)):
            return compiled(*arguments)
        check_key(key)
        check_federation(federation)
        check_client_axis(federation, state)
        check_ids(ids, federation.train.mask.shape[0])
        check_label_range(federation, state)
        try:
            # NaN says that there is no score, also where JAX stops at a NaN.
            with jax.debug_nans(False):
                return compiled(*arguments)
        except InputError:
            raise
        except Exception:
            check_structure(algorithm, key, federation, state)
            raise

    return evaluate


def _cohort(federation: Federation, ids: Array, round: Array | int | None) -> Cohort:
    train, val = tree.take((federation.train, federation.val), ids)
    return Cohort(ids, train, val, round)


def make_evaluate_models(
    algorithm: Algorithm, task: Task, **options: Any
) -> Callable[..., Evaluation]:
    """As `make_evaluate`, for deployed models that are given.

    It needs no state. Where clients predict with the model alone, it is the same program for all
    methods, which is compiled once.

    Args:
      algorithm: says how a client predicts.
      task: see `make_evaluate`.
      options: those of `make_evaluate`.

    Returns:
      evaluate_models(key, federation, deployed [M, ...], ids [M], trained=None, round=None) ->
      Evaluation, not jitted.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3))
      >>> algorithm = jaxfl.algorithms.fedavg(task)
      >>> evaluate_models = make_evaluate_models(algorithm, task, after="none")
      >>> key = jax.random.key(0)
      >>> models = jax.vmap(task.problem.init)(jax.random.split(key, 2))
      >>> evaluate_models(key, federation, models, jnp.arange(2)).deployed.test.shape
      (2,)
    """
    evaluate_cohort = make_evaluate_cohort(algorithm, task, **options)

    def evaluate_models(
        key: PRNGKey,
        federation: Federation,
        deployed: Params,
        ids: Int[Array, "m"],
        trained: Params | None = None,
        round: Int[Array, ""] | int | None = None,
    ) -> Evaluation:
        cohort = _cohort(federation, ids, round)
        return evaluate_cohort(key, cohort, test_sets(federation.test, ids), deployed, trained)

    return evaluate_models


def test_sets(test: Dataset | Pool, ids: Int[Array, "m"]) -> Dataset | Pool:
    """The test sets of some clients [M, n, ...], or the pool with their weights [M, ...].

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> test_sets(federation.test, jnp.arange(2)).x.shape[0]
      2
    """
    if isinstance(test, Pool):
        return test._replace(mask=test.mask[ids])
    return tree.take(test, ids)


def fine_tuning_loss(algorithm: Algorithm, problem: Problem) -> Objective:
    """The data loss of what a client deploys, with predictions in training.

    Example:
      >>> loss = fine_tuning_loss(jaxfl.algorithms.fedavg(task), task.problem)
      >>> params = task.problem.init(jax.random.key(0))
      >>> batch = Dataset(jnp.zeros((2, 8)), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> round(loss(params, batch, None, jax.random.key(0))[0].item(), 3)
      0.693
    """
    if algorithm.predict is not None:
        return loss_of(problem, algorithm.predict)
    return data_loss(problem, algorithm.apply)


@checked
def make_evaluate_cohort(
    algorithm: Algorithm,
    task: Task,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    after: After = "fine_tuned",
    metrics: Sequence[str] | Mapping[str, Metric] = (),
    pooled: Bool[np.ndarray, "c"] | None = None,
) -> Callable[..., Evaluation]:
    """As `make_evaluate_models`, for a cohort whose data are given alone.

    Args:
      algorithm: says how a client predicts.
      task: see `make_evaluate`, also for the other arguments.
      batch_size: number of examples predicted at a time.
      chunk: clients computed side by side.
      after: the models after local training that are scored.
      metrics: what the models are scored by.
      pooled: the clients whose test predictions together have a score too.

    Returns:
      evaluate_cohort(key, cohort, test, deployed [M, ...], trained=None) -> Evaluation, not jitted.
      `test` has the test sets of the cohort [M, n, ...], or a pool with their weights.
    """
    check(
        isinstance(task, Task),
        f"the task has type {type(task).__name__}: expected a task, such as jaxfl.classification "
        "makes",
    )
    fine_tune = task.trainer(fine_tuning_loss(algorithm, task.problem))
    by_name = named_metrics(metrics)
    check(
        pooled is None or bool(by_name),
        "pooled is given without metrics: name them, such as metrics=['accuracy']",
    )

    def evaluate_cohort(
        key: PRNGKey,
        cohort: Cohort,
        test: Dataset | Pool,
        deployed: Params,
        trained: Params | None = None,
    ) -> Evaluation:
        def score_on(params: Params, data: Dataset | Pool) -> tuple[Array, Array]:
            return scores_and_labels(
                algorithm.apply,
                task.problem.score,
                params,
                data,
                batch_size=batch_size,
                chunk=chunk,
                compared=task.problem.compared,
            )

        def scores_by_metric(params: Params) -> Scores:
            check(
                pooled is None or not isinstance(test, Pool),
                "pooled is given, and all clients are tested on the same examples: leave it out",
            )
            options = {"batch_size": batch_size, "chunk": chunk, "compared": task.problem.compared}
            each = by_name | {ONE_LABEL: Metric("one label", one_label)}
            score_all = partial(metrics_of_clients, algorithm.apply, each, params, **options)
            val, _ = score_all(cohort.val)
            counted = None if pooled is None else jnp.asarray(pooled)[cohort.ids]
            of_test, together = score_all(test, pooled=counted)
            first, *others = by_name
            further = {name: Scores(val[name], of_test[name]) for name in others}
            together = {name: together[name] for name in by_name if name in together}
            return Scores(val[first], of_test[first], further, together, of_test[ONE_LABEL])

        def scores(params: Params) -> Scores:
            if task.problem.recall is not None:
                params = over_clients(task.problem.recall, chunk)(params, cohort.train)
            if algorithm.recall is not None:
                params = over_clients(algorithm.recall, chunk)(params, cohort.train)
            if by_name:
                return scores_by_metric(params)
            val, _ = score_on(params, cohort.val)
            of_test, labels = score_on(params, test)
            return Scores(val, of_test, one_label=labels)

        if after == "none":
            return Evaluation(scores(deployed))
        if after == "fine_tuned":
            trained = fine_tune(key, deployed, None, cohort).params
        check(
            trained is not None,
            "the scores after training are those of the models that a round trained: give them as "
            "`trained`, from the info of make_rounds(..., trained=True)",
        )
        trained = tree.choose(tree.finite(trained, cohort.ids.size), trained, deployed)
        scores_deployed = scores(deployed)
        if after == "trained":
            return Evaluation(scores_deployed, trained=scores(trained))
        return Evaluation(scores_deployed, fine_tuned=scores(trained))

    return evaluate_cohort
