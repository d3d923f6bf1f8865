"""FeSEM: clients join the nearest of several centres."""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from jaxfl.algorithms.steps.personal import deploy_key, lowest_loss
from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task
from jaxfl.kernels.cluster import centres, kmeans, nearest, together
from jaxfl.training.objectives import data_loss


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
    sends="its model",
    defaults="ours",
    separating={"clusters": 2},
    turn_first="clusters: as many as you expect groups of clients",
)
def fedsem(task: Task, *, clusters: Annotated[int, COUNT] = 5) -> Algorithm:
    """Clusters of models: each client joins the nearest centre, and trains from the cluster's mean.

    A round is one step of expectation and one of maximisation. The server sends each client the
    centre of its cluster.

    A client that never took part starts from the centre with the lowest loss on its training data,
    and deploys it.

    State: clients = the cluster of each client [C], -1 before its first; server = `Server`.

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
    fit = task.trainer(data_loss(task.problem))
    choose = lowest_loss(task)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        server = Server(tree.broadcast(model, clusters), jnp.zeros((), bool))
        return State(jnp.full(train.mask.shape[0], -1, jnp.int32), server)

    def current(key: PRNGKey, cluster: Int[Array, "m"], centres: Params, cohort: Cohort) -> Params:
        """The centre of each client's cluster [M, ...]."""
        unseen = cluster < 0
        first = lax.cond(
            unseen.any(), lambda: choose(key, centres, cohort), lambda: jnp.zeros_like(cluster)
        )
        return tree.take(centres, jnp.where(unseen, first, cluster))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        before = state.server
        start = current(stream(key, "evaluate"), state.clients, before.centres, cohort)
        _, received, info = train_and_upload(task, fit, key, start, None, cohort)
        # Expectation: each client joins the nearest centre.
        cluster = lax.cond(
            before.begun,
            lambda: nearest(received, before.centres),
            lambda: kmeans(stream(key, "server"), received, cohort.ids, clusters).assignment,
        )
        # Maximisation: a centre is the mean of its members.
        after = centres(received, cluster, before.centres, info.reported)
        info = info._replace(weights=together(cluster, info.reported))
        return State(cluster, Server(after, jnp.ones((), bool))), info

    def models(state: State, cohort: Cohort) -> Params:
        cluster = state.clients[cohort.ids]
        return current(deploy_key(), cluster, state.server.centres, cohort)

    return Algorithm(init, round, models, task.problem.apply)
