"""FedDyn: a linear term in each client's loss, so that local optima agree with the global one.

each round t:                                                               (Algorithm 1)
  client i:  w_i = local training of F_i(w) - <g_i, w> + alpha / 2 |w - theta|^2 from theta
             g_i = g_i - alpha (w_i - theta); sends w_i
  server:    h = h - alpha / m sum_i (w_i - theta), for m clients in all
             theta = the mean of the w_i - h / alpha
client i deploys theta.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import data_loss, proximal, trainable, without_statistics


class Server(NamedTuple):
    """The state of the server."""

    # theta, the global model
    model: Params
    # h, the mean of the clients' linear terms, with the sign of a change of the model
    correction: Params
    # m, the number of clients
    clients: Int[Array, ""]


@method(
    title="FedDyn",
    paper=Paper(
        authors="Acar, Durmus Alp Emre and Zhao, Yue and Matas Navarro, Ramon and "
        "Mattina, Matthew and Whatmough, Paul N. and Saligrama, Venkatesh",
        title="Federated Learning Based on Dynamic Regularization",
        venue="ICLR",
        year=2021,
        link="https://arxiv.org/abs/2111.04263",
    ),
    place="Algorithm 1",
    personal="",
    sends="its model",
    defaults="the authors' code",
    advice="raise alpha: clients then stay nearer to the global model; one model cannot fit "
    "clients that differ",
)
def feddyn(task: Task, *, alpha: Annotated[Scalar, POSITIVE] = 0.01) -> Algorithm:
    """FedAvg with a dynamic regulariser, whose fixed points are those of the common loss.

    Client k minimises its loss minus <g_k, theta> plus alpha / 2 |theta - theta^(t-1)|^2, from the
    global model theta^(t-1). Then g_k changes by -alpha (theta_k - theta^(t-1)), which makes it the
    gradient of its loss at theta_k where that is the minimum. The server keeps h, which changes by
    -alpha times the sum of these differences over the number m of all clients, and takes the mean
    of the models less h / alpha.

    State: memory = g_k, at first 0; server = `Server`.

    Args:
      task: the model and its training.
      alpha: strength of both terms; .01 in the authors' code.

    Differs: statistics of BatchNorm have no terms: the server takes their mean.

    Example:
      >>> state = initial_state(feddyn(task, alpha=0.1))
      >>> state.server._fields
      ('model', 'correction', 'clients')
    """
    proximal_loss = proximal(data_loss(task.problem), alpha)

    def objective(params: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        linear, centre = anchor
        value, aux = proximal_loss(params, batch, centre, key)
        return value - tree.dot(trainable(params), trainable(linear)), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        zero = tree.zeros_like(model)
        server = Server(model, zero, jnp.int32(clients))
        return tree.broadcast(zero, clients), ServerState(server)

    def download(state: ServerState) -> Down:
        return Down(state.server.model)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        start = steps.deploy_common(memory, down, cohort)
        trained, up, report = steps.train_and_send(fit, key, start, (memory, start), cohort)
        # The client's linear term, of its own model, whatever the server receives of it.
        drift = without_statistics(tree.subtract(trained, down.common))
        return jax.tree.map(lambda g, d: g - alpha * d, memory, drift), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        before = state.server
        # h, and the mean of the models less h / alpha.
        mean, weights = steps.equal_mean(uploads)
        fraction = uploads.reported.sum() / before.clients
        change = without_statistics(jax.tree.map(jnp.subtract, mean, before.model))
        correction = jax.tree.map(lambda h, d: h - alpha * fraction * d, before.correction, change)
        model = jax.tree.map(lambda x, h: x - h / alpha, mean, correction)
        after = Server(model, correction, before.clients)
        # Where nobody has reported, everything stays.
        new = tree.where(uploads.reported.any(), after, before)
        return Outcome(ServerState(new), weights=tree.broadcast(weights, uploads.ids.size))

    return steps.compose(
        task, Wire(init, (Exchange(client, server),), steps.deploy_common, download)
    )
