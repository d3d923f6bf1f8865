"""FedAdam and FedYogi: an adaptive optimiser on the server.

each round t:                                                               (Algorithm 2)
  client i:  w_i = local training of F_i from w, and sends it
  server:    g = w - sum_i p_i w_i, where p_i are the clients' shares of the examples
             m = beta1 m + (1 - beta1) g
             FedAdam:  v = beta2 v + (1 - beta2) g^2
             FedYogi:  v = v - (1 - beta2) sign(v - g^2) g^2
             w = w - rate m / (v^(1/2) + tau)
client i deploys w.
"""

from typing import Annotated

import jax.numpy as jnp
import optax

from jaxfl.algorithms import steps
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.types import Algorithm, Scalar, Task
from jaxfl.kernels.server_optimizer import UNDER_ROOT

PAPER = Paper(
    authors="Reddi, Sashank J. and Charles, Zachary and Zaheer, Manzil and Garrett, Zachary and "
    "Rush, Keith and Konečný, Jakub and Kumar, Sanjiv and McMahan, H. Brendan",
    title="Adaptive Federated Optimization",
    venue="ICLR",
    year=2021,
    link="https://arxiv.org/abs/2003.00295",
)


@method(
    title="FedAdam",
    paper=PAPER,
    place="Algorithm 2",
    personal="",
    sends="its model",
    defaults="the paper, the best of its grid for Shakespeare and Stack Overflow",
    advice="rate, the server's learning rate, by factors of 3; one model cannot fit clients "
    "that differ",
)
def fedadam(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 0.01,
    beta1: Scalar = 0.9,
    beta2: Scalar = 0.99,
    tau: Scalar = 1e-3,
    correct_bias: bool = True,
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
      correct_bias: whether the means, which start at 0, are divided by what they have so far of a
        whole mean, as Adam does.

    Differs: both means start at 0 and their bias is corrected; in Algorithm 2 it is not
    (`correct_bias=False`, where tau in round t is (1 - beta2^t)^(1/2) of the given one), and the
    mean of the squares starts at tau^2. Clients are weighted by their numbers of examples, as in
    the paper's experiments. Statistics of BatchNorm are averaged.

    Example:
      >>> state = initial_state(fedadam(task, rate=0.1))
      >>> state.server[1][0]._fields
      ('count', 'mu', 'nu')
    """
    adam = optax.adam(rate, beta1, beta2, tau, UNDER_ROOT)
    server = adam if correct_bias else optax.chain(adam, _bias(beta1, beta2))
    return steps.global_model(task, server_optimizer=server)


@method(
    title="FedYogi",
    paper=PAPER,
    place="Algorithm 2",
    personal="",
    sends="its model",
    defaults="the paper, the best of its grid for Shakespeare and Stack Overflow",
    advice="rate, the server's learning rate, by factors of 3; one model cannot fit clients "
    "that differ",
)
def fedyogi(
    task: Task,
    *,
    rate: Annotated[Scalar, POSITIVE] = 0.01,
    beta1: Scalar = 0.9,
    beta2: Scalar = 0.99,
    tau: Scalar = 1e-3,
    correct_bias: bool = True,
) -> Algorithm:
    """One global model, updated by Yogi; the pseudo-gradient is the old model minus the mean.

    Yogi's estimate of the squared pseudo-gradient falls more slowly than Adam's.

    State: memory = nothing; server = (the global model, opt_state of Yogi).

    Args:
      task: the model and its training.
      rate: learning rate of the server, roughly the change of each parameter in a round. .01 is the
        best value for Shakespeare and Stack Overflow in the paper's grid.
      beta1: decay of the mean of the pseudo-gradients.
      beta2: the estimate of the squares changes by 1 - beta2 times the new square.
      tau: added to the square root of that estimate.
      correct_bias: as in `fedadam`.

    Differs: the bias of both estimates is corrected, and both start at 1e-6; in Algorithm 2 it is
    not corrected, and the squares start at tau^2 (`correct_bias=False`, where the mean does so too,
    and tau is that of `fedadam`). Clients are weighted by their numbers of examples, as in the
    paper's experiments. Statistics of BatchNorm are averaged.

    Example:
      >>> state = initial_state(fedyogi(task, rate=0.1))
      >>> state.server[1][0]._fields
      ('count', 'mu', 'nu')
    """
    if correct_bias:
        return steps.global_model(task, server_optimizer=optax.yogi(rate, beta1, beta2, tau))
    yogi = optax.scale_by_yogi(beta1, beta2, tau, initial_accumulator_value=tau**2)
    server = optax.chain(yogi, optax.scale_by_learning_rate(rate), _bias(beta1, beta2))
    return steps.global_model(task, server_optimizer=server)


def _bias(beta1: Scalar, beta2: Scalar) -> optax.GradientTransformation:
    """Takes the correction of both means back: what remains of m / v^(1/2) is its bias."""
    return optax.scale_by_schedule(
        lambda count: (1 - beta1 ** (count + 1)) / jnp.sqrt(1 - beta2 ** (count + 1))
    )
