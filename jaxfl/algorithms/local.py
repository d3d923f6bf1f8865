"""Local training only, the baseline that every personalized method must beat."""

import jax.numpy as jnp

from jaxfl import tree
from jaxfl.objectives import data_loss
from jaxfl.registry import method
from jaxfl.skeleton import tell
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task


@method(
    title="Local training",
    paper="the baseline that every personalized method must beat",
    link="",
    personal="the whole model",
    sends="",
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
        info = tell(fitted, tree.finite(fitted.params, cohort.ids.size), 0)
        return State(fitted.params, ()), info._replace(weights=jnp.eye(cohort.ids.size))

    def models(state: State, cohort: Cohort) -> Params:
        return tree.take(state.clients, cohort.ids)

    return Algorithm(init, round, models, task.problem.apply)
