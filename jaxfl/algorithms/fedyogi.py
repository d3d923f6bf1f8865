"""FedYogi: Yogi on the server."""

from typing import Annotated

import optax

from jaxfl.options import POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import global_model
from jaxfl.types import Algorithm, Scalar, Task


@method(
    title="FedYogi",
    paper='Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2',
    link="https://arxiv.org/abs/2003.00295",
    personal="",
    sends="its model",
)
def fedyogi(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 0.01,
    beta1: Scalar = 0.9,
    beta2: Scalar = 0.99,
    tau: Scalar = 1e-3,
) -> Algorithm:
    """One global model, moved by Yogi against the pseudo-gradient, its start less the mean.

    Yogi's estimate of the squares falls more slowly than that of Adam.

    State: clients = nothing; server = (the global model, opt_state of Yogi).

    Args:
      task: the model and its training.
      rate: learning rate of the server, about how far a round moves each parameter. .01 is the
        best for Shakespeare and Stack Overflow in the paper's grid.
      beta1: decay of the mean of the pseudo-gradients.
      beta2: how fast the estimate of their squares follows them.
      tau: added to the root of that estimate.

    Differs: both estimates are corrected for their start; in Algorithm 2 they are not, and the
    squares start at tau^2, here at 1e-6. Clients are weighted by their numbers of examples, as in
    the paper's experiments.
    """
    return global_model(task, server_optimizer=optax.yogi(rate, beta1, beta2, tau))
