"""FedFomo (Zhang et al., "Personalized Federated Learning with First Order Model Optimization", ICLR 2021)."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxfl import tree
from jaxfl.kernels.cluster import squared_distances
from jaxfl.kernels.fomo import worth
from jaxfl.kernels.mixing import mix
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def fedfomo(task: Task) -> Algorithm:
    """Each client mixes the models of all others itself, by how much better they are than its own on validation data.

    Personal is the model, from which it also starts. A client sends what it trained, and is sent
    what all others of the cohort trained. Each model, its own trained one among them, weighs the
    loss that it saves, divided by its distance; those that save nothing weigh nothing. A client for
    which none does, or which has no validation data, keeps the model that it had, or what it
    trained; its row of the weights is that of the identity.

    State: clients = the model of each [C, ...]; server = nothing.

    Args:
      task: the model and its training.

    Differs: everybody is sent all models. The paper has each client sent some, the ones that were
    of most worth before and a few at random.
    """
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State(tree.broadcast(task.init(key), train.mask.shape[0]), ())

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start, clients = state.clients, cohort.ids.size
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)

        def losses(models):  # of each client at its own of the models [M]
            return task.gradient(jax.random.fold_in(key, 2), models, cohort.val, cohort.ids)[0]

        offered = lax.map(
            lambda model: losses(tree.broadcast(model, clients)), received
        ).T  # (client, model) [M, M]
        both = jax.tree.map(lambda s, r: jnp.concatenate([s, r]), start, received)
        distances = jnp.sqrt(squared_distances(both)[:clients, clients:])
        weights = worth(losses(start), jnp.where(heard[None], offered, jnp.inf), distances)
        found = weights.sum(axis=1) > 0

        known = cohort.val.mask.any(axis=1)
        kept = jax.vmap(tree.where)(known, start, trained)
        model = jax.vmap(tree.where)(found, mix(weights, received), kept)
        weights = jnp.where(found[:, None], weights, jnp.eye(clients))
        floats = jnp.full_like(cohort.ids, tree.size(model) // clients)
        batches = task.batches(cohort)
        return State(model, ()), Info(
            loss, weights, floats, (clients - 1) * floats, batches=batches, heard=heard
        )

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
