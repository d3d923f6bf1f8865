"""FedAvgM: momentum on the server.

each round t:
  client i:  w_i = local training of F_i from w, and sends it
  server:    g = w - sum_i p_i w_i, where p_i are the clients' shares of the examples
             v = momentum v + g; w = w - rate (g + momentum v)
client i deploys w.
"""

from typing import Annotated

import optax

from jaxfl.algorithms import steps
from jaxfl.core.facts import POSITIVE, Paper, method
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
    advice="lower momentum if the accuracy jumps; one model cannot fit clients that differ",
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
    return steps.global_model(task, server_optimizer=optax.sgd(rate, momentum, nesterov))
