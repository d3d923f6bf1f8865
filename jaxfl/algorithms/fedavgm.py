"""FedAvgM (Hsu et al., "Measuring the Effects of Non-Identical Data Distribution", 2019, section 4.3)."""

import jax
import jax.numpy as jnp
import optax

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.server import descend
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task


def fedavgm(task: Task, *, rate: Scalar = 1.0, momentum: Scalar = 0.9) -> Algorithm:
    """One global model, moved by SGD with momentum against the pseudo-gradient.

    Nothing is personal; a client sends its model.

    State: clients = nothing; server = (the global model, its velocity).

    Args:
      task: the model and its training.
      rate: learning rate of the server. The velocity adds up to 1 / (1 - momentum) rounds.
      momentum: what is left of the velocity after a round.
    """
    check_positive(rate=rate)
    fit, optimizer = task.trainer(task.loss), optax.sgd(rate, momentum)

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
