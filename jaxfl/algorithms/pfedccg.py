"""pFedCCG: a reversible collaboration graph, made of the clients' label counts.

each round t, with q_i the clients' shares of the examples:
  client i:  w_i = local training of F_i from x_i; sends it, and the counts of its labels
  server:    S_ij = 1 - the Jensen-Shannon divergence of the labels of i and j
             K = argmin_K sum_ij K_ij^2 / q_i - 2 a_t S_ij K_ij, symmetric, K >= 0, K 1 = q
             x_i = sum_j K_ij / q_i w_j, and sends it
client i deploys x_i.
"""

from typing import Annotated

import jax.numpy as jnp

from jaxfl.algorithms import steps
from jaxfl.core.facts import NOT_NEGATIVE, POSITIVE, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import Algorithm, Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.kernels import isolate, label_similarity, mix, reversible_rows
from jaxfl.kernels.reversible import strength_of_round
from jaxfl.training import data_loss


@method(
    title="pFedCCG",
    paper='"Controlled Collaboration Geometry for Personalized Federated Learning", ICML 2026',
    link="",
    personal="the mixture of models",
    sends="its model and the counts of its labels",
    defaults="the authors' code",
    offers_mixture=True,
    takes_top_edges=True,
    starts_from_server=False,
    advice="raise first, the strength of collaboration with similar clients: at 0 the method "
    "is FedAvg",
)
def pfedccg(
    task: Task,
    *,
    first: Annotated[Scalar, NOT_NEGATIVE] = 0.2,
    rise: Annotated[Scalar, NOT_NEGATIVE] = 0.2,
    middle: Scalar = 25.0,
    width: Annotated[Scalar, POSITIVE] = 7.0,
) -> Algorithm:
    """Each client receives a mixture whose weights follow the label counts, not the models.

    The paper: https://icml.cc/virtual/2026/poster/61399.

    The similarity S of two clients is one minus the Jensen-Shannon divergence of their label
    distributions. It does not depend on training, so that clients with similar models cannot draw
    each other together. The weights are W = diag(1 / q) K, where q are the clients' shares of the
    data and K minimises sum_ij K_ij^2 / q_i - 2 a_t sum_ij S_ij K_ij among the symmetric K >= 0
    with K 1 = q, see `kernels.reversible`. So W is a reversible Markov chain with the stationary
    distribution q, and mixing does not move the mean of the models that FedAvg would take. The
    strength of round t is a_t = first + rise / (1 + exp((middle - t) / width)).

    Each round counts the floats of the label counts, one for each class, with those of the model.
    They tell the server how often a client has each label: with noise, no guarantee holds.

    State: memory = the mixture, which the client deploys and from which it trains; server = t, the
    number of rounds so far.

    Args:
      task: the model and its training.
      first: the strength of the first rounds. At strength 0 the weights are q.
      rise: by how much the strength grows over the rounds.
      middle: the round in which it has grown by half; the authors' runs have 50 rounds.
      width: how many rounds the growth takes.

    Raises:
      InputError: the task has no labels.

    Differs: the quadratic program is solved exactly, by Newton's method on its dual. The authors'
    code takes up to 2,000 gradient steps, and projects alternately on the two constraints. The
    counts are those of the training examples. Equations are those of the authors' code, as the
    paper was not at hand.

    Example:
      >>> _, info = one_round(pfedccg(task, first=0.5))
      >>> info.weights.shape
      (4, 4)
    """
    fit = task.trainer(data_loss(task.problem))
    start = steps.init_own(task.problem)

    def init(key: PRNGKey, train: Dataset) -> tuple[Params, ServerState]:
        steps.require_labels(task.problem, train, "pFedCCG")
        memory, _ = start(key, train)
        return memory, ServerState(jnp.zeros((), jnp.int32))

    def client(key: PRNGKey, memory: Params, down: Down, cohort: Cohort) -> Turn[Params]:
        trained, up, report = steps.train_and_send(fit, key, memory, None, cohort)
        counts = steps.class_sizes(cohort.train, steps.class_count(task.problem, cohort.train))
        return trained, up._replace(plain=counts), report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        reported = uploads.reported
        # The template S, from the label counts that came with the models.
        similarity = label_similarity(uploads.plain)
        strength = strength_of_round(state.server, first, rise, middle, width)
        rows = reversible_rows(similarity, uploads.sizes * reported, strength)
        edges = task.keep_edges(isolate(rows, reported))
        offer = Down(each=mix(edges, uploads.received))
        return Outcome(ServerState(state.server + 1), offer, edges.weights)

    exchanges = (Exchange(client, server), Exchange(steps.take_offered(task)))
    return steps.compose(task, Wire(init, exchanges, steps.deploy_memory))
