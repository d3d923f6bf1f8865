"""Norm clipping (Sun et al., "Can You Really Backdoor Federated Learning?", 2019, section 4)."""

import jax
import jax.numpy as jnp

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.kernels.robust import clip_updates
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, Scalar, State, Task


def norm_clipping(task: Task, *, bound: Scalar | None = None) -> Algorithm:
    """FedAvg whose server shortens updates that are longer than a bound.

    Nothing is personal; a client sends its model.

    State: clients = nothing; server = the global model.

    Args:
      task: the model and its training.
      bound: of the Euclidean length of an update. None: the median length in the round.
    """
    check_positive(bound=bound)
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(clients=(), server=task.init(key))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = tree.broadcast(state.server, cohort.ids.size)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        share = size_weights(
            cohort.sizes * heard
        )  # [M], of the shortened updates, the same for every receiver
        model = mix(share, clip_updates(start, received, bound, heard))
        floats = jnp.full_like(cohort.ids, tree.size(model))
        return State((), model), Info(
            loss, tree.broadcast(share, loss.size), floats, floats, heard=heard
        )

    def models(state: State, ids):
        return tree.broadcast(state.server, ids.size)

    return Algorithm(init, round, models, task.apply)
