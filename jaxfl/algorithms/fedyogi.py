"""FedYogi (Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2)."""

import jax
import jax.numpy as jnp
import optax

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.server import descend
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task


def fedyogi(
    task: Task,
    *,
    rate: Scalar = 0.01,
    beta1: Scalar = 0.9,
    beta2: Scalar = 0.99,
    tau: Scalar = 1e-3,
) -> Algorithm:
    """One global model, moved by Yogi against the pseudo-gradient.

    Nothing is personal; a client sends its model.

    Its estimate of the squares falls more slowly than that of Adam.

    State: clients = nothing; server = (the global model, moments of Yogi).

    Args:
      task: the model and its training.
      rate: learning rate of the server; about how far a round moves each number of the model. .01
        is the best of Shakespeare and Stack Overflow in the paper's grid.
      beta1: decay of the mean of the pseudo-gradients.
      beta2: how fast their squares are followed.
      tau: added to the root of these.

    Differs: both estimates are corrected for their start; in Algorithm 2 they are not, and the
    squares start at tau^2, here at 1e-6. The clients count by their numbers of examples, as in the
    experiments of the paper.
    """
    check_positive(rate=rate)
    fit, optimizer = task.trainer(task.loss), optax.yogi(rate, beta1, beta2, tau)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State((), (model, optimizer.init(model)))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        model, memory = state.server
        start = tree.broadcast(model, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(cohort.sizes * heard)  # [M], the same for every receiver
        server = descend(optimizer, memory, model, mix(share, received))
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(share, loss.size)
        return State((), server), Info(
            loss, weights, floats, floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids):
        return tree.broadcast(state.server[0], ids.size)

    return Algorithm(init, round, models, task.apply)
