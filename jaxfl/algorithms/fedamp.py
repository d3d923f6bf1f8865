"""FedAMP (Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, Algorithm 1)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.errors import check_not_negative, check_positive
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.amp import attentive
from jaxfl.kernels.cluster import squared_distances
from jaxfl.kernels.mixing import isolate, mix
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def fedamp(
    task: Task, *, alpha: Scalar | None = None, sigma: Scalar = 10.0, lam: Scalar = 1.0
) -> Algorithm:
    """Each client's own model, held near a mixture of all models in which near ones weigh more.

    Personal is the model. A client sends it and is sent its mixture u; it minimises its loss plus
    lam / (2 alpha) |w - u|^2 from its own model.

    State: clients = (model, u), each [C, ...]; server = nothing.

    Args:
      task: the model and its training.
      alpha: alpha_k, step of the server. None: sigma / M, with which the weights are positive
        whatever the models are.
      sigma: of A(x) = 1 - exp(-x / sigma), in squared distances of models; to be chosen for the
        model and its training.
      lam: strength of the attraction.

    Differs: alpha does not decay over the rounds, and weights that would exceed 1 are scaled, see
    `kernels.amp`.
    """
    check_positive(alpha=alpha, sigma=sigma)
    check_not_negative(lam=lam)

    def objective(params: Params, batch: Dataset, anchor, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + misalignment(params, *anchor, "l2"), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = tree.broadcast(task.init(key), train.mask.shape[0])
        return State((model, model), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start, mixture = state.clients
        step = sigma / cohort.ids.size if alpha is None else alpha
        trained, loss = fit(
            fit_key, start, (mixture, jnp.full(cohort.ids.size, lam / (2 * step))), cohort
        )
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        weights = isolate(attentive(squared_distances(received), step, sigma), heard)
        floats = jnp.full_like(cohort.ids, tree.size(trained) // cohort.ids.size)
        info = Info(loss, weights, floats, floats, batches=task.batches(cohort), heard=heard)
        return State((trained, mix(weights, received)), ()), info

    def models(state: State, ids):
        return tree.take(state.clients[0], ids)

    return Algorithm(init, round, models, task.apply)
