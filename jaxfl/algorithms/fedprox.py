"""FedProx (Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def fedprox(task: Task, *, mu: Scalar = 0.01) -> Algorithm:
    """FedAvg whose clients are held near the global model w^t by mu / 2 |w - w^t|^2 in their loss (2).

    Nothing is personal; a client sends its model.

    State: clients = nothing; server = the global model.

    Args:
      task: the model and its training.
      mu: strength of the proximal term; section 5 chooses from .001, .01, .1 and 1, pFedGraph's
        tables take .01.

    Differs: clients are weighted by their numbers of examples, where the paper draws them so; all
    take the task's steps, where the paper lets stragglers take fewer.
    """

    def objective(params: Params, batch: Dataset, centre: Params, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + mu / 2 * tree.squared_distance(params, centre), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(clients=(), server=task.init(key))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, start, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(share, loss.size)
        return State((), model), Info(
            loss, weights, up=floats, down=floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids):
        return tree.broadcast(state.server, ids.size)

    return Algorithm(init, round, models, task.apply)
