"""SCAFFOLD: control variates against the drift of local steps."""

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
    """What the server keeps."""

    model: Params  # x, the global model
    control: Params  # c, the mean of all clients' control variates
    clients: Int[Array, ""]  # N


@method(
    title="SCAFFOLD",
    paper='Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", '
    "ICML 2020, Algorithm 1",
    link="https://arxiv.org/abs/1910.06378",
    personal="",
    sends="its model and its control variate",
)
def scaffold(task: Task, *, server_rate: Scalar = 1.0) -> Algorithm:
    """FedAvg whose clients correct their gradients by c - c_i, against drift to their own optima.

    A client receives the server's model and control variate, and its new variate is the gradient of
    all its data at the global model: option I of line 12, which is true for any optimiser. Option
    II takes it from the path of plain SGD. Clients count equally, as in the paper.

    State: clients = each client's control variate c_i, first zero; server = `Server`.

    Args:
      task: the model and its training.
      server_rate: eta_g, how far the server goes to the mean of the clients' models; 1 in the
        experiments.
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
        # Line 10: local steps along g_i(y_i) - c_i + c.
        correction = jax.tree.map(lambda c, c_i: c[None] - c_i, server.control, own)
        fitted = fit(stream(key, "fit"), start, correction, cohort)
        # Line 12, option I.
        control = gradient(stream(key, "evaluate"), start, cohort.train, cohort.ids)
        after = (fitted.params, control.grads)
        (trained, controls), info = upload(task, key, fitted, (start, own), after, cohort)
        # Lines 16 and 17: the server moves to the mean of the models, and its control variate by
        # |S| / N of the mean change.
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
