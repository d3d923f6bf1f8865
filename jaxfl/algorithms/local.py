"""Local training only: the floor that every personalised method must beat."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def local(task: Task) -> Algorithm:
    """Every client trains its own model on its own data; nothing is sent.

    Personal is the whole model; a client sends nothing.

    State: clients = each client's model; server = nothing.

    Differs: all clients start from one common model, as in every other method here; pFedGraph's
    tables start each from its own.
    """
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(clients=tree.broadcast(task.init(key), train.mask.shape[0]), server=())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, _ = jax.random.split(
            key
        )  # as where there is an uplink: all methods see the same batches
        models, loss = fit(fit_key, state.clients, None, cohort)
        nothing = jnp.zeros_like(cohort.ids)
        return State(models, ()), Info(loss, jnp.eye(loss.size), up=nothing, down=nothing)

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
