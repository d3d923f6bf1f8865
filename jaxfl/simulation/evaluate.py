"""Evaluation: scores of the models on the clients' data, as deployed and after local training."""

from collections.abc import Callable
from functools import wraps
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from jaxfl.core import order, target, tree
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
from jaxfl.training.objectives import data_loss, loss_of


class Scores(NamedTuple):
    """The mean score of each client on each set; NaN for a client that has no data in the set."""

    # [M]
    val: Float[Array, "*m"]
    # [M]
    test: Float[Array, "*m"]


# The models after local training that an evaluation scores beside the deployed ones.
After = Literal["fine_tuned", "trained", "none"]


class Evaluation(NamedTuple):
    """Scores by stage: of the deployed models, and of at most one kind of models after training.

    A stage that was not scored is None.
    """

    # of the models with which the clients predict
    deployed: Scores
    # of the models that the clients trained in the last round, before the server answered
    trained: Scores | None = None
    # of the deployed models after each client has trained its own
    fine_tuned: Scores | None = None


Stage = Literal["deployed", "trained", "fine_tuned"]
STAGES: tuple[Stage, ...] = get_args(Stage)


def by_stage(evaluation: Evaluation) -> dict[Stage, Scores]:
    """The scores of an evaluation by stage, without the stages that were not scored.

    Example:
      >>> list(by_stage(Evaluation(Scores(val=jnp.ones(2), test=jnp.ones(2)))))
      ['deployed']
    """
    found: dict[Stage, Scores | None] = {stage: getattr(evaluation, stage) for stage in STAGES}
    return {stage: scores for stage, scores in found.items() if scores is not None}


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


@runtime_checkable
class EvaluateModels(Protocol):
    """(key, federation, deployed [M, ...], ids [M], trained=None, round=None) -> Evaluation."""

    def __call__(
        self,
        key: PRNGKey,
        federation: Federation,
        deployed: Params,
        ids: Int[Array, "m"],
        trained: Params | None = None,
        round: Int[Array, ""] | int | None = None,
    ) -> Evaluation:
        """See `make_evaluate_models`."""
        ...


@runtime_checkable
class EvaluateCohort(Protocol):
    """(key, cohort, test, deployed [M, ...], trained=None) -> Evaluation."""

    def __call__(
        self,
        key: PRNGKey,
        cohort: Cohort,
        test: Dataset | Pool,
        deployed: Params,
        trained: Params | None = None,
    ) -> Evaluation:
        """See `make_evaluate_cohort`."""
        ...


