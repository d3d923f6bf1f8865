"""FedAvg with fine-tuning (FedAvg-FT in the tables of pFedGraph, ICML 2023, section 4.1)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def fedavg_ft(task: Task) -> Algorithm:
    """FedAvg, but each client deploys what it last trained from the global model, before the aggregation.

    There is no separate fine-tuning phase: the local steps of the round are the fine-tuning. A
    client that has never taken part deploys the initial model.

    Personal is that model; a client sends it.

    State: clients = each client's last trained model; server = the global model.
    """
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State(clients=tree.broadcast(model, train.mask.shape[0]), server=model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        return State(trained, model), Info(
            loss, tree.broadcast(share, loss.size), up=floats, down=floats, heard=heard
        )

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
