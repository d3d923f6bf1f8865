"""Ditto (Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization", ICML 2021, Algorithm 1)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def ditto(task: Task, *, lam: Scalar = 1.0) -> Algorithm:
    """FedAvg, and beside it a model of each client's own, held near the global model w^t by lam / 2 |v - w^t|^2 (2).

    Personal is the whole deployed model v; a client sends the other one, that it trained from the
    global model.

    State: clients = each client's v, first the common initial model; server = the global model. The
    loss of a round is that of v.

    Args:
      task: the model and its training, the same for both models.
      lam: strength of the proximal term; the authors choose between .05 and 2, pFedGraph's tables
        take 1.

    Differs: the two models are trained one after the other and on batches of their own, as in
    pFedGraph's tables; the authors' code takes one step of each in turn on one batch.
    """

    def objective(params: Params, batch: Dataset, centre: Params, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + lam / 2 * tree.squared_distance(params, centre), aux

    fit, fit_own = task.trainer(task.loss), task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State(clients=tree.broadcast(model, train.mask.shape[0]), server=model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        own, loss = fit_own(jax.random.fold_in(fit_key, 1), state.clients, start, cohort)
        trained, _ = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(share, loss.size)
        info = Info(
            loss, weights, up=floats, down=floats, batches=2 * task.batches(cohort), heard=heard
        )
        return State(own, model), info

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
