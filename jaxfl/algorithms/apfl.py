"""APFL (Deng et al., "Adaptive Personalized Federated Learning", 2020, arXiv:2003.13461, Algorithm 1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl import tree
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Client(NamedTuple):
    """What is kept of each client."""

    model: Params  # v_i [C, ...]
    alpha: Float[Array, "*c"]  # [C] the share of v_i in what the client deploys


def apfl(task: Task, *, alpha: Scalar = 0.5, rate: Scalar | None = 0.01) -> Algorithm:
    """Each client deploys alpha v + (1 - alpha) w of its own model v and the global w, and learns v in that mixture.

    A step goes down f(w) for w and f(alpha v + (1 - alpha) w) for v, on one batch. Personal are v
    and alpha; a client sends its w.

    State: clients = `Client`, v first the common initial model; server = the global model w. The
    loss of a round is that of the mixture. Metrics: mean `alpha` of the cohort.

    Args:
      task: the model and its training, the same for v and w.
      alpha: share of v at first.
      rate: learning rate of alpha, (10), which the paper takes as that of the models. None: alpha
        stays as it is.

    Differs: alpha moves once a round, at its start and by the gradient on all of the client's data.
    Clients count alike, as in the paper.
    """

    def blend(alpha: Array, own: Params, shared: Params) -> Params:
        return jax.tree.map(lambda v, w: alpha * v + (1 - alpha) * w, own, shared)

    def objective(params: tuple, batch: Dataset, alpha: Array, key: PRNGKey):
        own, shared = params
        loss, _ = task.loss(shared, batch, None, key)
        mixed, aux = task.loss(blend(alpha, own, jax.lax.stop_gradient(shared)), batch, None, key)
        return loss + mixed, aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model, clients = task.init(key), train.mask.shape[0]
        first = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), (clients,))
        return State(Client(tree.broadcast(model, clients), first), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        own, share = state.clients
        start = tree.broadcast(state.server, cohort.ids.size)
        batches = 2 * task.batches(cohort)
        if rate is not None:
            mixture = jax.vmap(blend)(share, own, start)
            _, slope = task.gradient(
                jax.random.fold_in(fit_key, 1), mixture, cohort.train, cohort.ids
            )
            towards = jax.vmap(tree.dot)(slope, jax.tree.map(jnp.subtract, own, start))  # (10)
            share = jnp.clip(share - rate * towards, 0, 1)
            batches += task.batches(cohort, epochs=1)
        (own, trained), loss = fit(fit_key, (own, start), share, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        equal = size_weights(heard)
        model = mix(equal, received)
        floats = jnp.full_like(cohort.ids, tree.size(model))
        weights = tree.broadcast(equal, loss.size)
        metrics = {"alpha": share.mean(where=heard)}
        info = Info(loss, weights, floats, floats, metrics, batches, heard)
        return State(Client(own, share), model), info

    def models(state: State, ids):
        own, share = tree.take(state.clients, ids)
        return jax.vmap(blend, (0, 0, None))(share, own, state.server)

    return Algorithm(init, round, models, task.apply)
