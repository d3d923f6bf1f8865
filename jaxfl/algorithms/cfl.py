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
    """What the server keeps."""

    # [K, ...] of the clusters; of those not yet split off the initial model
    models: Params
    # clusters so far
    count: Int[Array, ""]
    # rounds done
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
    """FedAvg in each cluster; a cluster at rest whose clients still disagree splits in two.

    A cluster splits by the cosines of its clients' updates, if the mean of the updates is shorter
    than eps1, the longest is longer than eps2, and it has more than two clients. A client is sent
    its cluster's model.

    State: clients = the cluster of each client, first 0 [C]; server = `Server`. Metrics: `clusters`
    so far.

    Args:
      task: the model and its training.
      eps1: length of a model's difference, as trained in a round, like eps2. The defaults are those
        of pFedGraph's tables, for 200 steps of SGD; the authors' demonstration has .4 and 1.6.
      eps2: see eps1.
      warmup: rounds without a split; 20 in the authors' demonstration.
      clusters: K, the most there may be; as many as clients, to set no limit.

    Differs: no test of gamma_max, as in the authors' code, but the exact bipartition of the paper,
    where that code has complete linkage. Only clients of the cohort are moved: the absent stay with
    the side of the smallest id.
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
        # Which clusters split: a short mean update, and a long one among the members.
        update = jax.tree.map(jnp.subtract, received, start)
        mean_length = lengths(mix(together(cluster, reported), update))  # the same for all members
        member = (cluster[None] == jnp.arange(clusters)[:, None]) & reported[None]  # [K, M]
        at_rest = jnp.max(jnp.where(member, mean_length[None], 0.0), axis=1) < eps1
        apart = jnp.max(jnp.where(member, lengths(update)[None], 0.0), axis=1) > eps2
        wanted = at_rest & apart & (member.sum(axis=1) > 2) & (server.round >= warmup)
        # Algorithm 1: who leaves.
        groups = jnp.where(reported, cluster, clusters)
        leaves = bipartition(cosine(update), groups, cohort.ids) & reported
        cluster, parent, count = split(cluster, leaves, wanted, server.count)
        # FedAvg in each cluster; a new one starts from its parent's model.
        models = centres(received, cluster, tree.take(server.models, parent), reported)
        info = info._replace(
            weights=together(cluster, reported), metrics={"clusters": count.astype(float)}
        )
        return State(cluster, Server(models, count, server.round + 1)), info

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.server.models, state.clients[ids])

    return Algorithm(init, round, models, task.problem.apply)
