"""FedAvg (McMahan et al., "Communication-Efficient Learning of Deep Networks", AISTATS 2017, Algorithm 1)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def fedavg(task: Task) -> Algorithm:
    """One global model: the mean of the clients' models, weighted by their numbers of examples.

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
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        return State((), model), Info(
            loss, tree.broadcast(share, loss.size), up=floats, down=floats, heard=heard
        )

    def models(state: State, ids):
        return tree.broadcast(state.server, ids.size)

    return Algorithm(init, round, models, task.apply)
