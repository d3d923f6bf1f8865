"""SCAFFOLD: control variates that correct the drift of local steps."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.objectives import data_loss
from jaxfl.registry import method
from jaxfl.skeleton import upload
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


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
    paper='Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", '
    "ICML 2020, Algorithm 1",
    link="https://arxiv.org/abs/1910.06378",
    personal="",
    sends="its model and its control variate",
)
def scaffold(task: Task, *, server_rate: Scalar = 1.0) -> Algorithm:
    """FedAvg with gradients corrected by c - c_i, so that clients do not drift to their own optima.

    A client receives the server's model and control variate. Its new control variate is the
    gradient on all of its data at the global model. This is option I of line 12, which is right for
    any optimiser; option II is right for plain SGD only. Clients count equally, as in the paper.

    State: clients = each client's control variate c_i, at first zero; server = `Server`.

    Args:
      task: the model and its training.
      server_rate: eta_g; the server moves the global model to the mean of the clients' models by
        this fraction. 1 in the experiments.
    """
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, correction: Params, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        return value + tree.dot(params, correction), aux

    fit = task.trainer(objective)
    gradient = task.gradient(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        zero = jax.tree.map(jnp.zeros_like, model)
        return State(tree.broadcast(zero, clients), Server(model, zero, jnp.int32(clients)))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        server = state.server
        own = state.clients
        start = tree.broadcast(server.model, cohort.ids.size)
        # Line 10: local steps with the gradient g_i(y_i) - c_i + c.
        correction = jax.tree.map(lambda c, c_i: c[None] - c_i, server.control, own)
        fitted = fit(stream(key, "fit"), start, correction, cohort)
        # Line 12, option I: the new control variate is the gradient at the global model.
        control = gradient(stream(key, "evaluate"), start, cohort.train, cohort.ids)
        after = (fitted.params, control.grads)
        (trained, controls), info = upload(task, key, fitted, (start, own), after, cohort)
        # Lines 16 and 17: the global model moves to the mean of the models, and the control variate
        # of the server changes by |S| / N times the mean change of the clients' control variates.
        weights = size_weights(info.reported)
        mean = mix(weights, trained)
        model = jax.tree.map(lambda x, y: x + server_rate * (y - x), server.model, mean)
        change = mix(weights, jax.tree.map(jnp.subtract, controls, own))
        fraction = info.reported.sum() / server.clients
        mean_control = jax.tree.map(lambda c, d: c + fraction * d, server.control, change)
        info = info._replace(
            weights=tree.broadcast(weights, cohort.ids.size),
            batches=info.batches + control.batches,
        )
        return State(control.grads, Server(model, mean_control, server.clients)), info

    def models(state: State, ids: Array) -> Params:
        return tree.broadcast(state.server.model, ids.size)

    return Algorithm(init, round, models, task.problem.apply)
