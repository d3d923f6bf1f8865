"""SFL (Chen et al., "Personalized Federated Learning with a Graph", IJCAI 2022, Algorithm 1)."""

import jax
import jax.numpy as jnp
from jaxtyping import ArrayLike, Shaped

from jaxfl import tree
from jaxfl.errors import check, check_not_negative, check_positive
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.mixing import isolate, mix, size_weights
from jaxfl.kernels.propagate import graph_rows, propagate
from jaxfl.kernels.similarity import cosine
from jaxfl.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, Scalar, State, Task


def sfl(
    task: Task,
    *,
    graph: Shaped[ArrayLike, "c c"] | None = None,
    learned: Scalar | None = None,
    hops: int = 3,
    lam: Scalar = 0.15,
    temperature: Scalar = 0.1,
) -> Algorithm:
    """Models spread over a graph of clients; each client stays near its own result and near the mean of all.

    A client starts from the mean g and minimises its loss plus lam / 2 (|w - g|^2 + |w - u|^2), u
    its graph model: u = A^hops w, and g the mean of all u. Personal is u, which it deploys. A
    client sends its model and is sent u and g.

    State: clients = u [C, ...]; server = g.

    Args:
      task: the model and its training.
      graph: edges between clients, 0 or more [C, C]; rows are scaled to sum to 1, edges to
        themselves added. None: only what is learned.
      learned: share of the learned graph in A beside a given one: 0 or None is SFL, .05 the paper's
        SFL*.
      hops: layers of the graph convolution.
      lam: strength of both attractions; half of the .3 of the authors' code, which is of distances
        not squared.
      temperature: of the learned graph, a softmax of the cosines of the models' differences to g.

    Differs: the attractions are squared and have a gradient, unlike in the authors' code. That
    learns a graph by SGD, from distances of models, and so that far ones weigh more; here near ones
    do. A mean is of the cohort.
    """
    check(
        learned is None or graph is not None,
        "learned is its share beside a given graph: give graph, or leave it",
    )
    check_not_negative(lam=lam, hops=hops, learned=learned)
    check_positive(temperature=temperature)
    share = 1.0 if graph is None else 0.0 if learned is None else learned

    def objective(params: Params, batch: Dataset, anchor, key: PRNGKey):
        loss, aux = task.loss(params, batch, None, key)
        return loss + sum(misalignment(params, centre, lam / 2, "l2") for centre in anchor), aux

    fit = task.trainer(objective)

    def init(key: PRNGKey, train: Dataset) -> State:
        model = task.init(key)
        return State(tree.broadcast(model, train.mask.shape[0]), model)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        fit_key, uplink_key = jax.random.split(key)
        mean, clients = state.server, cohort.ids.size
        start = tree.broadcast(mean, clients)
        trained, loss = fit(fit_key, start, (start, state.clients), cohort)
        received, heard = task.uplink(uplink_key, start, trained, cohort.ids)
        rows = graph_rows(cosine(tree.subtract(received, mean)), "softmax", temperature)
        if graph is not None:
            edges = jnp.maximum(
                jnp.asarray(graph, float)[cohort.ids][:, cohort.ids], jnp.eye(clients)
            )
            rows = share * rows + (1 - share) * edges / edges.sum(axis=1, keepdims=True)
        weights = isolate(propagate(rows, hops), heard)
        model = mix(weights, received)
        mean = mix(size_weights(heard), model)
        floats = jnp.full_like(cohort.ids, tree.size(mean))
        return State(model, mean), Info(
            loss, weights, floats, 2 * floats, batches=task.batches(cohort), heard=heard
        )

    def models(state: State, ids):
        return tree.take(state.clients, ids)

    return Algorithm(init, round, models, task.apply)
