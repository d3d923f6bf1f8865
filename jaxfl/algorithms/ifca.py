"""IFCA: clients choose the cluster whose model has the lowest loss."""

from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from jaxfl import tree
from jaxfl.kernels.cluster import centres, together
from jaxfl.objectives import data_loss
from jaxfl.options import COUNT
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.streams import stream
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task


@method(
    title="IFCA",
    paper='Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, '
    "Algorithm 1",
    link="https://arxiv.org/abs/2006.04088",
    personal="the choice of a cluster",
    sends="its model and the number of its cluster",
)
def ifca(task: Task, *, clusters: Annotated[int, COUNT] = 4) -> Algorithm:
    """One model for each cluster; a client trains the model with the lowest loss on its data.

    A client is sent all models.

    State: clients = the cluster that each client last chose, first 0 [C]; server = models of the
    clusters [K, ...].

    Args:
      task: the model and its training.
      clusters: K; 4, as for the rotated digits of section 6. They start from K random models: a
        model that starts at zero makes one cluster of all.

    Differs: the choice is by the loss on all training data. The authors' code chooses once more
    before each test, by the loss on the labels of the test set; here a client deploys the model
    that it chose last.
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    evaluate = task.evaluate(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        models = jax.vmap(task.problem.init)(jax.random.split(key, clusters))
        return State(jnp.zeros(train.mask.shape[0], jnp.int32), models)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        ask_key = stream(key, "evaluate")

        def losses(model: Params) -> Array:  # of every client [M]
            asked = tree.broadcast(model, cohort.ids.size)
            return evaluate(ask_key, asked, cohort.train, cohort.ids)

        # Line 6: the cluster with the lowest loss; a NaN is never the lowest.
        found = lax.map(losses, state.server)  # [K, M]
        chosen = jnp.where(jnp.isnan(found), jnp.inf, found).argmin(axis=0)
        start = tree.take(state.server, chosen)
        _, received, info = train_and_upload(task, fit, key, start, None, cohort)
        # Line 15, model averaging.
        server = centres(received, chosen, state.server, info.reported)
        info = info._replace(
            weights=together(chosen, info.reported),
            up=info.up + 1,
            down=clusters * info.down,
        )
        return State(chosen, server), info

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.server, state.clients[ids])

    return Algorithm(init, round, models, task.problem.apply)
