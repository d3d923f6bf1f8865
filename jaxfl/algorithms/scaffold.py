"""SCAFFOLD: control variates that correct the drift of local steps.

each round t:                                                               (Algorithm 1)
  client i:  y_i = local steps from x with the gradient grad F_i(y_i) - c_i + c
             option I:   d_i = grad F_i(x) - c_i
             option II:  d_i = (x - y_i) / (K eta_l) - c
             c_i = c_i + d_i; sends y_i and d_i
  server:    x = x + eta_g times the mean of y_i - x
             c = c + |S| / N times the mean of the d_i, for |S| of N clients
client i deploys x.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Up, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import data_loss, of_statistics, trainable, without_statistics


class Server(NamedTuple):
    """The state of the server."""

    # x, the global model
    model: Params
    # c, the mean of all clients' control variates
    control: Params
    # N, the number of clients
    clients: Int[Array, ""]


@method(
    title="SCAFFOLD",
    paper=Paper(
        authors="Karimireddy, Sai Praneeth and Kale, Satyen and Mohri, Mehryar and Reddi, "
        "Sashank J. and Stich, Sebastian U. and Suresh, Ananda Theertha",
        title="SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
        venue="ICML",
        year=2020,
        link="https://arxiv.org/abs/1910.06378",
    ),
    place="Algorithm 1",
    personal="",
    sends="its model and the change of its control variate",
    defaults="the paper",
    advice="lower --local-steps or --lr; one model cannot fit clients that differ",
)
def scaffold(
    task: Task,
    *,
    option: Literal["I", "II"] = "II",
    server_rate: Scalar = 1.0,
    local_rate: Annotated[Scalar | None, POSITIVE] = None,
) -> Algorithm:
    """FedAvg whose clients correct their gradients by c - c_i, against drift to their own optima.

    A client receives the server's model and control variate. Clients count equally, as in the
    paper.

    State: memory = each client's control variate c_i, at first zero; server = `Server`.

    Args:
      task: the model and its training by SGD.
      option: a client's new control variate (line 12). "II": the mean gradient of its local steps,
        read from how far they went; the paper's experiments use it. "I": the gradient of all its
        data at the global model, one pass over the data more.
      server_rate: eta_g, how far the server goes to the mean of the clients' models; 1 in the
        experiments.
      local_rate: eta_l K of option II, how far the local steps of a round go along a constant
        gradient of 1. None: measured on the task's optimiser, so that momentum counts. A client
        that takes only a part of its steps goes that part of it.

    The server updates c by the changes of the c_i as they arrive (line 17). Therefore c is the mean
    of all c_i if the uplink changes nothing. With noise or compression it differs from the mean by
    the errors of all rounds so far.

    Differs: with momentum a local step goes further than eta_l along a gradient that stays, and
    option II divides by how far; the paper has plain SGD. Statistics of BatchNorm are averaged.

    Example:
      >>> state = initial_state(scaffold(task, option="I"))
      >>> state.server._fields
      ('model', 'control', 'clients')
    """
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, correction: Params, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        return value + tree.dot(trainable(params), trainable(correction)), aux

    fit = task.trainer(objective)
    gradient = task.gradient(loss)
    measure = steps.displacement(task)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        zero = tree.zeros_like(model)
        server = Server(model, zero, jnp.int32(clients))
        return tree.broadcast(zero, clients), ServerState(server)

    def download(state: ServerState) -> Down:
        return Down((state.server.model, state.server.control))

    def displacements(key: PRNGKey, cohort: Cohort) -> Array:
        """How far each client's local steps go along a constant gradient of 1 [M]."""
        measure_key = stream(key, "second_fit")
        if local_rate is None:
            return measure(measure_key, cohort)
        length = jnp.broadcast_to(jnp.asarray(local_rate, float), cohort.ids.shape)
        if cohort.work is None:
            return length
        # The given distance is that of all steps.
        whole = measure(measure_key, cohort._replace(work=None))
        distance = measure(measure_key, cohort)
        return length * distance / jnp.where(whole > 0, whole, 1.0)

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        model, mean_control = down.common
        start = tree.broadcast(model, cohort.ids.size)
        # Line 10: local steps with the gradient g_i(y_i) - c_i + c.
        correction = jax.tree.map(lambda c, c_i: c[None] - c_i, mean_control, memory)
        fitted = fit(stream(key, "fit"), start, correction, cohort)
        if option == "I":
            answer = gradient(stream(key, "evaluate"), start, cohort.train, cohort.ids)
            control = answer.grads
            batches = fitted.batches + answer.batches
        else:
            # c_i - c + (x - y_i) / (K eta_l), and c_i for a client without a local step.
            distance = displacements(key, cohort)
            inverse = jnp.where(distance > 0, 1 / jnp.where(distance > 0, distance, 1.0), 0.0)
            mean_grad = tree.scale(jax.tree.map(jnp.subtract, start, fitted.params), inverse)
            candidates = jax.tree.map(jnp.subtract, mean_grad, correction)
            control = without_statistics(tree.choose(distance > 0, candidates, memory))
            batches = fitted.batches
        # Line 13: the change of c_i is sent, since the server does not know c_i.
        change = jax.tree.map(jnp.subtract, control, memory)
        up = Up((fitted.params, change), before=(start, tree.zeros_like(change)))
        return control, up, steps.report_of(fitted, batches=batches)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        model, control, clients = state.server
        # Lines 16 and 17: the global model moves to the mean of the models, and the control variate
        # of the server changes by |S| / N times the mean change of the clients' control variates.
        (mean, change), weights = steps.equal_mean(uploads)
        moved = jax.tree.map(lambda x, y: x + server_rate * (y - x), model, mean)
        model = tree.combine(of_statistics, mean, moved)
        fraction = uploads.reported.sum() / clients
        control = jax.tree.map(lambda c, d: c + fraction * d, control, change)
        new = ServerState(Server(model, control, clients))
        return Outcome(new, weights=tree.broadcast(weights, uploads.ids.size))

    def deploy(memory: Params, down: Down, cohort: Cohort) -> Params:
        return tree.broadcast(down.common[0], cohort.ids.size)

    return steps.compose(task, Wire(init, (Exchange(client, server),), deploy, download))
