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

    The server sends all models to each client. Clients count equally within a cluster.

    State: clients = the cluster that each client last chose [C], at first 0; server = models of the
    clusters [K, ...].

    Args:
      task: the model and its training.
      clusters: K; the default is 4, as for the rotated digits of section 6. The clusters start from
        K random models. If the task's initial model is zero, all clients stay in one cluster.

    Differs: a client chooses by the loss on all of its training data. The authors' code chooses
    again before each test, by the loss on the labels of the test set; here a client deploys the
    model of the cluster that it last chose.
    """
    loss = data_loss(task.problem)
    fit = task.trainer(loss)
    evaluate = task.evaluate(loss)

    def init(key: PRNGKey, train: Dataset) -> State:
        models = jax.vmap(task.problem.init)(jax.random.split(key, clusters))
        return State(jnp.zeros(train.mask.shape[0], jnp.int32), models)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        evaluate_key = stream(key, "evaluate")

        def losses(model: Params) -> Array:
            """The loss of every client [M] at one model."""
            stacked = tree.broadcast(model, cohort.ids.size)
            return evaluate(evaluate_key, stacked, cohort.train, cohort.ids)

        # Line 6: each client chooses the cluster with the lowest loss; a NaN is never the lowest.
        found = lax.map(losses, state.server)  # [K, M]
        chosen = jnp.where(jnp.isnan(found), jnp.inf, found).argmin(axis=0)
        start = tree.take(state.server, chosen)
        _, received, info = train_and_upload(task, fit, key, start, None, cohort)
        # Line 15: model averaging in each cluster.
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
