"""IFCA: clients choose the cluster whose model has the lowest loss.

each round t, with the models x_1, ..., x_K of the clusters:                (Algorithm 1)
  client i:  k = argmin_k F_i(x_k)
             w_i = local training of F_i from x_k; sends it, and k
  server:    x_k = the mean of the w_i of those who chose k
client i deploys the x_k with the lowest F_i(x_k).
"""

from typing import Annotated

import jax

from jaxfl.algorithms import steps
from jaxfl.core.facts import COUNT, Paper, method
from jaxfl.core.messages import Exchange, Outcome, ServerState, Uploads, Wire
from jaxfl.core.types import Algorithm, Dataset, PRNGKey, Task
from jaxfl.kernels import centres, together


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
    takes_initial_model=False,
    advice="clusters: as many as you expect groups of clients; then other seeds, since its "
    "start is random",
)
def ifca(task: Task, *, clusters: Annotated[int, COUNT] = 4) -> Algorithm:
    """One model for each cluster; a client trains the model with the lowest loss on its data.

    The server sends all models to each client. Clients count equally within a cluster.

    State: server = models of the clusters [K, ...].

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

    def init(key: PRNGKey, train: Dataset) -> tuple[tuple, ServerState]:
        return (), ServerState(jax.vmap(task.problem.init)(jax.random.split(key, clusters)))

    # Line 6: each client chooses the cluster with the lowest loss.
    client = steps.train_choice(task)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        cluster = uploads.plain
        # Line 15: model averaging in each cluster.
        models = centres(uploads.received, cluster, state.server, uploads.reported)
        return Outcome(ServerState(models), weights=together(cluster, uploads.reported))

    exchanges = (Exchange(client, server),)
    return steps.compose(
        task, Wire(init, exchanges, steps.deploy_choice(task), steps.download_server)
    )
