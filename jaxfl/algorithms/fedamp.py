"""FedAMP: personal models attract each other."""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array

from jaxfl import tree
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.amp import attentive
from jaxfl.kernels.mixing import isolate, mix
from jaxfl.kernels.similarity import squared_distances
from jaxfl.objectives import data_loss
from jaxfl.options import NOT_NEGATIVE, POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


@method(
    title="FedAMP",
    paper='Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021, '
    "Algorithm 1",
    link="https://arxiv.org/abs/2007.03797",
    personal="the whole model",
    sends="its model",
)
def fedamp(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
    sigma: Annotated[Scalar, POSITIVE] = 10.0,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
) -> Algorithm:
    """Each client has a model near a mixture of all models, in which similar models weigh more.

    The server sends each client its mixture u. The client minimises its loss plus
    lam / (2 alpha) |w - u|^2, starting from its own model.

    State: clients = (model, u), each [C, ...]; server = nothing.

    Args:
      task: the model and its training.
      alpha: alpha_k, the step size of the server. None: sigma / M, which gives positive weights for
        any models.
      sigma: of A(x) = 1 - exp(-x / sigma), where x is the squared distance of two models. Choose it
        for the model and its training.
      lam: strength of the attraction.

    Differs: alpha does not decay over the rounds, and weights whose sum would exceed 1 are scaled,
    see `kernels.amp`.
    """
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        centre, factor = anchor
        value, aux = loss(params, batch, None, key)
        return value + misalignment(params, centre, factor, "l2"), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = tree.broadcast(task.problem.init(key), train.mask.shape[0])
        return State((model, model), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start, mixture = state.clients
        step = sigma / cohort.ids.size if alpha is None else alpha
        centre = (mixture, jnp.full(cohort.ids.size, lam / (2 * step)))
        trained, received, info = train_and_upload(task, fit, key, start, centre, cohort)
        # The weights xi of the others' models, and each client's mixture u.
        rows = attentive(squared_distances(received), step, sigma)
        weights = isolate(rows, info.reported)
        new_mixture = mix(weights, received)
        return State((trained, new_mixture), ()), info._replace(weights=weights)

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.clients[0], ids)

    return Algorithm(init, round, models, task.problem.apply)
