"""APFL: a mixture of a personal and the global model."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.client import (
    deploy_common,
    deploy_personal,
    init_personal,
    seen,
    train_and_send,
)
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.personal import Personal
from jaxfl.algorithms.steps.server import take_mean
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.messages import Down, Exchange, Report, ServerState, Up, Wire, download_server
from jaxfl.core.options import FRACTION, NOT_NEGATIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training.batch_statistics import of_statistics
from jaxfl.training.objectives import data_loss


class Memory(NamedTuple):
    """What each client keeps."""

    # [C, ...] v_i
    personal: Personal
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
    turn_first="alpha, the weight of the personal model: raise it towards 1",
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
    start = init_personal(task.problem)

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        personal, state = start(key, train)
        first = jnp.broadcast_to(jnp.asarray(alpha, float), personal.seen.shape)
        return Memory(personal, first), state

    def client(
        key: PRNGKey, memory: Memory, down: Down, cohort: Cohort
    ) -> tuple[Memory, Up, Report]:
        alphas = memory.alpha
        personal = deploy_personal(memory.personal, down, cohort)
        shared = deploy_common(memory, down, cohort)
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
        trained, up, report = train_and_send(
            fit, key, (personal, shared), alphas, cohort, sends=lambda models: models[1]
        )
        report = report._replace(
            batches=2 * report.batches + more_batches,
            metrics={"alpha": alphas},
            trained=jax.vmap(mixture)(alphas, *trained),
        )
        return Memory(seen(trained[0], cohort), alphas), up, report

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        personal = deploy_personal(memory.personal, down, cohort)
        return jax.vmap(mixture, (0, 0, None))(memory.alpha, personal, down.common)

    # The new global model is the unweighted mean.
    return compose(task, Wire(init, (Exchange(client, take_mean()),), deploy, download_server))
