"""Trimmed mean (Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, Algorithm 1, option II)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.errors import check
from jaxfl.kernels.robust import trimmed_mean as trimmed
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task


def trimmed_mean(task: Task, *, trim: Scalar = 0.2) -> Algorithm:
    """FedAvg whose server leaves out the largest and the smallest values of each coordinate.

    Nothing is personal; a client sends its model.

    State: clients = nothing; server = the global model.

    Args:
      task: the model and its training.
      trim: fraction of the clients to leave out at each end, beta of Definition 2, below .5; as
        many as may lie.

    Differs: clients count alike, whatever their numbers of examples.
    """
    check(
        not isinstance(trim, float | int) or 0 <= trim < 0.5,
        f"trim is {trim}: expected a fraction in [0, 0.5)",
    )
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(clients=(), server=task.init(key))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        model = trimmed(received, trim, heard)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        return State((), model), Info(loss, None, floats, floats, heard=heard)

    def models(state: State, ids):
        return tree.broadcast(state.server, ids.size)

    return Algorithm(init, round, models, task.apply)
