"""pFedBayes: a Gaussian over models for each client.

each round t, with the Gaussians q_i of the client and w of all:
  client i:  q_i = local training of E F_i(sample of q) + zeta / n_i KL(q || w_i) from q_i
             w_i = local training of zeta KL(q_i || w) from w, and sends it
  server:    w = (1 - beta) w + beta times the mean of the w_i
client i deploys the mean of q_i.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, ServerState, Turn, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels.gaussian import Gaussian, divergence, draw
from jaxfl.kernels.server_optimizer import UNDER_ROOT
from jaxfl.training import data_loss, of_statistics, trainable


@method(
    title="pFedBayes",
    paper=Paper(
        authors="Zhang, Xu and Li, Yinchuan and Li, Wenpeng and Guo, Kaiyang and Shao, Yunfeng",
        title="Personalized Federated Learning via Variational Bayesian Inference",
        venue="ICML",
        year=2022,
        link="https://arxiv.org/abs/2206.07977",
    ),
    personal="the Gaussian q over models, whose mean is deployed",
    sends="its copy of the shared Gaussian, means and deviations",
    defaults="the paper",
    advice="rate, by factors of 3; then lower zeta, and clients are less tied to the common model",
)
def pfedbayes(
    task: Task,
    *,
    zeta: Annotated[Scalar, NOT_NEGATIVE] = 10.0,
    rho: Scalar = -2.5,
    rate: Annotated[Scalar, POSITIVE] = 1e-3,
    beta: Annotated[Scalar, POSITIVE] = 1.0,
) -> Algorithm:
    """A Gaussian over models for each client, near a Gaussian that all clients have in common.

    A client has its own Gaussian q and a copy w_i of the common Gaussian w, which the server sends.
    Both are trained together. q lowers the mean loss over the client's n examples at a model drawn
    from q, plus zeta / n KL(q || w_i); w_i lowers zeta KL(q || w_i). The server takes the mean of
    the copies.

    A client that never took part deploys the mean of w, and its first q starts from w.

    State: memory = q (`Personal`); server = w.

    Args:
      task: the model and its training; its optimiser is not used.
      zeta: weight of the divergence. The defaults of this and the next options are the paper's.
      rho: the initial standard deviations are softplus(rho).
      rate: learning rate of q, trained by Adam, and of w_i, trained by SGD, since its gradient has
        no noise that Adam would have to scale.
      beta: weight of the mean of the copies in the new w.

    Differs: q and w_i take each step together, and the task's training sets the number of steps;
    each step draws one model from q. Training q by Adam follows an unofficial implementation, whose
    draws have a thousandth of the standard deviation.

    Example:
      >>> state = initial_state(pfedbayes(task))
      >>> state.clients.memory.model._fields
      ('mean', 'rho')
    """
    loss = data_loss(task.problem)

    def objective(params: tuple, batch: Dataset, strength: Array, key: PRNGKey):
        draw_key, loss_key = jax.random.split(key)
        q, w = params
        # Statistics are not drawn: they are those of the mean.
        sample = tree.combine(of_statistics, q.mean, draw(draw_key, q))
        value, aux = loss(sample, batch, None, loss_key)
        q, w = trainable(q), trainable(w)
        # The paper's objective is n times that of q. Adam does not notice the factor; SGD would.
        q_term = strength * divergence(q, jax.lax.stop_gradient(w))
        w_term = zeta * divergence(jax.lax.stop_gradient(q), w)
        return value + q_term + w_term, aux

    def copy_of_w(trained: tuple) -> Gaussian:
        q, w = trained
        return w._replace(mean=tree.combine(of_statistics, q.mean, w.mean))

    adam = optax.adam(rate, eps_root=UNDER_ROOT)
    optimizer = optax.partition({"q": adam, "w": optax.sgd(rate)}, ("q", "w"))
    fit = task.trainer(objective, optimizer=optimizer)

    def init(key: PRNGKey, train: Dataset) -> tuple[steps.Personal, ServerState]:
        model = task.problem.init(key)
        w = Gaussian(model, jax.tree.map(lambda x: jnp.full_like(x, rho), model))
        return steps.start_personal(w, train.mask.shape[0]), ServerState(w)

    def client(
        key: PRNGKey, memory: steps.Personal, down: Down, cohort: Cohort
    ) -> Turn[steps.Personal]:
        start = (
            steps.deploy_personal(memory, down, cohort),
            steps.deploy_common(memory, down, cohort),
        )
        strength = zeta / jnp.maximum(cohort.train.mask.sum(axis=1), 1)
        (q, _), up, report = steps.train_and_send(
            fit, key, start, strength, cohort, sends=copy_of_w
        )
        return steps.seen(q, cohort), up, report._replace(trained=q.mean)

    def deploy(memory: steps.Personal, down: Down, cohort: Cohort) -> Params:
        return steps.deploy_personal(memory, down, cohort).mean

    # The server moves w to the mean of the copies by the fraction beta.
    exchange = Exchange(client, steps.take_mean(fraction=beta))
    return steps.compose(task, Wire(init, (exchange,), deploy, steps.download_server))
