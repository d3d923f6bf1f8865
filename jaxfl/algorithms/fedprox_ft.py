"""FedProx (Li et al., MLSys 2020) with fine-tuning (FedProx-FT in the tables of pFedGraph, section 4.1)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def fedprox_ft(task: Task, *, mu: Scalar = 0.01) -> Algorithm:
    """FedProx, but each client deploys what it last trained from the global model, before the aggregation.

    As in `fedavg_ft` there is no separate fine-tuning phase. A client that has never taken part
    deploys the initial model. Personal is the whole model; a client sends it.

    State: clients = each client's last trained model; server = the global model.

    Args:
      task: the model and its training.
      mu: strength of the proximal term, as in `fedprox`.

    Differs: as `fedprox`.
    """

    def objective(params: Params, batch: Dataset, centre: Params, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + mu / 2 * tree.squared_distance(params, centre), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State(clients=tree.broadcast(model, train.mask.shape[0]), server=model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, start, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(share, loss.size)
        info = Info(
            loss, weights, up=floats, down=floats, batches=task.batches(cohort), heard=heard
        )
        return State(trained, model), info

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
