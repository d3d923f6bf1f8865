"""CFL: clusters that split by the cosines of their clients' updates."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.kernels.bipartition import bipartition, split
from jaxfl.kernels.cluster import centres, together
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.objectives import data_loss
from jaxfl.options import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


class Server(NamedTuple):
    """The state of the server."""

    # [K, ...] the models of the clusters; a cluster that does not exist yet has the initial model
    models: Params
    # number of clusters so far
    count: Int[Array, ""]
    # number of rounds so far
    round: Int[Array, ""]


@method(
    title="CFL",
    paper='Sattler et al., "Clustered Federated Learning: Model-Agnostic Distributed Multi-Task '
    'Optimization under Privacy Constraints", IEEE TNNLS 2020, Algorithm 3',
    link="https://arxiv.org/abs/1910.01991",
    personal="the cluster",
    sends="its model",
    separating={"eps2": 0.1},
)
def cfl(
    task: Task,
    *,
    eps1: Annotated[Scalar, NOT_NEGATIVE] = 2.0,
    eps2: Annotated[Scalar, NOT_NEGATIVE] = 2.5,
    warmup: Annotated[int, COUNT_OR_ZERO] = 0,
    clusters: Annotated[int, COUNT] = 10,
) -> Algorithm:
    """FedAvg in each cluster; a cluster splits in two if it has converged but its clients disagree.

    A cluster splits by the cosines of its clients' updates, if the mean of the updates is shorter
    than eps1, the longest update is longer than eps2, and the cluster has more than two clients.
    The server sends each client the model of its cluster. Clients count equally within a cluster.

    State: clients = the cluster of each client [C], at first 0; server = `Server`. Metrics: the
    number of `clusters` so far.

    Args:
      task: the model and its training.
      eps1: a cluster has converged if the length of its mean update in a round is below this. The
        defaults of eps1 and eps2 are those of pFedGraph's tables, for 200 steps of SGD; the
        authors' demonstration has .4 and 1.6.
      eps2: the clients of a cluster disagree if the length of an update is above this.
      warmup: number of first rounds without a split; 20 in the authors' demonstration.
      clusters: K, the largest number of clusters; the number of clients sets no limit.

    Differs: there is no test of gamma_max, as in the authors' code. The bipartition is the exact
    one of the paper, where the authors' code uses complete linkage. Only clients of the cohort
    move: absent clients stay on the side of the smallest id.
    """
    fit = task.trainer(data_loss(task.problem))

    def init(key: PRNGKey, train: Dataset) -> State:
        zero = jnp.zeros((), jnp.int32)
        server = Server(tree.broadcast(task.problem.init(key), clusters), zero + 1, zero)
        return State(jnp.zeros(train.mask.shape[0], jnp.int32), server)

    def lengths(updates: Params) -> Array:
        return jnp.sqrt(jax.vmap(tree.dot)(updates, updates))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        cluster, server = state
        start = tree.take(server.models, cluster)
        _, received, info = train_and_upload(task, fit, key, start, None, cohort)
        reported = info.reported
        # A cluster splits if its mean update is short and one of its updates is long.
        update = jax.tree.map(jnp.subtract, received, start)
        # The mean of the client's cluster [M], the same number for all of its members.
        mean_length = lengths(mix(together(cluster, reported), update))
        member = (cluster[None] == jnp.arange(clusters)[:, None]) & reported[None]  # [K, M]
        converged = jnp.max(jnp.where(member, mean_length[None], 0.0), axis=1) < eps1
        apart = jnp.max(jnp.where(member, lengths(update)[None], 0.0), axis=1) > eps2
        wanted = converged & apart & (member.sum(axis=1) > 2) & (server.round >= warmup)
        # Algorithm 1: the clients that leave their cluster for a new one.
        groups = jnp.where(reported, cluster, clusters)
        leaves = bipartition(cosine(update), groups, cohort.ids) & reported
        cluster, parent, count = split(cluster, leaves, wanted, server.count)
        # FedAvg in each cluster; a new cluster starts from the model of its parent.
        models = centres(received, cluster, tree.take(server.models, parent), reported)
        info = info._replace(
            weights=together(cluster, reported), metrics={"clusters": count.astype(float)}
        )
        return State(cluster, Server(models, count, server.round + 1)), info

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.server.models, state.clients[ids])

    return Algorithm(init, round, models, task.problem.apply)
