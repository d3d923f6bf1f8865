"""AFL: the mixture of clients that is worst for the model is found beside the model.

each round t, for min_w max_l sum_i l_i F_i(w) over l on the simplex:       (Algorithm 1)
  client i:  w_i = local training of F_i from w; sends it, and F_i(w)
  server:    w = sum_i l_i w_i
             l = the point of the simplex that is nearest to l + rate (F_1(w), ..., F_M(w)), for w
             as it was sent
client i deploys w.
"""

from typing import Annotated

import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Exchange, Outcome, ServerState, Uploads, Wire
from jaxfl.core.types import Algorithm, Dataset, PRNGKey, Scalar, Task
from jaxfl.kernels import mix, project_rows, size_weights


@method(
    title="AFL",
    paper=Paper(
        authors="Mohri, Mehryar and Sivek, Gary and Suresh, Ananda Theertha",
        title="Agnostic Federated Learning",
        venue="ICML",
        year=2019,
        link="https://arxiv.org/abs/1902.00146",
    ),
    place="Algorithm 1, with local steps",
    personal="",
    sends="its model, and the loss of the model that it received",
    defaults="the code of q-FFL's authors",
    advice="lower rate: at 0 clients count equally; one model cannot fit clients that differ",
)
def afl(task: Task, *, rate: Annotated[Scalar, NOT_NEGATIVE] = 0.01) -> Algorithm:
    """FedAvg in which clients with a large loss gain weight from round to round.

    With `rate=0` all clients count equally. In a cohort the weights are those of its clients,
    scaled to sum to 1, which are equal if none has any. A client is believed what it tells of its
    loss.

    State: record = l_i, at first 1 / C; server = the global model.

    Args:
      task: the model and its training.
      rate: of the ascent of l, for losses in units of the task's loss.

    Differs: clients take the task's local steps before the server takes the mean, where the paper
    has one gradient; the last model is deployed, where the paper's analysis has the mean over the
    rounds. In a cohort the l_i of its clients, divided by their sum, make the step of l, and the
    sum stays, as do the l_i of the others.

    Example:
      >>> state = initial_state(afl(task))
      >>> state.clients.record.shape
      (4,)
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        clients = train.mask.shape[0]
        mixture = jnp.ones(clients) / clients
        return (), ServerState(task.problem.init(key), mixture)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        losses, sizes = steps.client_losses(uploads, uploads.plain)
        counted = sizes > 0
        mixture = jnp.where(counted, state.record, 0.0)
        total = mixture.sum()
        equal = size_weights(counted)
        weights = jnp.where(total > 0, mixture / jnp.where(total > 0, total, 1.0), equal)
        model = mix(weights, uploads.received)
        # The ascent, by losses of the model before.
        lowest = jnp.finfo(weights.dtype).min
        risen = jnp.where(counted, weights + rate * losses, lowest)
        ascent = total * project_rows(risen[None])[0]
        record = jnp.where(counted, ascent, state.record)
        weights = tree.broadcast(weights, sizes.size)
        return Outcome(ServerState(model, record), weights=weights)

    exchange = Exchange(steps.train_and_tell(task), server)
    return steps.compose(task, Wire(init, (exchange,), steps.deploy_common, steps.download_server))
