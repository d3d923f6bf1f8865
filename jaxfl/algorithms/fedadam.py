"""FedAdam: Adam on the server."""

from typing import Annotated

import optax

from jaxfl.algorithms.steps.templates import global_model
from jaxfl.core import papers
from jaxfl.core.facts import method
from jaxfl.core.options import POSITIVE
from jaxfl.core.types import Algorithm, Scalar, Task
from jaxfl.kernels.server import UNDER_ROOT


@method(
    title="FedAdam",
    paper=papers.ADAPTIVE_OPTIMIZATION,
    place="Algorithm 2",
    personal="",
    sends="its model",
    defaults="the paper, the best of its grid for Shakespeare and Stack Overflow",
    turn_first="rate, the server's learning rate, by factors of 3; one model cannot fit clients "
    "that differ",
)
def fedadam(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 0.01,
    beta1: Scalar = 0.9,
    beta2: Scalar = 0.99,
    tau: Scalar = 1e-3,
) -> Algorithm:
    """One global model, updated by Adam; the pseudo-gradient is the old model minus the mean.

    State: memory = nothing; server = (the global model, opt_state of Adam).

    Args:
      task: the model and its training.
      rate: learning rate of the server, roughly the change of each parameter in a round. .01 is the
        best value for Shakespeare and Stack Overflow in the paper's grid.
      beta1: decay of the mean of the pseudo-gradients.
      beta2: decay of the mean of the squared pseudo-gradients.
      tau: added to the square root of that mean; the larger it is, the nearer FedAdam is to
        FedAvgM.

    Differs: both means start at 0 and their bias is corrected; in Algorithm 2 it is not, and the
    mean of the squares starts at tau^2. Clients are weighted by their numbers of examples, as in
    the paper's experiments. Statistics of BatchNorm are averaged.

    Example:
      >>> state = initial_state(fedadam(task, rate=0.1))
      >>> state.server[1][0]._fields
      ('count', 'mu', 'nu')
    """
    return global_model(task, server_optimizer=optax.adam(rate, beta1, beta2, tau, UNDER_ROOT))
