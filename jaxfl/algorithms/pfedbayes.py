"""pFedBayes (Zhang et al., "Personalized Federated Learning via Variational Bayesian Inference", ICML 2022)."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.errors import check_not_negative, check_positive
from jaxfl.kernels.gaussian import Gaussian, divergence, draw
from jaxfl.kernels.mixing import mix, size_weights
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def pfedbayes(
    task: Task, *, zeta: Scalar = 10.0, rho: Scalar = -2.5, rate: Scalar = 1e-3, beta: Scalar = 1.0
) -> Algorithm:
    """A Gaussian over models for each client, near one that all share.

    A client's q and its copy w_i of the shared w descend together along the mean over its n
    examples of the loss at a model drawn from q, plus zeta / n KL(q || w_i); the server takes the
    mean of the copies. Personal is q, whose mean is deployed. A client sends w_i, means and
    deviations, and is sent w.

    State: clients = q [C, ...]; server = w.

    Args:
      task: the model and its training; its optimiser is not used.
      zeta: weight of the divergence. This and what follows are the paper's settings.
      rho: first deviations are softplus(rho).
      rate: learning rate of q, by Adam, and of w_i, by SGD: it has no noise that Adam would have to
        scale.
      beta: share of the new mean in w.

    Differs: q and w_i step together, as often as the task trains, with one draw of q a step. Adam
    for q is that of the unofficial code, whose draws have a thousandth of the deviation.
    """
    check_not_negative(zeta=zeta)
    check_positive(rate=rate, beta=beta)

    def objective(params: tuple[Gaussian, Gaussian], batch: Dataset, strength: Array, key: PRNGKey):
        draw_key, loss_key = jax.random.split(key)
        q, w = params
        loss, aux = task.loss(draw(draw_key, q), batch, None, loss_key)
        return loss + strength * divergence(q, w), aux

    optimizer = optax.partition({"q": optax.adam(rate), "w": optax.sgd(rate)}, ("q", "w"))
    fit = task.trainer(objective, optimizer=optimizer)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        w = Gaussian(model, jax.tree.map(lambda x: jnp.full_like(x, rho), model))
        return State(tree.broadcast(w, train.mask.shape[0]), w)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        clients = cohort.ids.size
        start = tree.broadcast(state.server, clients)
        examples = jnp.maximum(cohort.train.mask.sum(axis=1), 1)
        (q, copies), loss = fit(fit_key, (state.clients, start), zeta / examples, cohort)
        received, heard = task.uplink(uplink_key, start, copies, cohort.ids)
        weights = tree.broadcast(size_weights(heard), clients)
        w = jax.tree.map(
            lambda old, new: (1 - beta) * old + beta * new, state.server, mix(weights[0], received)
        )
        floats = jnp.full_like(cohort.ids, tree.size(w))
        return State(q, w), Info(
            loss, weights, floats, floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids: Int[Array, "m"]) -> Params:
        return tree.take(state.clients.mean, ids)

    return Algorithm(init, round, models, task.apply)
