"""Clients with models of their own that are attracted to mixtures: FedAMP and HeurFedAMP.

Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021,
https://arxiv.org/abs/2007.03797.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.types import (
    Cohort,
    Dataset,
    Fit,
    Info,
    Objective,
    Params,
    PRNGKey,
    Problem,
    Scalar,
    Task,
)
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.mixing import keep_own, mix
from jaxfl.training.batch_statistics import trainable
from jaxfl.training.objectives import data_loss

__all__ = ["Client", "attraction", "attraction_round", "first_clients"]


class Client(NamedTuple):
    """The state of each client."""

    # [C, ...] the client's own model
    model: Params
    # [C, ...] what the server last received from the client
    received: Params
    # [C] whether it has received anything
    seen: Bool[Array, "*c"]


def first_clients(model: Params, clients: int) -> Client:
    """The state of clients that have not taken part yet, each with this one model.

    Example:
      >>> clients = first_clients(jnp.array([1.0, 2.0]), clients=3)
      >>> clients.model.shape, clients.seen.tolist()
      ((3, 2), [False, False, False])
    """
    models = tree.broadcast(model, clients)
    return Client(models, models, jnp.zeros(clients, bool))


def attraction(problem: Problem) -> Objective:
    """The data loss plus factor |w - u|^2, where the anchor is (u, factor).

    Example:
      >>> params = task.problem.init(jax.random.key(0))
      >>> mixture = jax.tree.map(lambda x: x + 1, params)  # of 90 parameters
      >>> batch = Dataset(jnp.zeros((2, 8)), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> value, aux = attraction(task.problem)(params, batch, (mixture, 0.5), jax.random.key(0))
      >>> round((value - aux).item(), 2)
      45.0
    """
    loss = data_loss(problem)

    def objective(params: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        mixture, factor = anchor
        value, aux = loss(params, batch, None, key)
        return value + misalignment(trainable(params), trainable(mixture), factor, "l2"), aux

    return objective


def attraction_round(
    task: Task,
    fit: Fit,
    key: PRNGKey,
    clients: Client,
    weights: Float[Array, "m m"],
    factor: Scalar,
    cohort: Cohort,
) -> tuple[Client, Info]:
    """A round: each client is sent its mixture u, trains its own model near u and uploads it.

    A client that refuses its mixture is attracted to nothing, and its row of the weights is that of
    the identity.

    Args:
      task: has the upload, and whether clients refuse.
      fit: training on the objective `attraction`.
      key: of the round.
      clients: the state of the cohort [M, ...].
      weights: of the models that the server last received [M, M].
      factor: of the attraction, one number or one for each client [M].
      cohort: the clients of the round.

    Example:
      >>> key = jax.random.key(0)
      >>> fit = task.trainer(attraction(task.problem))
      >>> start = first_clients(task.problem.init(key), 4)
      >>> arguments = (task, fit, key, start, jnp.eye(4), 0.1, cohort)
      >>> jax.eval_shape(lambda: attraction_round(*arguments))[1].weights.shape
      (4, 4)
    """
    edges = task.keep_edges(weights)
    mixture, accepted = task.accept(clients.model, mix(edges.rows, clients.received), cohort)
    anchor = (mixture, factor * accepted)
    trained, received, info = train_and_upload(task, fit, key, clients.model, anchor, cohort)
    after = Client(trained, received, jnp.ones_like(clients.seen))
    return after, info._replace(weights=keep_own(edges.weights, accepted))
