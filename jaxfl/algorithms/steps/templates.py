"""Whole methods with holes: one global model, or a model of which one part is personal."""

from collections.abc import Callable

import optax
from jaxtyping import PyTree

from jaxfl.algorithms.steps.aggregates import Aggregate, mean_by_size, take_part
from jaxfl.algorithms.steps.client_steps import (
    deploy_common,
    deploy_parts,
    deploy_personal,
    init_global,
    init_personal,
    seen,
    train_and_send,
)
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.personal import personal_models
from jaxfl.core import tree
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    ServerState,
    Turn,
    Uploads,
    Wire,
    download_server,
)
from jaxfl.core.trainable import of_statistics, trainable
from jaxfl.core.types import Algorithm, Cohort, Dataset, Objective, Params, PRNGKey, Task
from jaxfl.kernels.server_optimizer import optimizer_step
from jaxfl.training.objectives import data_loss


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

    State: memory = each client's last trained model (`Personal`) if `keep_trained` or
    `deploy_trained`, otherwise nothing; server = the global model, or with a `server_optimizer`
    (the global model, opt_state).

    Args:
      task: the problem and its clients.
      objective: what local training lowers; the data loss if None.
      anchor: (start [M], last [M]) -> the objective's anchor [M]. `last` is each client's last
        trained model if clients keep them, or the global model for a client without one.
      aggregate: how the server makes one model from those that it received.
      server_optimizer: its gradient is the old global model minus the aggregate, of which it does
        not see statistics of BatchNorm: those of the aggregate are the new ones. None: the
        aggregate is the new global model.
      keep_trained: clients keep their last trained model.
      deploy_trained: clients deploy their last trained model, not the global model, which only
        clients that were never seen deploy.

    Example:
      >>> state, info = one_round(global_model(task, keep_trained=True))
      >>> state.clients.memory.seen.shape, info.weights.shape
      ((4,), (4, 4))
    """
    fit = task.trainer(data_loss(task.problem) if objective is None else objective)
    keep_trained = keep_trained or deploy_trained
    first = (init_personal if keep_trained else init_global)(task.problem)

    def init(key: PRNGKey, train: Dataset) -> tuple[PyTree, ServerState]:
        memory, state = first(key, train)
        if server_optimizer is not None:
            opt_state = server_optimizer.init(trainable(state.server))
            state = ServerState((state.server, opt_state))
        return memory, state

    def download(state: ServerState) -> Down:
        return Down(state.server if server_optimizer is None else state.server[0])

    def client(key: PRNGKey, memory: PyTree, down: Down, cohort: Cohort) -> Turn[PyTree]:
        start = deploy_common(memory, down, cohort)
        last = personal_models(memory, down.common) if keep_trained else ()
        anchors = None if anchor is None else anchor(start, last)
        trained, up, report = train_and_send(fit, key, start, anchors, cohort)
        return seen(trained, cohort) if keep_trained else (), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        new, weights = aggregate(uploads)
        if server_optimizer is not None:
            model, opt_state = state.server
            parts = trainable(model), trainable(new)
            moved, opt_state = optimizer_step(server_optimizer, opt_state, *parts)
            new = tree.combine(of_statistics, new, moved), opt_state
        if weights is not None:
            weights = tree.broadcast(weights, uploads.ids.size)
        return Outcome(ServerState(new), weights=weights)

    deploy = deploy_personal if deploy_trained else deploy_common
    return compose(task, Wire(init, (Exchange(client, server),), deploy, download))


def partial_model(
    task: Task,
    divide: Callable[[Params], tuple[Params, Params]],
    shared: str,
    personal: str,
    aggregate: Aggregate = mean_by_size,
) -> Algorithm:
    """A method that averages one part of the model as FedAvg does; each client keeps the other.

    Both parts are trained together. A client deploys the mean of the shared part with its personal
    part.

    State: memory = each client's personal part; server = the shared part. Weights: one matrix for
    each part, by name; the matrix of the personal part is the identity.

    Args:
      task: the problem and its clients.
      divide: model -> (shared part, personal part), see `tree.split`.
      shared: the name of the shared part.
      personal: the name of the part that clients keep.
      aggregate: how the server makes one shared part from those that it received.

    Example:
      >>> algorithm = partial_model(task, lambda m: tree.split(m, "Dense_0"), "body", "head")
      >>> sorted(one_round(algorithm)[1].weights)
      ['body', 'head']
    """
    fit = task.trainer(data_loss(task.problem))

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        server, client = divide(task.problem.init(key))
        return tree.broadcast(client, train.mask.shape[0]), ServerState(server)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        start = deploy_parts(memory, down, cohort)
        trained, up, report = train_and_send(
            fit, key, start, None, cohort, sends=lambda model: divide(model)[0]
        )
        return divide(trained)[1], up, report

    exchange = Exchange(client, take_part(shared, personal, aggregate))
    return compose(task, Wire(init, (exchange,), deploy_parts, download_server))
