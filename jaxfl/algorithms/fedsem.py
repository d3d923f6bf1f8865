"""FedSem (Xie et al., "Multi-Center Federated Learning", 2020, Algorithm 1: FeSEM)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from jaxfl import tree
from jaxfl.errors import check_positive
from jaxfl.kernels.cluster import centres, kmeans, nearest, together
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task


class Server(NamedTuple):
    """What the server keeps."""

    centres: Params  # [K, ...]
    begun: Bool[Array, ""]  # whether they are more than the initial model, K times


def fedsem(task: Task, *, clusters: int = 5) -> Algorithm:
    """Centres among the clients' models: each client joins the nearest, and starts from the mean of its members.

    One step of expectation and maximisation a round. Personal is the cluster; a client sends its
    model and is sent its centre.

    State: clients = the cluster of each, first 0 [C]; server = `Server`.

    Args:
      task: the model and its training.
      clusters: K.

    Differs: the first centres are those of k-means, where the authors' code draws random points.
    Distances are of all parameters, there of one kernel. A cluster that nobody joined keeps its
    centre.
    """
    check_positive(clusters=clusters)
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        server = Server(tree.broadcast(task.init(key), clusters), jnp.zeros((), bool))
        return State(jnp.zeros(train.mask.shape[0], jnp.int32), server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        start = models(state, jnp.arange(cohort.ids.size))
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        cluster = lax.cond(
            state.server.begun,
            lambda: nearest(received, state.server.centres),
            lambda: kmeans(jax.random.fold_in(key, 2), received, cohort.ids, clusters).assignment,
        )
        server = Server(centres(received, cluster, state.server.centres, heard), jnp.ones((), bool))
        floats = jnp.full_like(cohort.ids, tree.size(received) // cohort.ids.size)
        info = Info(
            loss,
            together(cluster, heard),
            floats,
            floats,
            batches=task.batches(cohort),
            heard=heard,
        )
        return State(cluster, server), info

    def models(state: State, ids):
        return tree.take(state.server.centres, state.clients[ids])

    return Algorithm(init, round, models, task.apply)
