"""CFL (Sattler et al., "Clustered Federated Learning", IEEE TNNLS 2020, Algorithm 3)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.errors import check_not_negative, check_positive
from jaxfl.kernels.bipartition import bipartition, split
from jaxfl.kernels.cluster import centres, together
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Server(NamedTuple):
    """What the server keeps."""

    models: Params  # [K, ...] of the clusters; of those not yet split off the initial model
    count: Int[Array, ""]  # clusters so far
    round: Int[Array, ""]  # rounds done


def cfl(
    task: Task, *, eps1: Scalar = 2.0, eps2: Scalar = 2.5, warmup: int = 0, clusters: int = 10
) -> Algorithm:
    """FedAvg in each cluster; a cluster at rest whose clients still pull splits by the cosines of their updates.

    A cluster splits if the mean of its updates is shorter than eps1, the longest longer than eps2,
    and it has more than two clients. Personal is the cluster; a client sends its model and is sent
    its cluster's.

    State: clients = the cluster of each, first 0 [C]; server = `Server`. Metrics: `clusters` so
    far.

    Args:
      task: the model and its training.
      eps1: length of a model's difference, as trained in a round, like eps2. The defaults are those
        of pFedGraph's tables, for 200 steps of SGD; the authors' demonstration has .4 and 1.6.
      eps2: see eps1.
      warmup: rounds without a split; 20 in the authors' demonstration.
      clusters: K, the most there may be; as many as clients, to set no limit.

    Differs: no test of gamma_max, as in the authors' code, but the exact bipartition of the paper,
    where that has complete linkage. Only clients of the cohort are moved: the absent stay with the
    side of the smallest id.
    """
    check_positive(clusters=clusters)
    check_not_negative(eps1=eps1, eps2=eps2, warmup=warmup)
    fit = task.trainer(task.loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        zero = jnp.zeros((), jnp.int32)
        server = Server(tree.broadcast(task.init(key), clusters), zero + 1, zero)
        return State(jnp.zeros(train.mask.shape[0], jnp.int32), server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        cluster, server = state
        start = tree.take(server.models, cluster)
        trained, loss = fit(fit_key, start, None, cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)

        update = jax.tree.map(jnp.subtract, received, start)
        length, mean = (
            jnp.sqrt(jax.vmap(tree.dot)(u, u))
            for u in (update, mix(together(cluster, heard), update))
        )
        member = (cluster[None] == jnp.arange(clusters)[:, None]) & heard[None]  # [K, M]
        at_rest = (
            jnp.max(jnp.where(member, mean[None], 0.0), axis=1) < eps1
        )  # its members all have one mean
        pulled = jnp.max(jnp.where(member, length[None], 0.0), axis=1) > eps2
        wanted = at_rest & pulled & (member.sum(axis=1) > 2) & (server.round >= warmup)
        leaves = (
            bipartition(cosine(update), jnp.where(heard, cluster, clusters), cohort.ids) & heard
        )
        cluster, parent, count = split(cluster, leaves, wanted, server.count)

        models = centres(received, cluster, tree.take(server.models, parent), heard)
        floats = jnp.full_like(cohort.ids, tree.size(received) // cohort.ids.size)
        metrics = {"clusters": count.astype(float)}
        info = Info(
            loss,
            together(cluster, heard),
            floats,
            floats,
            metrics,
            task.batches(cohort),
            heard=heard,
        )
        return State(cluster, Server(models, count, server.round + 1)), info

    def models(state: State, ids):
        return tree.take(state.server.models, state.clients[ids])

    return Algorithm(init, round, models, task.apply)
