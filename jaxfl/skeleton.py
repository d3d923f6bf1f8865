"""What the rounds of many methods share: local training, the upload, and one global model."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl import tree
from jaxfl.errors import InputError
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.server import descend
from jaxfl.objectives import data_loss
from jaxfl.streams import stream
from jaxfl.types import (
    Algorithm,
    Cohort,
    Dataset,
    Fit,
    Fitted,
    Info,
    Objective,
    Params,
    PRNGKey,
    Problem,
    State,
    Task,
)


class Round(NamedTuple):
    """What the clients of a round did."""

    # [M, ...] what they trained
    trained: Params
    # [M, ...] what the server received; for a client that has not reported what it started from
    received: Params
    # to be completed by the method: its weights, and what it counts beside one training and upload
    info: Info


def train_and_upload(
    task: Task,
    fit: Fit,
    key: PRNGKey,
    start: Params,
    anchor: PyTree,
    cohort: Cohort,
    sends: Callable[[Params], Params] = lambda model: model,
) -> Round:
    """Local training of a cohort and the upload of what it trained.

    Args:
      task: its upload.
      fit: local training, by `task.trainer`.
      key: of the round.
      start: what each client trains from [M, ...].
      anchor: what the objective needs of each client [M, ...], or None.
      cohort: the clients of the round.
      sends: the part of a client's model that it uploads; the whole by default.

    Returns:
      The `Round`; its info has no weights, and `down` equal to `up`.
    """
    fitted = fit(stream(key, "fit"), start, anchor, cohort)
    received, info = upload(task, key, fitted, sends(start), sends(fitted.params), cohort)
    return Round(fitted.params, received, info)


def upload(
    task: Task, key: PRNGKey, fitted: Fitted, before: Params, after: Params, cohort: Cohort
) -> tuple[Params, Info]:
    """The upload of a round, and what the round tells so far.

    Args:
      task: its upload.
      key: of the round.
      fitted: what local training returned; its loss and batches are told.
      before: what the server knows of what is uploaded [M, ...].
      after: what is uploaded [M, ...].
      cohort: the clients of the round.

    Returns:
      What the server receives [M, ...], and an `Info` without weights, and `down` equal to `up`.
    """
    received, reported = task.upload(stream(key, "upload"), before, after, cohort.ids)
    return received, tell(fitted, reported, tree.size(after) // cohort.ids.size)


def tell(fitted: Fitted, reported: Bool[Array, "m"], floats: int) -> Info:
    """The `Info` of a round in which each client sent and was sent so many floats; no weights yet."""
    sent = jnp.full(reported.shape, floats)
    return Info(fitted.loss, None, sent, sent, fitted.batches, reported)


# (received [M], start [M], reported [M], cohort) -> the aggregate, and the weights of the senders [M]
# that made it or None if it is not a weighted mean
Aggregate = Callable[
    [Params, Params, Bool[Array, "m"], Cohort], tuple[Params, Float[Array, "m"] | None]
]


def mean_by_size(
    received: Params, start: Params, reported: Bool[Array, "m"], cohort: Cohort
) -> tuple[Params, Float[Array, "m"]]:
    """FedAvg's aggregate: the mean of the models that arrived, weighted by numbers of examples."""
    weights = size_weights(cohort.sizes * reported)
    return mix(weights, received), weights


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

    State: clients = each client's last trained model if `keep_trained` or `deploy_trained`, first
    the initial model, else nothing; server = the global model, or (the global model, opt_state) with
    a `server_optimizer`.

    Args:
      task: the problem and its clients.
      objective: what local training lowers; the data loss if None.
      anchor: (start [M], last trained models [M]) -> the objective's anchor [M].
      aggregate: how the server makes one model of those that it received.
      server_optimizer: takes the start less the aggregate for a gradient; None: the aggregate is the
        new global model.
      keep_trained: clients keep what they last trained.
      deploy_trained: clients deploy that, not the global model.
    """
    fit = task.trainer(data_loss(task.problem) if objective is None else objective)
    keep_trained = keep_trained or deploy_trained

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        clients = tree.broadcast(model, train.mask.shape[0]) if keep_trained else ()
        if server_optimizer is None:
            return State(clients, model)
        return State(clients, (model, server_optimizer.init(model)))

    def current(state: State) -> Params:
        return state.server if server_optimizer is None else state.server[0]

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        model = current(state)
        start = tree.broadcast(model, cohort.ids.size)
        near = None if anchor is None else anchor(start, state.clients)
        trained, received, info = train_and_upload(task, fit, key, start, near, cohort)
        server, weights = aggregate(received, start, info.reported, cohort)
        if server_optimizer is not None:
            server = descend(server_optimizer, state.server[1], model, server)
        if weights is not None:
            weights = tree.broadcast(weights, cohort.ids.size)
        return State(trained if keep_trained else (), server), info._replace(weights=weights)

    def models(state: State, ids: Array) -> Params:
        if deploy_trained:
            return tree.take(state.clients, ids)
        return tree.broadcast(current(state), ids.size)

    return Algorithm(init, round, models, task.problem.apply)


def partial_model(
    task: Task, divide: Callable[[Params], tuple[Params, Params]], shared: str, own: str
) -> Algorithm:
    """A method in which one part of the model is FedAvg's and each client keeps the other part.

    Both parts are trained together; a client deploys the mean of the shared part with its own part.

    State: clients = each client's own part; server = the shared part. Weights: of both parts by
    name; those of the own part are the identity.

    Args:
      task: the problem and its clients.
      divide: model -> (shared part, own part), see `tree.split`.
      shared: the name of the shared part.
      own: the name of the other part.
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
        server, weights = mean_by_size(received, start, info.reported, cohort)
        info = info._replace(weights=part_weights(weights, shared, own, received))
        return State(divide(trained)[1], server), info

    def models(state: State, ids: Array) -> Params:
        return tree.join(tree.take(state.clients, ids), tree.broadcast(state.server, ids.size))

    return Algorithm(init, round, models, task.problem.apply)


