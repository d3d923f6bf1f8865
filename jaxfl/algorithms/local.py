"""Local training only, the baseline that every personalized method must beat."""

import jax.numpy as jnp

from jaxfl.algorithms.steps.personal import own_models
from jaxfl.algorithms.steps.uploads import round_info
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task
from jaxfl.training.objectives import data_loss


@method(
    title="Local training",
    paper="the baseline that every personalized method must beat",
    link="",
    personal="the whole model",
    sends="",
    starts_from_server=False,
    turn_first="--local-steps and --lr: they decide how well a client learns alone",
)
def local(task: Task) -> Algorithm:
    """Every client trains its own model on its own data; nothing is sent.

    State: clients = each client's model; server = nothing.

    Differs: all clients start from one common model, as in the other methods here; in pFedGraph's
    tables each client starts from a different model.

    Example:
      >>> state = initial_state(local(task))
      >>> state.server
      ()
    """
    fit = task.trainer(data_loss(task.problem))

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(tree.broadcast(task.problem.init(key), train.mask.shape[0]), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fitted = fit(stream(key, "fit"), state.clients, None, cohort)
        info = round_info(fitted, tree.finite(fitted.params, cohort.ids.size), 0)
        return State(fitted.params, ()), info._replace(weights=jnp.eye(cohort.ids.size))

    return Algorithm(init, round, own_models, task.problem.apply)
