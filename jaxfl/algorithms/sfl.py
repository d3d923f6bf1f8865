"""SFL: models propagate over a graph of the clients.

each round t, with the matrix A of the graph:                               (Algorithm 1)
  client i:  w_i = local training of F_i(w) + lam / 2 (|w - g|^2 + |w - u_i|^2) from g; sends it
  server:    A_ij = softmax_j(cos(w_i - g, w_j - g) / temperature) where no graph is given
             u = A^hops w; g = the mean of the u_i; sends both
client i deploys u_i.
"""

from typing import Annotated

import jax.numpy as jnp
from jaxtyping import ArrayLike, Shaped

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.facts import COUNT_OR_ZERO, NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, Report, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import cosine, graph_rows, isolate, mix, size_weights
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.propagate import propagate
from jaxfl.training import data_loss


@method(
    title="SFL",
    paper=Paper(
        authors="Chen, Fengwen and Long, Guodong and Wu, Zonghan and Zhou, Tianyi and Jiang, Jing",
        title="Personalized Federated Learning with a Graph",
        venue="IJCAI",
        year=2022,
        link="https://arxiv.org/abs/2203.00829",
    ),
    place="Algorithm 1",
    personal="the graph model u",
    sends="its model",
    defaults="ours: a learned graph in place of a given one; hops and lam follow the authors' code",
    offers_mixture=True,
    takes_top_edges=True,
    advice="lower lam, the attraction to the graph model; then lower hops or temperature",
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
    """Models propagate over a graph; each client stays near its graph model and near their mean.

    The graph model of a client is u, a row of A^hops w for the matrix A of the graph, and g is the
    mean of all u. The server sends u and g. The client starts from g and minimises its loss plus
    lam / 2 (|w - g|^2 + |w - u|^2).

    A client that never took part deploys g, and g is its first u. For a client that refuses its u
    (`Task.accept`), the model that it trained takes the place of u, but not in the mean g.

    State: memory = u (`Personal`); server = g.

    Args:
      task: the model and its training.
      graph: weights of the edges between clients, 0 or more [C, C]. An edge of each client to
        itself is added, and rows are scaled to sum to 1. None: only the learned graph.
      learned: weight of the learned graph in A if a graph is given. 0 or None is SFL, .05 is the
        paper's SFL*.
      hops: number of layers of the graph convolution.
      lam: strength of both attractions; half of the .3 in the authors' code, where the distances
        are not squared.
      temperature: of the learned graph, a softmax of the cosines of the models' differences from g.

    Raises:
      InputError: `learned` is given without a graph.

    Differs: the distances are squared and have a gradient, unlike in the authors' code. That code
    learns a graph by SGD from distances of models, so that distant models weigh more; here similar
    models weigh more. Means are over the cohort.

    Example:
      >>> _, info = one_round(sfl(task, hops=1))
      >>> info.weights.shape
      (4, 4)
    """
    check(
        learned is None or graph is not None,
        "learned is its weight beside a given graph: give graph, or leave it",
    )
    # The weight of the learned graph.
    if graph is None:
        learned_weight = 1.0
    elif learned is None:
        learned_weight = 0.0
    else:
        learned_weight = learned
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, centres: tuple, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        pulls = (misalignment(params, c, lam / 2, "l2") for c in centres)
        return value + sum(pulls), aux

    fit = task.trainer(objective)

    def client(
        key: PRNGKey, memory: steps.Personal, down: Down, cohort: Cohort
    ) -> Turn[steps.Personal]:
        start = steps.deploy_common(memory, down, cohort)
        centres = (start, steps.deploy_personal(memory, down, cohort))
        trained, up, report = steps.train_and_send(fit, key, start, centres, cohort)
        return steps.seen(trained, cohort), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        ids, _, reported, received, *_ = uploads
        # A is the learned graph, mixed with the given graph and its edges of clients to themselves.
        rows = graph_rows(cosine(tree.subtract(received, state.server)), "softmax", temperature)
        if graph is not None:
            adjacency = jnp.asarray(graph, float)[ids][:, ids]
            edges = jnp.maximum(adjacency, jnp.eye(ids.size))
            degrees = edges.sum(axis=1, keepdims=True)
            rows = learned_weight * rows + (1 - learned_weight) * edges / degrees
        # u = A^hops w, and g is the mean of u.
        mixing_edges = task.keep_edges(isolate(propagate(rows, hops), reported))
        mixture = mix(mixing_edges, received)
        mean = mix(size_weights(reported), mixture)
        return Outcome(ServerState(mean), Down(each=mixture), mixing_edges.weights)

    def take(
        key: PRNGKey, memory: steps.Personal, down: Down, cohort: Cohort
    ) -> Turn[steps.Personal]:
        model, accepted = task.accept(memory.model, down.each, cohort)
        return steps.seen(model, cohort), None, Report(accepted=accepted)

    exchanges = (Exchange(client, server), Exchange(take))
    init = steps.init_personal(task.problem)
    return steps.compose(task, Wire(init, exchanges, steps.deploy_personal, steps.download_server))