def check_byzantine(byzantine: int | None, clients: int) -> None:
    """Raises an `InputError` unless Krum's guarantee holds for a cohort: 2 f + 2 < M."""
    most = max((clients - 3) // 2, 0)
    if byzantine is not None and byzantine > most:
        raise InputError(
            f"byzantine is {byzantine}: expected at most {most} for a cohort of {clients} clients "
            "(2 f + 2 < M)"
        )


def head_of(problem: Problem, head: tree.Layers | None) -> tree.Layers:
    """The layers that are the head: those given, or else the model's own.

    Raises:
      InputError: neither is there, or no layer matches.
    """
    found = problem.head if head is None else head
    if found is None:
        raise InputError(
            "this method needs to know the model's head, and the model names none: give head=PATTERN, a "
            "regular expression that finds the head's parameters, or choose another model",
        )
    tree.select(jax.eval_shape(problem.init, jax.random.key(0)), found)
    return found


def features_of(problem: Problem) -> Callable[[Params, Array], Array]:
    """What enters the model's head: (params, x [B]) -> features [B, d].

    Raises:
      InputError: the model does not say.
    """
    if problem.features is None:
        raise InputError(
            "this method needs the model's features: give the flax module a method features(x) that "
            "returns what enters its last layer, or choose another model or statistics=averaged",
        )
    return problem.features


def part_weights(
    weights: Float[Array, "m"], shared: str, own: str, received: Params
) -> dict[str, Float[Array, "m m"]]:
    """Weights of a model of which one part is shared and each client keeps the other part.

    Args:
      weights: of the senders in the shared part [M].
      shared: its name.
      own: the name of the other part, whose weights are the identity.
      received: the shared part [M, ...]; nothing is mixed if it has no parameters.
    """
    identity = jnp.eye(weights.size)
    mixed = tree.broadcast(weights, weights.size) if jax.tree.leaves(received) else identity
    return {shared: mixed, own: identity}
