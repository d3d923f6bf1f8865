"""FedAvgM: momentum on the server."""

from typing import Annotated

import optax

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core.facts import method
from jaxfl.core.options import POSITIVE
from jaxfl.core.papers import Paper
from jaxfl.core.types import Algorithm, Scalar, Task


@method(
    title="FedAvgM",
    paper=Paper(
        authors="Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        title="Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
        "Classification",
        venue="",
        year=2019,
        link="https://arxiv.org/abs/1909.06335",
    ),
    place="section 4.2",
    personal="",
    sends="its model",
    defaults="the paper",
    turn_first="lower momentum if the accuracy jumps; one model cannot fit clients that differ",
)
def fedavgm(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 1.0,
    momentum: Scalar = 0.9,
    nesterov: bool = True,
) -> Algorithm:
    """One global model, moved by SGD with Nesterov's momentum against the pseudo-gradient.

    State: memory = nothing; server = (the global model, opt_state of SGD).

    Args:
      task: the model and its training.
      rate: learning rate of the server. The velocity adds up to 1 / (1 - momentum) rounds.
      momentum: what is left of the velocity after a round.
      nesterov: Nesterov's momentum, as in the paper's experiments; False: plain momentum.

    Example:
      >>> state = initial_state(fedavgm(task, momentum=0.5))
      >>> state.server[1][0]._fields
      ('trace',)
    """
    return global_model(task, server_optimizer=optax.sgd(rate, momentum, nesterov))