@checked
def score_clients(
    apply: Callable,
    score: Callable,
    params: Params,
    data: Dataset | Pool,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
) -> Float[Array, "m"]:
    """The weighted mean score of each client's model on its data [M].

    Args:
      apply: (params, x [B]) -> prediction [B] of one client.
      score: (prediction [B], y [B]) -> [B].
      params: [M, ...].
      data: [M, n, ...], or one pool [n, ...] with weights [M, n], or [M, K] of its groups.
      batch_size: number of examples predicted at a time. None: 20 for images on a CPU, so that the
        patches of a batch fit into the cache; otherwise 256.
      chunk: clients computed side by side, see `over_clients`.

    Example:
      >>> data = Dataset(jnp.ones((2, 3, 1)), jnp.ones((2, 3)), jnp.ones((2, 3), bool))
      >>> score = lambda prediction, y: -jnp.abs(prediction[:, 0] - y)
      >>> score_clients(lambda w, x: w * x, score, jnp.array([1.0, 5.0]), data).tolist()
      [0.0, -4.0]
    """
    feature_axes = data.x.ndim - (1 if isinstance(data, Pool) else 2)

    def one(params: Params, data: Dataset, groups: Array | None = None) -> Float[Array, ""]:
        def weigh(rows: Array) -> Array:
            return data.mask[rows if groups is None else groups[rows]]

        at_once = batch_size
        if at_once is None:
            at_once = 20 if feature_axes == 3 and target.platform() == "cpu" else 256
        # Only batches with examples that count are computed: these examples come first.
        counts = data.mask != 0 if groups is None else (data.mask != 0)[groups]
        size = min(at_once, max(counts.size, 1))
        rows = order.real_first(counts)
        rows = jnp.pad(rows, (0, -rows.size % size))
        count = jnp.count_nonzero(counts)

        def add(number: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
            batch_rows = lax.dynamic_slice(rows, (number * size,), (size,))
            if feature_axes == 3:
                batch_rows = order.not_fused(batch_rows, counts.size)
            real = number * size + jnp.arange(size) < count
            weights = jnp.where(real, weigh(batch_rows), 0.0)
            values = score(apply(params, data.x[batch_rows]), data.y[batch_rows])
            total = jnp.sum(jnp.where(weights > 0, values * weights, 0.0))
            return sums[0] + total, sums[1] + jnp.sum(weights, dtype=jnp.float32)

        zero = jnp.zeros(())
        total, weight = lax.fori_loop(0, -(-count // size), add, (zero, zero))
        return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1.0), jnp.nan)

    if isinstance(data, Pool):

        def from_pool(
            params: Params, mask: Array, x: Array, y: Array, groups: Array | None
        ) -> Float[Array, ""]:
            return one(params, Dataset(x, y, mask), groups)

        shared = (data.x, data.y, data.groups)
        return over_clients(from_pool, chunk, *shared)(params, data.mask)
    return over_clients(one, chunk)(params, data)


@checked
def make_evaluate(
    algorithm: Algorithm,
    task: Task,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    after: After = "fine_tuned",
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

    Returns:
      evaluate(key, federation, state, ids [M], trained=None, round=None) -> Evaluation with scores
      [M]. `trained` has the models [M, ...] of "trained", `Info.trained` of the round whose clients
      are `ids`. If the task's optimiser depends on the round, fine-tuning has that of the given
      round. Where its arguments are not traced, it raises an InputError if the state is not one of
      this algorithm and these clients, or if an id or a label is out of range.

    Raises:
      InputError: something else stands in the place of the algorithm or the task.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3))
      >>> algorithm = jaxfl.algorithms.fedavg(task)
      >>> evaluate = jaxfl.make_evaluate(algorithm, task, after="none")
      >>> key = jax.random.key(0)
      >>> state = algorithm.init(key, federation.train)
      >>> evaluate(key, federation, state, jnp.arange(150)).deployed.test.shape
      (150,)
    """
    check_algorithm(algorithm)
    of_models = make_evaluate_models(
        algorithm, task, batch_size=batch_size, chunk=chunk, after=after
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


@checked
def make_evaluate_models(
    algorithm: Algorithm,
    task: Task,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
    after: After = "fine_tuned",
) -> EvaluateModels:
    """As `make_evaluate`, for deployed models that are given.

    It needs no state. Where clients predict with the model alone, it is the same program for all
    methods, which is compiled once.

    Args:
      algorithm: says how a client predicts.
      task: see `make_evaluate`, also for the other arguments.
      batch_size: number of examples predicted at a time.
      chunk: clients computed side by side.
      after: the models after local training that are scored.

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
    evaluate_cohort = make_evaluate_cohort(
        algorithm, task, batch_size=batch_size, chunk=chunk, after=after
    )

    def evaluate_models(
        key: PRNGKey,
        federation: Federation,
        deployed: Params,
        ids: Int[Array, "m"],
        trained: Params | None = None,
        round: Int[Array, ""] | int | None = None,
    ) -> Evaluation:
        cohort = _cohort(federation, ids, round)
        if isinstance(federation.test, Pool):
            test = federation.test._replace(mask=federation.test.mask[ids])
        else:
            test = tree.take(federation.test, ids)
        return evaluate_cohort(key, cohort, test, deployed, trained)

    return evaluate_models


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
) -> EvaluateCohort:
    """As `make_evaluate_models`, for a cohort whose data are given alone.

    Args:
      algorithm: says how a client predicts.
      task: see `make_evaluate`, also for the other arguments.
      batch_size: number of examples predicted at a time.
      chunk: clients computed side by side.
      after: the models after local training that are scored.

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

    def evaluate_cohort(
        key: PRNGKey,
        cohort: Cohort,
        test: Dataset | Pool,
        deployed: Params,
        trained: Params | None = None,
    ) -> Evaluation:
        def score_on(params: Params, data: Dataset | Pool) -> Float[Array, "m"]:
            return score_clients(
                algorithm.apply,
                task.problem.score,
                params,
                data,
                batch_size=batch_size,
                chunk=chunk,
            )

        def scores(params: Params) -> Scores:
            if task.problem.recall is not None:
                params = over_clients(task.problem.recall, chunk)(params, cohort.train)
            if algorithm.recall is not None:
                params = over_clients(algorithm.recall, chunk)(params, cohort.train)
            return Scores(score_on(params, cohort.val), score_on(params, test))

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
