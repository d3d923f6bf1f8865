"""Whole methods with holes: one global model, or a model of which one part is personal."""

from collections.abc import Callable

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms.steps.heads import part_weights
from jaxfl.algorithms.steps.personal import Personal, personal_models, start_personal
from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Info,
    Objective,
    Params,
    PRNGKey,
    State,
    Task,
)
from jaxfl.kernels import robust
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.server import optimizer_step
from jaxfl.training.objectives import data_loss

# (received [M], start [M], reported [M], cohort) -> (the aggregate, the senders' weights [M]); the
# weights are None if the aggregate is not a weighted mean
Aggregate = Callable[
    [Params, Params, Bool[Array, "m"], Cohort], tuple[Params, Float[Array, "m"] | None]
]


def mean_by_size(
    received: Params, start: Params, reported: Bool[Array, "m"], cohort: Cohort
) -> tuple[Params, Float[Array, "m"]]:
    """FedAvg's aggregate: the mean of the models that arrived, weighted by numbers of examples.

    Example:
      >>> received = jnp.array([[1.0], [3.0], [90.0], [90.0]])
      >>> reported = jnp.array([True, True, False, False])
      >>> [result.tolist() for result in mean_by_size(received, received, reported, cohort)]
      [[2.0], [0.5, 0.5, 0.0, 0.0]]
    """
    weights = size_weights(cohort.sizes * reported)
    return mix(weights, received), weights


def mean_of_nearest(byzantine: int | None, chosen: int | None) -> Aggregate:
    """Krum's aggregate: the mean of the models that are nearest to their neighbours.

    Args:
      byzantine: how many clients may be malicious, see `robust.krum`.
      chosen: of how many models the mean is.

    Returns:
      An `Aggregate`. It raises an `InputError` if `byzantine` is too large for the cohort.

    Example:
      >>> received = jnp.array([[0.0], [1.0], [1.5], [90.0]])
      >>> aggregate = mean_of_nearest(0, chosen=2)
      >>> aggregate(received, received, jnp.ones(4, bool), cohort)[0].tolist()
      [1.25]
    """

    def aggregate(
        received: Params, start: Params, reported: Bool[Array, "m"], cohort: Cohort
    ) -> tuple[Params, Float[Array, "m"]]:
        check_byzantine(byzantine, cohort.ids.size)
        weights = robust.krum(received, cohort.ids, reported, byzantine, chosen)
        return mix(weights, received), weights

    return aggregate


