"""CFL: clusters that split by the cosines of their clients' updates.

each round t, with k the cluster of client i:                               (Algorithm 3)
  client i:  w_i = local training of F_i from x_k, and sends it
  server:    for each cluster k
             if |mean of w_i - x_k| < eps1 and max |w_i - x_k| > eps2: split its clients in two,
             so that the largest cosine of two updates in different parts is as low as it can be
             x_k = the mean of the w_i of cluster k
client i deploys x_k.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Uploads, Wire
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Algorithm, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import centres, cosine, mix, split_clusters, together
from jaxfl.kernels.bipartition import bipartition, descendants
from jaxfl.kernels.similarity import root


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C] the cluster of the client when it last took part
    cluster: Int[Array, "*c"]
    # [C] how many clusters there were then
    known: Int[Array, "*c"]


class Server(NamedTuple):
    """The state of the server."""

    # [K, ...] the models of the clusters; a cluster that does not exist yet has the initial model
    models: Params
    # [K] the cluster from which each cluster has split off
    parents: Int[Array, "k"]
    # number of clusters so far
    count: Int[Array, ""]
    # number of rounds so far
    round: Int[Array, ""]


@method(
    title="CFL",
    paper=Paper(
        authors="Sattler, Felix and Müller, Klaus-Robert and Samek, Wojciech",
        title="Clustered Federated Learning: Model-Agnostic Distributed Multi-Task "
        "Optimization under Privacy Constraints",
        venue="IEEE TNNLS",
        year=2020,
        link="https://arxiv.org/abs/1910.01991",
    ),
    place="Algorithm 3",
    personal="the cluster",
    sends="its model and the number of its cluster",
    defaults="pFedGraph's tables; the number of clusters is ours",
    separating={"eps2": 0.1},
    advice="raise eps1 and lower eps2: clusters are then split earlier",
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

    Clients that are absent when their cluster splits choose a part later, when they take part again
    or deploy a model: the one with the lowest loss on their training data. They get the models from
    which they choose.

    State: record = `Record`; server = `Server`. Metrics: the number of `clusters` so far.

    Args:
      task: the model and its training.
      eps1: a cluster has converged if the length of its mean update in a round is below this. The
        defaults of eps1 and eps2 are those of pFedGraph's tables, for 200 steps of SGD; the
        authors' demonstration has .4 and 1.6.
      eps2: the clients of a cluster disagree if the length of an update is above this.
      warmup: number of first rounds without a split; 20 in the authors' demonstration.
      clusters: K, the largest number of clusters; the number of clients sets no limit.

    Differs: there is no test of gamma_max, as in the authors' code. The bipartition is the exact
    one of the paper, where the authors' code uses complete linkage. In the paper's Algorithm 2 a
    client that comes later follows the splits by the cosines of an update at each of them with the
    updates that the server has stored there.

    Example:
      >>> state = initial_state(cfl(task, clusters=3))
      >>> state.server.parents.shape
      (3,)
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        zero = jnp.zeros((), jnp.int32)
        parents = jnp.zeros(clusters, jnp.int32)
        server = Server(tree.broadcast(task.problem.init(key), clusters), parents, zero + 1, zero)
        cluster = jnp.zeros(train.mask.shape[0], jnp.int32)
        return (), ServerState(server, Record(cluster, cluster + 1))

    def download(state: ServerState) -> Down:
        models, parents, count, _ = state.server
        cluster, known = state.record
        return steps.offer(models, descendants(cluster, known, parents, count))

    def lengths(updates: Params) -> Array:
        changes = trainable(updates)
        return root(jax.vmap(tree.dot)(changes, changes))

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        before = state.server
        record = state.record
        ids, _, reported, received, start, cluster = uploads
        # Of a client whose message was lost the server knows what it knew before.
        cluster = jnp.where(reported, cluster, record.cluster)
        # A cluster splits if its mean update is short and one of its updates is long.
        update = jax.tree.map(jnp.subtract, received, start)
        # The mean of the client's cluster [M], the same number for all of its members.
        mean_length = lengths(mix(together(cluster, reported), update))
        member = (cluster[None] == jnp.arange(clusters)[:, None]) & reported[None]  # [K, M]
        converged = jnp.max(jnp.where(member, mean_length[None], 0.0), axis=1) < eps1
        divergent = jnp.max(jnp.where(member, lengths(update)[None], 0.0), axis=1) > eps2
        candidates = converged & divergent & (member.sum(axis=1) > 2) & (before.round >= warmup)
        # Algorithm 1: the clients that leave their cluster for a new one.
        groups = jnp.where(reported, cluster, clusters)
        leaves = bipartition(cosine(update), groups, ids) & reported
        cluster, parent, count = split_clusters(cluster, leaves, candidates, before.count)
        # FedAvg in each cluster; a new cluster starts from the model of its parent.
        models = centres(received, cluster, tree.take(before.models, parent), reported)
        parents = jnp.where(parent == jnp.arange(clusters), before.parents, parent)
        record = Record(cluster, jnp.where(reported, count, record.known))
        return Outcome(
            ServerState(Server(models, parents, count, before.round + 1), record),
            weights=together(cluster, reported),
            metrics={"clusters": count.astype(float)},
        )

    exchanges = (Exchange(steps.train_choice(task), server),)
    return steps.compose(task, Wire(init, exchanges, steps.deploy_choice(task), download))
