"""pFedMe: personal models by the Moreau envelopes of the clients' losses.

each round t:                                                               (Algorithm 1)
  client i:  local steps of w_i from w along lam (w_i - theta),
             theta = argmin_theta F_i(theta) + lam / 2 |theta - w_i|^2 by K gradient steps  (3)
             theta_i = the theta of the last w_i; sends w_i
  server:    w = (1 - beta) w + beta times the mean of the w_i
client i deploys theta_i.
"""

from typing import Annotated

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Turn, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import (
    change_term,
    data_loss,
    moving_statistics,
    proximal,
    statistics,
    trainable,
)


@method(
    title="pFedMe",
    paper=Paper(
        authors="Dinh, Canh T. and Tran, Nguyen H. and Nguyen, Tuan Dung",
        title="Personalized Federated Learning with Moreau Envelopes",
        venue="NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2006.08848",
    ),
    place="Algorithm 1",
    personal="the deployed model theta",
    sends="its copy of the global model w",
    defaults="the paper",
    advice="inner_rate by factors of 3; then lower lam, and clients are less tied to the "
    "common model",
)
def pfedme(
    task: Task,
    *,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 15.0,
    inner_steps: Annotated[int, COUNT] = 5,
    inner_rate: Annotated[Scalar, POSITIVE] = 0.09,
    beta: Scalar = 1.0,
) -> Algorithm:
    """Each client has a model theta near its copy w of the global model, and moves w to theta.

    theta minimises (3), f(theta) + lam / 2 |theta - w|^2, by `inner_steps` of gradient descent on
    one batch. Local training of w lowers the Moreau envelope, whose gradient is lam (w - theta).

    State: memory = theta (`Personal`); server = the global model. A client that never took part
    deploys the global model. The loss of a round is that at theta.

    Args:
      task: the model and its training, which is that of w.
      lam: strength of the proximal term; 15 in the paper's experiments.
      inner_steps: K; 5 in the paper.
      inner_rate: learning rate of these steps; in the paper .09 for networks and .1 for the convex
        model.
      beta: the server moves the global model to the mean of the clients' w by this fraction; 1 in
        pFedGraph's tables, up to 2 in the paper.

    Differs: the task's optimiser trains w; in the paper it is SGD with rate .005. Each search for
    theta starts from w. The deployed theta takes its steps from the last w, on other batches. Only
    the cohort trains; in the paper all clients train and some of them send.

    Example:
      >>> state = initial_state(pfedme(task, inner_steps=2))
      >>> state.clients.memory.model["params"]["Dense_1"]["bias"].shape
      (4, 2)
    """
    inner = moving_statistics(optax.sgd(inner_rate))
    proximal_loss = proximal(data_loss(task.problem), lam)

    def envelope(w: Params, batch: Dataset, anchor: None, key: PRNGKey):
        centre = lax.stop_gradient(w)

        def step(theta: Params, number: Array):
            step_key = jax.random.fold_in(key, number)
            grads, aux = jax.grad(proximal_loss, has_aux=True)(theta, batch, centre, step_key)
            updates, _ = inner.update(grads, inner.init(theta), theta)
            return optax.apply_updates(theta, updates), aux

        theta, aux = lax.scan(step, centre, jnp.arange(inner_steps))
        distance = tree.squared_distance(trainable(w), trainable(theta))
        # w's statistics are those of theta.
        statistics_term = change_term(statistics(w), statistics(theta))
        return lam / 2 * distance + statistics_term, aux[-1]

    # theta depends on a batch as a whole.
    fit = task.trainer(envelope, whole_batch=True)
    personalize = task.trainer(proximal_loss, steps=inner_steps, optimizer=optax.sgd(inner_rate))

    def client(
        key: PRNGKey, memory: steps.Personal, down: Down, cohort: Cohort
    ) -> Turn[steps.Personal]:
        start = steps.deploy_common(memory, down, cohort)
        trained, up, report = steps.train_and_send(fit, key, start, None, cohort)
        # The deployed theta of each client, searched from its w.
        theta = personalize(stream(key, "second_fit"), trained, trained, cohort)
        batches = inner_steps * report.batches + theta.batches
        return steps.seen(theta.params, cohort), up, report._replace(batches=batches)

    init = steps.init_personal(task.problem)
    # The global model moves to the unweighted mean of w by the fraction beta.
    exchange = Exchange(client, steps.take_mean(fraction=beta))
    return steps.compose(
        task, Wire(init, (exchange,), steps.deploy_personal, steps.download_server)
    )