def check_byzantine(byzantine: int | None, clients: int) -> None:
    """Raises an `InputError` unless Krum's guarantee holds for a cohort: 2 f + 2 < M.

    Example:
      >>> check_byzantine(4, clients=10)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: byzantine is 4: expected at most 3 for a cohort of 10 ...
    """
    most = max((clients - 3) // 2, 0)
    check(
        byzantine is None or byzantine <= most,
        f"byzantine is {byzantine}: expected at most {most} for a cohort of {clients} clients "
        "(2 f + 2 < M)",
    )


def unweighted_mean(received: Params, info: Info) -> tuple[Params, Info]:
    """The mean of the models that arrived, in which clients count equally.

    Args:
      received: what the server received [M, ...].
      info: of the round so far; it says who reported.

    Returns:
      The mean, and the info with its weights [M, M].

    Example:
      >>> fitted = jaxfl.types.Fitted((), jnp.zeros(2), jnp.full(2, 5))
      >>> uploads = jaxfl.algorithms.steps.uploads
      >>> info = uploads.round_info(fitted, jnp.ones(2, bool), 1)
      >>> mean, info = unweighted_mean(jnp.array([[1.0], [3.0]]), info)
      >>> mean.tolist(), info.weights.tolist()
      ([2.0], [[0.5, 0.5], [0.5, 0.5]])
    """
    weights = size_weights(info.reported)
    info = info._replace(weights=tree.broadcast(weights, info.reported.size))
    return mix(weights, received), info


def global_model(
    task: Task,
    *,
    objective: Objective | None = None,
    anchor: Callable[[Params, PyTree], PyTree] | None = None,
    aggregate: Aggregate = mean_by_size,
    server_optimizer: optax.GradientTransformation | None = None,
    keep_trained: bool = False,
    deploy_trained: bool = False,
) -> Algorithm:
    """A method with one global model, from which all clients of a round train; FedAvg by default.

    State: clients = each client's last trained model (`Personal`) if `keep_trained` or
    `deploy_trained`, otherwise nothing; server = the global model, or with a `server_optimizer`
    (the global model, opt_state).

    Args:
      task: the problem and its clients.
      objective: what local training lowers; the data loss if None.
      anchor: (start [M], last [M]) -> the objective's anchor [M]. `last` is each client's last
        trained model if clients keep them, or the global model for a client without one.
      aggregate: how the server makes one model from those that it received.
      server_optimizer: its gradient is the old global model minus the aggregate. None: the
        aggregate is the new global model.
      keep_trained: clients keep their last trained model.
      deploy_trained: clients deploy their last trained model, not the global model, which only
        clients that were never seen deploy.

    Example:
      >>> state, info = one_round(global_model(task, keep_trained=True))
      >>> state.clients.seen.shape, info.weights.shape
      ((4,), (4, 4))
    """
    fit = task.trainer(data_loss(task.problem) if objective is None else objective)
    keep_trained = keep_trained or deploy_trained

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        clients = start_personal(model, train.mask.shape[0]) if keep_trained else ()
        if server_optimizer is None:
            return State(clients, model)
        return State(clients, (model, server_optimizer.init(model)))

    def current(state: State) -> Params:
        return state.server if server_optimizer is None else state.server[0]

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        model = current(state)
        start = tree.broadcast(model, cohort.ids.size)
        last = personal_models(state.clients, model) if keep_trained else ()
        anchors = None if anchor is None else anchor(start, last)
        trained, received, info = train_and_upload(task, fit, key, start, anchors, cohort)
        server, weights = aggregate(received, start, info.reported, cohort)
        if server_optimizer is not None:
            server = optimizer_step(server_optimizer, state.server[1], model, server)
        if weights is not None:
            weights = tree.broadcast(weights, cohort.ids.size)
        clients = Personal(trained, jnp.ones_like(info.reported)) if keep_trained else ()
        return State(clients, server), info._replace(weights=weights)

    def models(state: State, cohort: Cohort) -> Params:
        if deploy_trained:
            return personal_models(tree.take(state.clients, cohort.ids), current(state))
        return tree.broadcast(current(state), cohort.ids.size)

    return Algorithm(init, round, models, task.problem.apply)


def partial_model(
    task: Task,
    divide: Callable[[Params], tuple[Params, Params]],
    shared: str,
    personal: str,
    by_size: bool = True,
) -> Algorithm:
    """A method that averages one part of the model as FedAvg does; each client keeps the other.

    Both parts are trained together. A client deploys the mean of the shared part with its personal
    part.

    State: clients = each client's personal part; server = the shared part. Weights: one matrix for
    each part, by name; the matrix of the personal part is the identity.

    Args:
      task: the problem and its clients.
      divide: model -> (shared part, personal part), see `tree.split`.
      shared: the name of the shared part.
      personal: the name of the part that clients keep.
      by_size: clients weigh by their numbers of examples in the mean; False: equally.

    Example:
      >>> algorithm = partial_model(task, lambda m: tree.split(m, "Dense_0"), "body", "head")
      >>> sorted(one_round(algorithm)[1].weights)
      ['body', 'head']
    """
    fit = task.trainer(data_loss(task.problem))

    def init(key: PRNGKey, train: Dataset) -> State:
        server, client = divide(task.problem.init(key))
        return State(tree.broadcast(client, train.mask.shape[0]), server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start = tree.join(state.clients, tree.broadcast(state.server, cohort.ids.size))
        trained, received, info = train_and_upload(
            task, fit, key, start, None, cohort, sends=lambda model: divide(model)[0]
        )
        if by_size:
            server, weights = mean_by_size(received, start, info.reported, cohort)
            info = info._replace(weights=tree.broadcast(weights, cohort.ids.size))
        else:
            server, info = unweighted_mean(received, info)
        info = info._replace(weights=part_weights(info.weights, shared, personal, received))
        return State(divide(trained)[1], server), info

    def models(state: State, cohort: Cohort) -> Params:
        return tree.join(
            tree.take(state.clients, cohort.ids), tree.broadcast(state.server, cohort.ids.size)
        )

    return Algorithm(init, round, models, task.problem.apply)
