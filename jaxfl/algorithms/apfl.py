"""APFL: a mixture of a personal and the global model."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.personal import Personal, personal_models, start_personal
from jaxfl.algorithms.steps.uploads import train_and_upload, unweighted_mean
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import FRACTION, NOT_NEGATIVE
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task
from jaxfl.training.objectives import data_loss


class Client(NamedTuple):
    """The state of each client."""

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
    both on the same batch. Clients count equally, as in the paper.

    A client that never took part deploys w, from which its first v starts.

    State: clients = `Client`; server = the global model w. The loss of a round is that of the
    mixture. Metrics: the mean `alpha` of the cohort.

    Args:
      task: the model and its training, the same for v and w.
      alpha: the initial weight of v.
      rate: learning rate of alpha in (10); in the paper it is the learning rate of the models.
        None: alpha does not change.

    Differs: alpha is updated once a round, at the start, by the gradient on all data of the client.

    Example:
      >>> state = initial_state(apfl(task, alpha=0.25))
      >>> state.clients.alpha.shape
      (4,)
    """
    loss = data_loss(task.problem)

    def mixture(alpha: Array, personal: Params, shared: Params) -> Params:
        return jax.tree.map(lambda v, w: alpha * v + (1 - alpha) * w, personal, shared)

    def objective(params: tuple, batch: Dataset, alpha: Array, key: PRNGKey):
        personal, shared = params
        value, _ = loss(shared, batch, None, key)
        mixed = mixture(alpha, personal, jax.lax.stop_gradient(shared))
        mixed_value, aux = loss(mixed, batch, None, key)
        return value + mixed_value, aux

    fit = task.trainer(objective)
    gradient = task.gradient(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        clients = train.mask.shape[0]
        first = jnp.broadcast_to(jnp.asarray(alpha, jnp.float32), (clients,))
        return State(Client(start_personal(model, clients), first), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        alphas = state.clients.alpha
        personal = personal_models(state.clients.personal, state.server)
        start = tree.broadcast(state.server, cohort.ids.size)
        more_batches = 0
        if rate is not None:
            # (10): a step down the derivative of the mixture's loss with respect to alpha.
            mixed = jax.vmap(mixture)(alphas, personal, start)
            answer = gradient(stream(key, "evaluate"), mixed, cohort.train, cohort.ids)
            direction = jax.tree.map(jnp.subtract, personal, start)
            derivative = jax.vmap(tree.dot)(answer.grads, direction)
            alphas = jnp.clip(alphas - rate * derivative, 0, 1)
            more_batches = answer.batches
        # Local steps of v and w; the clients send w.
        trained, received, info = train_and_upload(
            task, fit, key, (personal, start), alphas, cohort, sends=lambda models: models[1]
        )
        # The new global model is the unweighted mean.
        model, info = unweighted_mean(received, info)
        info = info._replace(
            batches=2 * info.batches + more_batches,
            metrics={"alpha": alphas.mean(where=info.reported)},
            trained=jax.vmap(mixture)(alphas, *trained),
        )
        personal = Personal(trained[0], jnp.ones_like(info.reported))
        return State(Client(personal, alphas), model), info

    def models(state: State, cohort: Cohort) -> Params:
        client = tree.take(state.clients, cohort.ids)
        personal = personal_models(client.personal, state.server)
        return jax.vmap(mixture, (0, 0, None))(client.alpha, personal, state.server)

    return Algorithm(init, round, models, task.problem.apply)
