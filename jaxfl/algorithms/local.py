"""Local training only, the baseline that every personalized method must beat.

each round t:
  client i:  w_i = local training of F_i from w_i
client i deploys w_i.
"""

import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core.facts import method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Params, PRNGKey, Task
from jaxfl.training import data_loss


@method(
    title="Local training",
    paper="the baseline that every personalized method must beat",
    link="",
    personal="the whole model",
    sends="",
    starts_from_server=False,
    advice="--local-steps and --lr: they decide how well a client learns alone",
)
def local(task: Task) -> Algorithm:
    """Every client trains its own model on its own data; nothing is sent.

    State: memory = each client's model; server = nothing.

    Differs: all clients start from one common model, as in the other methods here; in pFedGraph's
    tables each client starts from a different model.

    Example:
      >>> state = initial_state(local(task))
      >>> state.server
      ()
    """
    fit = task.trainer(data_loss(task.problem))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        fitted = fit(stream(key, "fit"), memory, None, cohort)
        return fitted.params, Up((), ()), steps.report_of(fitted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        return Outcome(state, weights=jnp.eye(uploads.ids.size))

    return steps.compose(
        task, Wire(steps.init_own(task.problem), (Exchange(client, server),), steps.deploy_memory)
    )
