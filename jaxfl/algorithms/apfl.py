"""APFL: a mixture of a personal and the global model.

each round t:                                                               (Algorithm 1)
  client i:  alpha_i = alpha_i - rate <v_i - w, grad F_i(alpha_i v_i + (1 - alpha_i) w)>    (10)
             local steps of w_i from w by F_i(w_i), and of v_i by the loss of the mixture,
             F_i(alpha_i v_i + (1 - alpha_i) w_i)
             sends w_i
  server:    w = the mean of the w_i
client i deploys alpha_i v_i + (1 - alpha_i) w.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import FRACTION, NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, ServerState, Turn, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training import data_loss, of_statistics


class Memory(NamedTuple):
    """What each client keeps."""

    # [C, ...] v_i
    personal: steps.Personal
    # [C] the weight of v_i in the model that the client deploys
    alpha: Float[Array, "*c"]


@method(
    title="APFL",
    paper=Paper(
        authors="Deng, Yuyang and Kamani, Mohammad Mahdi and Mahdavi, Mehrdad",
        title="Adaptive Personalized Federated Learning",
        venue="",
        year=2020,
        link="https://arxiv.org/abs/2003.13461",
    ),
    place="Algorithm 1",
    personal="v and alpha",
    sends="its copy of the global model w",
    defaults="alpha as in another implementation (FedTorch), the rate is ours",
    advice="alpha, the weight of the personal model: raise it towards 1",
)
def apfl(
    task: Task,
    *,
    alpha: Annotated[Scalar, FRACTION] = 0.5,
    rate: Annotated[Scalar | None, NOT_NEGATIVE] = 0.01,
) -> Algorithm:
    """Each client deploys alpha v + (1 - alpha) w, a mixture of its own v and the global model w.

    A local step lowers f(w) as a function of w, and f(alpha v + (1 - alpha) w) as a function of v,
    both on the same batch. Clients count equally, as in the paper. The weight alpha takes a step
    down the derivative of the mixture's loss, (v - w) . grad f(alpha v + (1 - alpha) w): (10).

    A client that never took part deploys w, from which its first v starts.

    State: memory = `Memory`; server = the global model w. The loss of a round is that of the
    mixture. Metrics: the mean `alpha` of the cohort.

    Args:
      task: the model and its training, the same for v and w.
      alpha: the initial weight of v.
      rate: learning rate of alpha in (10); in the paper it is the learning rate of the models.
        None: alpha does not change.

    Differs: alpha is updated once a round, at the start, by the gradient on all data of the client.
    The mixture has the statistics of BatchNorm of the personal model, which are not mixed.

    Example:
      >>> state = initial_state(apfl(task, alpha=0.25))
      >>> state.clients.memory.alpha.shape
      (4,)
    """
    loss = data_loss(task.problem)

    def mixture(alpha: Array, personal: Params, shared: Params) -> Params:
        mixed = jax.tree.map(lambda v, w: alpha * v + (1 - alpha) * w, personal, shared)
        # The mixture has the statistics of the personal model, which its own passes move.
        return tree.cast_like(tree.combine(of_statistics, personal, mixed), shared)

    def objective(params: tuple, batch: Dataset, alpha: Array, key: PRNGKey):
        personal, shared = params
        value, _ = loss(shared, batch, None, key)
        mixed = mixture(alpha, personal, jax.lax.stop_gradient(shared))
        mixed_value, aux = loss(mixed, batch, None, key)
        return value + mixed_value, aux

    fit = task.trainer(objective)
    gradient = task.gradient(loss)
    start = steps.init_personal(task.problem)

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        personal, state = start(key, train)
        first = jnp.broadcast_to(jnp.asarray(alpha, float), personal.seen.shape)
        return Memory(personal, first), state

    def client(key: PRNGKey, memory: Memory, down: Down, cohort: Cohort) -> Turn[Memory]:
        alphas = memory.alpha
        personal = steps.deploy_personal(memory.personal, down, cohort)
        shared = steps.deploy_common(memory, down, cohort)
        more_batches = 0
        if rate is not None:
            # (10): a step down the derivative of the mixture's loss with respect to alpha.
            mixed = jax.vmap(mixture)(alphas, personal, shared)
            answer = gradient(stream(key, "evaluate"), mixed, cohort.train, cohort.ids)
            direction = jax.tree.map(jnp.subtract, personal, shared)
            derivative = jax.vmap(tree.dot)(answer.grads, direction)
            alphas = jnp.clip(alphas - rate * derivative, 0, 1)
            more_batches = answer.batches
        # Local steps of v and w; the clients send w.
        trained, up, report = steps.train_and_send(
            fit, key, (personal, shared), alphas, cohort, sends=lambda models: models[1]
        )
        report = report._replace(
            batches=2 * report.batches + more_batches,
            metrics={"alpha": alphas},
            trained=jax.vmap(mixture)(alphas, *trained),
        )
        return Memory(steps.seen(trained[0], cohort), alphas), up, report

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        personal = steps.deploy_personal(memory.personal, down, cohort)
        return jax.vmap(mixture, (0, 0, None))(memory.alpha, personal, down.common)

    # The new global model is the unweighted mean.
    return steps.compose(
        task, Wire(init, (Exchange(client, steps.take_mean()),), deploy, steps.download_server)
    )
