"""FeSEM: clients join the nearest of several centres.

each round t, with k the cluster of client i:                               (Algorithm 1)
  client i:  w_i = local training of F_i from x_k, and sends it
  server:    the cluster of client i is the k whose x_k is nearest to w_i
             x_k = the mean of the w_i of cluster k
client i deploys x_k.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.facts import COUNT, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Dataset, Params, PRNGKey, Task
from jaxfl.kernels import centres, kmeans, nearest, together


class Server(NamedTuple):
    """The state of the server."""

    # [K, ...] the centres of the clusters
    centres: Params
    # whether k-means has found the first centres; before, each centre is the initial model
    begun: Bool[Array, ""]


@method(
    title="FeSEM",
    paper=Paper(
        authors="Xie, Ming and Long, Guodong and Shen, Tao and Zhou, Tianyi and Wang, Xianzhi "
        "and Jiang, Jing and Zhang, Chengqi",
        title="Multi-Center Federated Learning",
        venue="",
        year=2020,
        link="https://arxiv.org/abs/2005.01026",
    ),
    place="Algorithm 1",
    personal="the cluster",
    sends="its model, and from which centre it trained",
    defaults="ours",
    separating={"clusters": 2},
    advice="clusters: as many as you expect groups of clients",
)
def fedsem(task: Task, *, clusters: Annotated[int, COUNT] = 5) -> Algorithm:
    """Clusters of models: each client joins the nearest centre, and trains from the cluster's mean.

    A round is one step of expectation and one of maximisation. The server sends each client the
    centre of its cluster.

    A client that never took part gets all centres, starts from the one with the lowest loss on its
    training data, and deploys it.

    State: record = the cluster of each client [C], -1 before its first; server = `Server`.

    Args:
      task: the model and its training.
      clusters: K.

    Differs: k-means finds the first centres; the authors' code draws random points. Distances are
    of all parameters; in the authors' code they are of one kernel. A cluster without a client keeps
    its centre.

    Example:
      >>> state = initial_state(fedsem(task, clusters=3))
      >>> state.server.centres["params"]["Dense_1"]["bias"].shape
      (3, 2)
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        model = task.problem.init(key)
        server = Server(tree.broadcast(model, clusters), jnp.zeros((), bool))
        return (), ServerState(server, jnp.full(train.mask.shape[0], -1, jnp.int32))

    def download(state: ServerState) -> Down:
        before, cluster, _ = state
        # Before k-means all centres are one model.
        free = (cluster < 0) & before.begun
        own = jnp.maximum(cluster, 0)[:, None] == jnp.arange(clusters)[None]
        return steps.offer(before.centres, free[:, None] | own)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        before = state.server
        ids, _, reported, received, *_ = uploads
        counted = reported | ~reported.any()

        def first_clusters() -> Int[Array, "m"]:
            # What did not arrive may be anything, and k-means measures all models in one unit.
            initial = tree.broadcast(jax.tree.map(lambda x: x[0], before.centres), ids.size)
            models = tree.choose(counted, received, initial)
            return kmeans(stream(key, "server"), models, clusters, ids, counted).assignment

        # Expectation: each client joins the nearest centre.
        cluster = lax.cond(before.begun, lambda: nearest(received, before.centres), first_clusters)
        # Of a client whose message was lost the server knows what it knew before.
        cluster = jnp.where(reported, cluster, state.record)
        # Maximisation: a centre is the mean of its members.
        after = Server(centres(received, cluster, before.centres, reported), jnp.ones((), bool))
        return Outcome(ServerState(after, cluster), weights=together(cluster, reported))

    exchanges = (Exchange(steps.train_choice(task), server),)
    return steps.compose(task, Wire(init, exchanges, steps.deploy_choice(task), download))
