"""SFL: models spread over a graph of clients."""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Shaped

from jaxfl import tree
from jaxfl.errors import check
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.mixing import isolate, mix, size_weights
from jaxfl.kernels.propagate import graph_rows, propagate
from jaxfl.kernels.similarity import cosine
from jaxfl.objectives import data_loss
from jaxfl.options import COUNT_OR_ZERO, NOT_NEGATIVE, POSITIVE
from jaxfl.registry import method
from jaxfl.skeleton import train_and_upload
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


@method(
    title="SFL",
    paper='Chen et al., "Personalized Federated Learning with a Graph", IJCAI 2022, Algorithm 1',
    link="https://arxiv.org/abs/2203.00829",
    personal="the graph model u",
    sends="its model",
)
def sfl(
    task: Task,
    *,
    graph: Shaped[ArrayLike, "c c"] | None = None,
    learned: Annotated[Scalar | None, NOT_NEGATIVE] = None,
    hops: Annotated[int, COUNT_OR_ZERO] = 3,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 0.15,
    temperature: Annotated[Scalar, POSITIVE] = 0.1,
) -> Algorithm:
    """Models spread over a graph; each client stays near its own result and near the mean of all.

    A client starts from the mean g and minimises its loss plus lam / 2 (|w - g|^2 + |w - u|^2), u
    its graph model: u = A^hops w, and g the mean of all u. It is sent u and g.

    State: clients = u [C, ...]; server = g.

    Args:
      task: the model and its training.
      graph: edges between clients, 0 or more [C, C]; rows are scaled to sum to 1, edges to
        themselves added. None: only what is learned.
      learned: weight of the learned graph in A beside a given one: 0 or None is SFL, .05 the
        paper's SFL*.
      hops: layers of the graph convolution.
      lam: strength of both attractions; half of the .3 of the authors' code, which is of distances
        not squared.
      temperature: of the learned graph, a softmax of the cosines of the models' differences to g.

    Raises:
      InputError: `learned` is given without a graph.

    Differs: the attractions are squared and have a gradient, unlike in the authors' code. That code
    learns a graph by SGD, from distances of models, and such that far models weigh more; here near
    models do. A mean is of the cohort.
    """
    check(
        learned is None or graph is not None,
        "learned is its weight beside a given graph: give graph, or leave it",
    )
    mixed_in = 1.0 if graph is None else 0.0 if learned is None else learned
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, centres: tuple, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        return value + sum(misalignment(params, c, lam / 2, "l2") for c in centres), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.problem.init(key)
        return State(tree.broadcast(model, train.mask.shape[0]), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        start = tree.broadcast(state.server, clients)
        centres = (start, state.clients)
        _, received, info = train_and_upload(task, fit, key, start, centres, cohort)
        # A: the learned graph, and the given one with edges of clients to themselves.
        rows = graph_rows(cosine(tree.subtract(received, state.server)), "softmax", temperature)
        if graph is not None:
            given = jnp.asarray(graph, float)[cohort.ids][:, cohort.ids]
            edges = jnp.maximum(given, jnp.eye(clients))
            rows = mixed_in * rows + (1 - mixed_in) * edges / edges.sum(axis=1, keepdims=True)
        # u = A^hops w, and g its mean.
        weights = isolate(propagate(rows, hops), info.reported)
        model = mix(weights, received)
        mean = mix(size_weights(info.reported), model)
        return State(model, mean), info._replace(weights=weights, down=2 * info.down)

    def models(state: State, ids: Array) -> Params:
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.problem.apply)
