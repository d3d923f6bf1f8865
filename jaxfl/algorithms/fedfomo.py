"""FedFomo: clients weigh the others' models on validation data."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxfl import tree
from jaxfl.kernels.fomo import worth
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import squared_distances
from jaxfl.objectives import data_loss
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task


@method(
    title="FedFomo",
    paper='Zhang et al., "Personalized Federated Learning with First Order Model Optimization", '
    "ICLR 2021",
    link="https://arxiv.org/abs/2012.08565",
    personal="the mixture of models",
    sends="its model",
)
def fedfomo(task: Task) -> Algorithm:
    """Each client mixes all models itself, by how much better they are on its validation data.

    A client starts from its own model and is sent what all others of the cohort trained. The weight
    of each model, its own trained one among them, is the loss that it saves divided by its
    distance; a model that saves nothing has no weight. A client for which no model saves anything
    keeps the model that it had, and a client without validation data what it trained; its row of
    the weights is that of the identity.

    State: clients = the model of each [C, ...]; server = nothing.

    Args:
      task: the model and its training.

    Differs: all clients are sent all models. The paper sends each client some of them, those that
    had the largest weights before and a few at random.
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    evaluate = task.evaluate(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(tree.broadcast(task.problem.init(key), train.mask.shape[0]), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        start = state.clients
        clients = cohort.ids.size
        ask_key = stream(key, "evaluate")
        trained, received, info = train_and_upload(task, fit, key, start, None, cohort)

        def losses(models: Params) -> Array:  # of each client at its own of the models [M]
            return evaluate(ask_key, models, cohort.val, cohort.ids)

        # The loss that each model saves, over its distance.
        before = losses(start)
        offered = lax.map(lambda model: losses(tree.broadcast(model, clients)), received).T
        offered = jnp.where(info.reported[None], offered, jnp.inf)  # [M, M] (client, model)
        both = jax.tree.map(lambda s, r: jnp.concatenate([s, r]), start, received)
        distances = jnp.sqrt(squared_distances(both)[:clients, clients:])
        weights = worth(before, offered, distances)
        found = weights.sum(axis=1) > 0

        # Without such a model a client keeps its own.
        known = cohort.val.mask.any(axis=1)
        kept = tree.choose(known, start, trained)
        model = tree.choose(found, mix(weights, received), kept)
        weights = jnp.where(found[:, None], weights, jnp.eye(clients))
        return State(model, ()), info._replace(weights=weights, down=(clients - 1) * info.down)

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.problem.apply)
