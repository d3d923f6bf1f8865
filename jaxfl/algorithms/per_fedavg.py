"""Per-FedAvg: a global model that suits each client after one gradient step.

each round t:                                                               (Algorithm 1)
  client i:  w_i = local training of F_i(w - alpha grad F_i(w)) from w, and sends it        (3)
  server:    w = the mean of the w_i
client i deploys w - alpha grad F_i(w).
"""

import jax
import jax.numpy as jnp
from jax import lax

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import Paper, method
from jaxfl.core.messages import Down, Exchange, Turn, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import data_loss, of_statistics


@method(
    title="Per-FedAvg",
    paper=Paper(
        authors="Fallah, Alireza and Mokhtari, Aryan and Ozdaglar, Asuman",
        title="Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic "
        "Meta-Learning Approach",
        venue="NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2002.07948",
    ),
    place="Algorithm 1",
    personal="the model after a step on the client's data",
    sends="its copy of the global model w",
    defaults="the paper",
    advice="alpha, the rate of the personal step, by factors of 3",
)
def per_fedavg(task: Task, *, alpha: Scalar = 0.01, hessian: bool = False) -> Algorithm:
    """FedAvg that lowers (3), the loss of the global model after one gradient step of each client.

    (3) is the mean over the clients of f(w - alpha grad f(w)), where f is the loss of a client. A
    client deploys w - alpha grad f(w): the new global model after one step on all of the client's
    data. Clients count equally, as in the paper.

    The step is taken whenever a client deploys, also by clients that never took part. It is not
    counted among the batches of a round.

    State: server = the global model. The loss of a round is the loss after the
    inner step.

    Args:
      task: the model and its training, which is that of w; its learning rate is the paper's beta.
      alpha: learning rate of the inner step and of the deployed model's step; pFedGraph's tables
        use .001.
      hessian: True computes the term with the Hessian exactly; False leaves it out, which is the
        paper's Per-FedAvg (FO).

    Differs: a random half of each batch gives the inner gradient and the Hessian, and the other
    half gives the outer gradient; the paper draws a new batch for each. Statistics of BatchNorm
    are those of the outer half, and the step before a client deploys leaves them as they are.

    Example:
      >>> state = initial_state(per_fedavg(task, alpha=0.1))
      >>> state.clients.memory
      ()
    """
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, anchor: None, key: PRNGKey):
        split_key, inner_key, outer_key = jax.random.split(key, 3)
        order = jax.random.permutation(split_key, batch.mask.size)
        batch = jax.tree.map(lambda x: x[order], batch)
        # Real examples with odd numbers are the inner half, those with even numbers the outer half.
        # A single real example is in both halves.
        number = jnp.cumsum(batch.mask)
        single = number[-1] == 1
        inner = batch._replace(mask=batch.mask & ((number % 2 == 1) | single))
        outer = batch._replace(mask=batch.mask & ((number % 2 == 0) | single))
        grads, _ = jax.grad(loss, has_aux=True)(params, inner, None, inner_key)
        if not hessian:
            grads = lax.stop_gradient(grads)
        return loss(step(params, grads), outer, None, outer_key)

    def step(params: Params, grads: Params) -> Params:
        after = jax.tree.map(lambda w, g: w - alpha * g, params, grads)
        # The change of a statistic is no derivative.
        return tree.combine(of_statistics, params, after)

    # The halves depend on the batch as a whole.
    fit = task.trainer(objective, whole_batch=True)
    gradient = task.gradient(loss)

    def client(key: PRNGKey, memory: tuple, down: Down, cohort: Cohort) -> Turn[tuple]:
        start = steps.deploy_common(memory, down, cohort)
        _, up, report = steps.train_and_send(fit, key, start, None, cohort)
        return memory, up, report._replace(batches=(1 + hessian) * report.batches)

    def deploy(memory: tuple, down: Down, cohort: Cohort) -> Params:
        # Each client takes a step from the current global model, on all of its training data.
        start = steps.deploy_common(memory, down, cohort)
        answer = gradient(steps.deploy_key(), start, cohort.train, cohort.ids)
        return step(start, answer.grads)

    init = steps.init_global(task.problem)
    # The new global model is the unweighted mean.
    return steps.compose(
        task, Wire(init, (Exchange(client, steps.take_mean()),), deploy, steps.download_server)
    )
