"""FedAMP: personal models attract each other."""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.attraction import attracted_models
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.options import NOT_NEGATIVE, POSITIVE
from jaxfl.core.types import Algorithm, Params, Scalar, Task
from jaxfl.kernels.amp import attentive
from jaxfl.kernels.similarity import squared_distances


@method(
    title="FedAMP",
    paper=papers.FEDAMP,
    place="Algorithm 1",
    personal="the whole model",
    sends="its model",
    defaults="ours",
    offers_mixture=True,
    takes_top_edges=True,
    mixes_before_training=True,
    starts_from_server=False,
    turn_first="lower lam: clients are then less attracted to the mixture; then sigma, in the "
    "order of the squared distances of models",
)
def fedamp(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
    sigma: Annotated[Scalar, POSITIVE] = 10.0,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
) -> Algorithm:
    """Each client has a model near a mixture of all models, in which similar models weigh more.

    At the start of a round the server sends each client of the cohort its mixture u of the models
    that it last received from the cohort. The client minimises its loss plus
    lam / (2 alpha) |w - u|^2, starting from its own model. A client from which the server has
    received nothing is in nobody's mixture, and its own model is its u.

    State: memory = each client's model (`Personal`); record = `attraction.Record`; server =
    nothing.

    Args:
      task: the model and its training.
      alpha: alpha_k, the step size of the server. None: sigma / M, which gives positive weights for
        any models.
      sigma: of A(x) = 1 - exp(-x / sigma), where x is the squared distance of two models. Choose it
        for the model and its training.
      lam: strength of the attraction.

    Differs: alpha does not decay over the rounds, and weights whose sum would exceed 1 are scaled,
    see `kernels.amp`.

    Example:
      >>> _, info = one_round(fedamp(task, sigma=1.0))
      >>> info.weights.shape
      (4, 4)
    """

    def step(clients: int) -> Scalar:
        return sigma / clients if alpha is None else alpha

    def weigh(received: Params, server: tuple) -> Float[Array, "m m"]:
        # The weights xi of the others' models.
        distances = squared_distances(received)
        return attentive(distances, step(len(distances)), sigma)

    def factor(alpha_k: Scalar, seen: Array) -> Scalar:
        return lam / (2 * alpha_k)

    def common(clients: int) -> Array:
        return jnp.asarray(step(clients))

    return attracted_models(task, weigh=weigh, factor=factor, step=common)
