"""IFCA (Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, Algorithm 1)."""

import jax
import jax.numpy as jnp
from jax import lax

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.cluster import centres, together
from jaxfl.types import Algorithm, Cohort, Dataset, Info, PRNGKey, State, Task


def ifca(task: Task, *, clusters: int = 4) -> Algorithm:
    """One model for each cluster; a client takes all of them and trains the one with the lowest loss on its data.

    Personal is the choice. A client sends its model and the number of its cluster, and is sent all
    models.

    State: clients = the cluster that each last chose, first 0 [C]; server = models of the clusters
    [K, ...].

    Args:
      task: the model and its training.
      clusters: K; 4, as for the rotated digits of section 6. They start from K random models: a
        model that starts at zero makes one cluster of all.

    Differs: the choice is by the loss on all training data. The authors' code chooses once more
    before each test, by the loss on the labels of the test set; here a client deploys the model
    that it chose last.
    """
    check_positive(clusters=clusters)
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        models = jax.vmap(task.init)(jax.random.split(key, clusters))
        return State(jnp.zeros(train.mask.shape[0], jnp.int32), models)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)

        def losses(model):  # of every client [M]
            asked = tree.broadcast(model, cohort.ids.size)
            return task.gradient(jax.random.fold_in(key, 2), asked, cohort.train, cohort.ids)[0]

        found = lax.map(losses, state.server)  # [K, M]
        chosen = jnp.where(jnp.isnan(found), jnp.inf, found).argmin(axis=0)
        start = tree.take(state.server, chosen)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        server = centres(received, chosen, state.server, heard)
        model = jnp.full_like(cohort.ids, tree.size(server) // clusters)
        weights, batches = together(chosen, heard), task.batches(cohort)
        return State(chosen, server), Info(
            loss, weights, model + 1, clusters * model, batches=batches, heard=heard
        )

    def models(state: State, ids):
        return tree.take(state.server, state.clients[ids])

    return Algorithm(init, round, models, task.apply)
