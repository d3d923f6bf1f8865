"""mutual_graph: pFedGraph's graph among clients whose own models differ in architecture.

each round t, with KL(a | b), the divergence of b's predictions from a's:
  client i:  w_i = local training of alpha F_i(w) + (1 - alpha) KL(s_i | w) from w_i
             s_i = local training of beta F_i(s) + (1 - beta) KL(w_i | s) from c_i
             at once, and sends the small model s_i
  server:    u_ij = cosine of s_i - s and s_j - s, for the initial small model s
             r_i = argmin of a |r - p|^2 - u_i . r over r >= 0 with sum 1, for the shares p
             c_i = sum_j r_ij s_j
client i deploys w_i.
"""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.edges import Edges
from jaxfl.core.facts import FRACTION, POSITIVE, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.streams import stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import collaboration_rows, isolate, mix, similarities, size_weights


class Sent(NamedTuple):
    """What each client has sent last."""

    small: Params
    # its number of examples; 0: nothing yet
    size: Float[Array, "m"]


@method(
    title="mutual graph",
    paper="none; jaxfl's own, from FML and pFedGraph's graph (Ye et al., ICML 2023)",
    personal="the whole model",
    sends="a small model",
    defaults="pFedGraph's and FML's",
    takes_top_edges=True,
    mixes_before_training=True,
    takes_initial_model=False,
    advice="alpha, the weight of the labels for a client's own model; then balance",
)
def mutual_graph(
    task: Task,
    *,
    alpha: Annotated[Scalar, FRACTION] = 0.5,
    beta: Annotated[Scalar, FRACTION] = 0.5,
    balance: Annotated[Scalar | None, POSITIVE] = None,
) -> Algorithm:
    """FML, where each client has a mixture of small models of its own, by pFedGraph's program.

    Models of different architectures cannot be compared. The small models can, as all have the
    smallest architecture; so the graph is among them, and what flows along it reaches a client's
    own model by mutual learning.

    State: memory = the client's model; record = `Sent`; server = the initial small model. Weights:
    "small" and "model".

    Args:
      task: the model and its training, which is that of the small model too.
      alpha: weight of the labels for a client's own model, see `fml`.
      beta: weight of the labels for the small model.
      balance: of data size and similarity, alpha of `pfedgraph`. None: .08 M.

    Raises:
      InputError: the task has no labels.

    Example:
      >>> state, info = one_round(mutual_graph(task))
      >>> state.clients.record.size.shape, sorted(info.weights)
      ((4,), ['model', 'small'])
    """
    train = steps.mutual_training(task, alpha, beta)

    def edges_of(sent: Sent, initial: Params) -> Edges:
        compared = similarities(tree.subtract(sent.small, initial), "cosine")
        rows = collaboration_rows(compared, size_weights(sent.size), balance, "code")
        return task.keep_edges(isolate(rows, sent.size > 0))

    def init(key: PRNGKey, data: Dataset) -> tuple[Params, ServerState]:
        steps.require_labels(task.problem, data, "the mutual graph")
        memory, _ = steps.init_own(task.problem)(key, data)
        initial, clients = steps.small_problem(task).init(stream(key, "server")), len(data.mask)
        sent = Sent(tree.broadcast(initial, clients), jnp.zeros(clients))
        return memory, ServerState(initial, sent)

    def download(state: ServerState) -> Down:
        return Down(each=mix(edges_of(state.record, state.server), state.record.small))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        return train(key, memory, down.each, cohort)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        arrived = Sent(uploads.received, uploads.sizes.astype(float))
        sent = tree.choose(uploads.reported, arrived, state.record)
        weights = edges_of(sent, state.server).weights
        rows = {"model": jnp.eye(uploads.ids.size), "small": weights}
        return Outcome(ServerState(state.server, sent), weights=rows)

    wire = Wire(init, (Exchange(client, server),), steps.deploy_memory, download)
    return steps.compose(task, wire)
