"""TERM: clients count the more, the larger their loss, by a tilted mean.

each round t, for the objective 1 / t log sum_i p_i exp(t F_i(w)):
  client i:  w_i = local training of F_i from w; sends it, and F_i(w)
  server:    w = sum_i a_i w_i, where a_i is p_i exp(t F_i(w)), scaled to sum to 1
client i deploys w.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Exchange, Uploads, Wire
from jaxfl.core.types import Algorithm, Params, Scalar, Task
from jaxfl.kernels import mix, size_weights


@method(
    title="TERM",
    paper=Paper(
        authors="Li, Tian and Beirami, Ahmad and Sanjabi, Maziar and Smith, Virginia",
        title="Tilted Empirical Risk Minimization",
        venue="ICLR",
        year=2021,
        link="https://arxiv.org/abs/2007.01162",
    ),
    place="with a tilt over clients, as in its experiment on fair federated learning",
    personal="",
    sends="its model, and the loss of the model that it received",
    defaults="the authors' code",
    advice="lower tilt: at 0 it is FedAvg; one model cannot fit clients that differ",
)
def term(task: Task, *, tilt: Scalar = 0.1) -> Algorithm:
    """FedAvg in which a client's weight grows exponentially with its loss.

    The weight is that of the gradient of F_i in the gradient of the objective. With `tilt=0` this
    is FedAvg, with a large tilt the client with the largest loss alone counts, and with a negative
    one clients with a large loss count less. A client is believed what it tells of its loss.

    State: memory = nothing; server = the global model.

    Args:
      task: the model and its training.
      tilt: t of the paper.

    Differs: the weights of the clients of a round sum to 1; the authors' code divides by a moving
    average of their sums over the rounds. The examples of a client are not tilted.

    Example:
      >>> _, info = one_round(term(task, tilt=1.0))
      >>> info.weights.shape
      (4, 4)
    """

    def aggregate(uploads: Uploads) -> tuple[Params, Float[Array, "m"]]:
        losses, sizes = steps.client_losses(uploads, uploads.plain)
        # Relative to the largest exponent, so that nothing overflows.
        exponents = tilt * losses
        largest = jnp.where(sizes > 0, exponents, -jnp.inf).max()
        weights = size_weights(sizes * jnp.exp(jnp.minimum(exponents - largest, 0.0)))
        return mix(weights, uploads.received), weights

    exchange = Exchange(steps.train_and_tell(task), steps.take_mean(aggregate))
    init = steps.init_global(task.problem)
    return steps.compose(task, Wire(init, (exchange,), steps.deploy_common, steps.download_server))
