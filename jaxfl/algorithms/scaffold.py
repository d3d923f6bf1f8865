"""SCAFFOLD (Karimireddy et al., "Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Server(NamedTuple):
    """What the server keeps."""

    model: Params  # x, the global model
    control: Params  # c, the mean of all clients' control variates
    clients: Int[Array, ""]  # N


def scaffold(task: Task, *, server_rate: Scalar = 1.0) -> Algorithm:
    """FedAvg whose clients correct their gradients by c - c_i, so that local steps do not drift to their own optima.

    Nothing is personal; a client sends its model and its control variate, and receives both of the
    server's.

    State: clients = each client's control variate c_i, first zero; server = `Server`.

    Args:
      task: the model and its training.
      server_rate: eta_g, how far the server goes to the mean of the clients' models; 1 in the
        experiments.

    A client's new variate is the gradient of all its data at the global model: option I of line 12,
    true for any optimiser. Option II takes it from the path of plain SGD. Clients count alike, as
    in the paper.
    """

    def objective(params: Params, batch: Dataset, correction: Params, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + tree.dot(params, correction), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model, clients = task.init(key), train.mask.shape[0]
        zero = jax.tree.map(jnp.zeros_like, model)
        return State(tree.broadcast(zero, clients), Server(model, zero, jnp.int32(clients)))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        server, own, clients = state.server, state.clients, cohort.ids.size
        start = tree.broadcast(server.model, clients)
        correction = jax.tree.map(lambda c, c_i: c[None] - c_i, server.control, own)
        trained, loss = fit(fit_key, start, correction, cohort)
        _, control = task.gradient(jax.random.fold_in(fit_key, 1), start, cohort.train, cohort.ids)
        (model, received), heard = task.uplink(
            uplink_key, (start, own), (trained, control), cohort.ids
        )
        share = size_weights(heard)
        model = jax.tree.map(
            lambda x, y: x + server_rate * (y - x), server.model, mix(share, model)
        )
        part = heard.sum() / server.clients  # |S| / N
        moved = mix(share, jax.tree.map(jnp.subtract, received, own))
        mean = jax.tree.map(lambda c, d: c + part * d, server.control, moved)
        floats = jnp.full_like(cohort.ids, 2 * tree.size(model))
        batches = task.batches(cohort) + task.batches(cohort, epochs=1)
        info = Info(
            loss,
            tree.broadcast(share, clients),
            up=floats,
            down=floats,
            batches=batches,
            heard=heard,
        )
        return State(control, Server(model, mean, server.clients)), info

    def models(state: State, ids):
        return tree.broadcast(state.server.model, ids.size)

    return Algorithm(init, round, models, task.apply)
