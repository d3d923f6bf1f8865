"""Median (Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, Algorithm 1, option I)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.robust import median as middle
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def median(task: Task) -> Algorithm:
    """FedAvg whose server takes the median of each coordinate, whatever the clients' numbers of examples.

    Nothing is personal; a client sends its model.

    State: clients = nothing; server = the global model.
    """
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(clients=(), server=task.init(key))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        model = middle(received, heard)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        return State((), model), Info(loss, None, floats, floats, heard=heard)

    def models(state: State, ids):
        return tree.broadcast(state.server, ids.size)

    return Algorithm(init, round, models, task.apply)
