"""Multi-Krum (Blanchard et al., "Machine Learning with Adversaries", NeurIPS 2017, section 5)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.errors import check_not_negative, check_positive
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.robust import krum
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def multi_krum(task: Task, *, byzantine: int | None = None, chosen: int | None = None) -> Algorithm:
    """FedAvg whose server takes the mean of the models that lie nearest to their neighbours.

    Nothing is personal; a client sends its model.

    State: clients = nothing; server = the global model.

    Args:
      task: the model and its training.
      byzantine: f, how many of the cohort may lie. None: as many as the rule bears, 2 f + 2 < M.
      chosen: m, how many models to take. None: M - f.
    """
    check_not_negative(byzantine=byzantine)
    check_positive(chosen=chosen)
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(clients=(), server=task.init(key))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = krum(
            received, cohort.ids, heard, byzantine, chosen
        )  # [M], the same for every receiver
        model = mix(share, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        return State((), model), Info(
            loss, tree.broadcast(share, loss.size), floats, floats, heard=heard
        )

    def models(state: State, ids):
        return tree.broadcast(state.server, ids.size)

    return Algorithm(init, round, models, task.apply)
