"""Clients that arrive late: they train from old models, and what staleness costs them."""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxfl.algorithms.steps.client_steps import deploy_common, train_and_send
from jaxfl.algorithms.steps.composition import compose
from jaxfl.core import tree
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Turn,
    Uploads,
    Wire,
)
from jaxfl.core.options import checked
from jaxfl.core.types import Algorithm, Cohort, Dataset, Objective, Params, PRNGKey, Scalar, Task
from jaxfl.training.objectives import data_loss

Discount = Literal["constant", "polynomial", "hinge"]


@checked
def discount(
    staleness: Int[Array, "*m"], form: Discount, a: Scalar, b: Scalar
) -> Float[Array, "*m"]:
    """What an update counts whose start is stale, s(d) in (0, 1], with s(0) = 1.

    The forms are those of Xie et al., "Asynchronous Federated Optimization", 2019, section 5.2,
    https://arxiv.org/abs/1903.03934:

    - constant: s(d) = 1.
    - polynomial: s(d) = (d + 1)^-a. FedBuff's 1 / sqrt(1 + d) is that of a = 1/2.
    - hinge: s(d) = 1 up to d = b, then 1 / (a (d - b) + 1).

    Args:
      staleness: d, how many updates the server's model has had since the start was downloaded.
      form: constant, polynomial or hinge.
      a: the exponent, or the slope of the hinge; unused if constant.
      b: staleness that the hinge does not count.

    Example:
      >>> discount(jnp.array([0, 3]), "polynomial", a=0.5, b=0.0).tolist()
      [1.0, 0.5]
      >>> discount(jnp.array([4, 6]), "hinge", a=0.5, b=4.0).tolist()
      [1.0, 0.5]
    """
    d = staleness.astype(float)
    if form == "polynomial":
        return (d + 1) ** (-a)
    if form == "hinge":
        return 1 / (a * jnp.maximum(d - b, 0) + 1)
    return jnp.ones_like(d)


def staleness_metrics(
    staleness: Int[Array, "m"], reported: Bool[Array, "m"]
) -> dict[str, Float[Array, ""]]:
    """The mean and the largest staleness of the clients that reported; 0 if there are none.

    Args:
      staleness: of each client of a round [M].
      reported: which of them count [M].

    Example:
      >>> metrics = staleness_metrics(jnp.array([0, 4, 9]), jnp.array([True, True, False]))
      >>> {name: float(value) for name, value in metrics.items()}
      {'staleness': 2.0, 'largest_staleness': 4.0}
    """
    delays = jnp.where(reported, staleness, 0).astype(float)
    mean = delays.sum() / jnp.maximum(reported.sum(), 1)
    return {"staleness": mean, "largest_staleness": delays.max()}


def shares(counts: Float[Array, "m"]) -> Float[Array, "m"]:
    """What each client counts, in proportion to the sum; 1 / M if nobody counts.

    Example:
      >>> shares(jnp.array([0.25, 0.25, 0.0])).tolist()
      [0.5, 0.5, 0.0]
    """
    total = counts.sum()
    return jnp.where(total > 0, counts / jnp.where(total > 0, total, 1.0), 1 / counts.size)


def stale_starts(
    task: Task,
    objective: Objective | None,
    step: Callable[
        [PRNGKey, ServerState, Uploads],
        tuple[tuple[Params, Int[Array, ""]], Float[Array, "m"], Int[Array, "m"]],
    ],
) -> Algorithm:
    """A method with one global model, in which a client trains from the one that it received last.

    A client gets the global model when it begins to deploy, and after its upload, not before it
    trains: meanwhile the server may have updated it.

    State: memory = the model that each client has received last; record = its version, how many
    updates it contains; server = (the global model, its version). Metrics: `staleness` (mean of the
    cohort) and `largest_staleness`. The weights are the shares of the clients in the update.

    Args:
      task: the problem and its clients.
      objective: what local training lowers; its anchor is the model from which a client trains.
        None: the data loss alone.
      step: (key, state, uploads) -> the new state of the server, what each upload counts [M], and
        its staleness [M].

    Example:
      >>> def step(key, state, uploads):
      ...     model, version = state.server
      ...     return (model, version + 1), jnp.ones(4), version - state.record
      >>> objective = jaxfl.training.objectives.data_loss(task.problem)
      >>> state, info = one_round(stale_starts(task, objective, step))
      >>> state.clients.record.shape, sorted(info.metrics)
      ((4,), ['largest_staleness', 'staleness'])
    """
    fit = task.trainer(data_loss(task.problem) if objective is None else objective)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        model = task.problem.init(key)
        clients = len(train.mask)
        version = jnp.zeros((), jnp.int32)
        record = tree.broadcast(version, clients)
        return tree.broadcast(model, clients), ServerState((model, version), record)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        anchor = None if objective is None else memory
        return train_and_send(fit, key, memory, anchor, cohort)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        (model, version), counts, staleness = step(key, state, uploads)
        clients = uploads.ids.size
        return Outcome(
            ServerState((model, version), tree.broadcast(version, clients)),
            Down(model),
            tree.broadcast(shares(counts), clients),
            staleness_metrics(staleness, uploads.reported),
        )

    def take(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return deploy_common(memory, down, cohort), None, Report()

    def release(state: ServerState) -> Down:
        return Down(state.server[0])

    exchanges = (Exchange(client, server), Exchange(take))
    return compose(task, Wire(init, exchanges, deploy_common, release=release))
