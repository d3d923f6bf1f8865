"""FedAvgM: momentum on the server."""

from typing import Annotated

import optax

from jaxfl.options import POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import global_model
from jaxfl.types import Algorithm, Scalar, Task


@method(
    title="FedAvgM",
    paper='Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated '
    'Visual Classification", 2019, section 4.3',
    link="https://arxiv.org/abs/1909.06335",
    personal="",
    sends="its model",
)
def fedavgm(
    task: Task, *, rate: Annotated[Scalar, POSITIVE] = 1.0, momentum: Scalar = 0.9
) -> Algorithm:
    """One global model, updated by SGD with momentum; see FedAdam for the pseudo-gradient.

    State: clients = nothing; server = (the global model, opt_state of SGD).

    Args:
      task: the model and its training.
      rate: learning rate of the server. If all rounds have the same pseudo-gradient, the velocity
        grows to 1 / (1 - momentum) times the pseudo-gradient.
      momentum: the fraction of the velocity that is kept from one round to the next.
    """
    return global_model(task, server_optimizer=optax.sgd(rate, momentum))
