"""IFCA: clients choose the cluster whose model has the lowest loss."""

from typing import Annotated

import jax

from jaxfl.algorithms.steps.personal import deploy_key, lowest_loss
from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import COUNT
from jaxfl.core.papers import Paper
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task
from jaxfl.kernels.cluster import centres, together
from jaxfl.training.objectives import data_loss


@method(
    title="IFCA",
    paper=Paper(
        authors="Ghosh, Avishek and Chung, Jichan and Yin, Dong and Ramchandran, Kannan",
        title="An Efficient Framework for Clustered Federated Learning",
        venue="NeurIPS",
        year=2020,
        link="https://arxiv.org/abs/2006.04088",
    ),
    place="Algorithm 1",
    personal="the choice of a cluster",
    sends="its model and the number of its cluster",
    defaults="the paper",
    turn_first="clusters: as many as you expect groups of clients; then other seeds, since its "
    "start is random",
)
def ifca(task: Task, *, clusters: Annotated[int, COUNT] = 4) -> Algorithm:
    """One model for each cluster; a client trains the model with the lowest loss on its data.

    The server sends all models to each client. Clients count equally within a cluster.

    State: clients = nothing; server = models of the clusters [K, ...].

    Args:
      task: the model and its training.
      clusters: K; the default is 4, as for the rotated digits of section 6. The clusters start from
        K random models. If the task's initial model is zero, all clients stay in one cluster.

    Differs: a client chooses by the loss on all of its training data, in every round and whenever
    it deploys a model. The authors' code chooses before each test by the loss on the labels of the
    test set.

    Example:
      >>> state = initial_state(ifca(task, clusters=3))
      >>> state.server["params"]["Dense_1"]["bias"].shape
      (3, 2)
    """
    fit = task.trainer(data_loss(task.problem))
    choose = lowest_loss(task)

    def init(key: PRNGKey, train: Dataset) -> State:
        return State((), jax.vmap(task.problem.init)(jax.random.split(key, clusters)))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        # Line 6: each client chooses the cluster with the lowest loss.
        cluster = choose(stream(key, "evaluate"), state.server, cohort)
        start = tree.take(state.server, cluster)
        _, received, info = train_and_upload(task, fit, key, start, None, cohort)
        # Line 15: model averaging in each cluster.
        server = centres(received, cluster, state.server, info.reported)
        info = info._replace(
            weights=together(cluster, info.reported),
            up=info.up + 1,
            down=clusters * info.down,
        )
        return State((), server), info

    def models(state: State, cohort: Cohort) -> Params:
        return tree.take(state.server, choose(deploy_key(), state.server, cohort))

    return Algorithm(init, round, models, task.problem.apply)
