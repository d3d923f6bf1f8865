"""pFedCCG: a reversible collaboration graph, made of the clients' label counts."""

from typing import Annotated, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int

from jaxfl.algorithms.steps.labels import class_count, class_sizes, require_labels
from jaxfl.algorithms.steps.personal import own_models
from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.facts import method
from jaxfl.core.options import NOT_NEGATIVE, POSITIVE
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Info,
    PRNGKey,
    Scalar,
    State,
    Task,
)
from jaxfl.kernels.mixing import isolate, keep_own, mix
from jaxfl.kernels.reversible import label_similarity, reversible_rows, strength_of_round
from jaxfl.training.objectives import data_loss


class Server(NamedTuple):
    """The state of the server."""

    # t, the number of rounds so far
    rounds: Int[Array, ""]


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
    turn_first="raise first, the strength of collaboration with similar clients: at 0 the method "
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

    State: clients = the mixture, which the client deploys and from which it trains; server =
    `Server`.

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

    def init(key: PRNGKey, train: Dataset) -> State:
        require_labels(train, "pFedCCG")
        model = task.problem.init(key)
        return State(tree.broadcast(model, train.mask.shape[0]), Server(jnp.zeros((), jnp.int32)))

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        trained, received, info = train_and_upload(task, fit, key, state.clients, None, cohort)
        # The template S, from the label counts that came with the models.
        classes = class_count(task.problem, cohort.train)
        similarity = label_similarity(class_sizes(cohort.train, classes))
        strength = strength_of_round(state.server.rounds, first, rise, middle, width)
        rows = reversible_rows(similarity, cohort.sizes * info.reported, strength)
        edges = task.keep_edges(isolate(rows, info.reported))
        model, accepted = task.accept(trained, mix(edges.rows, received), cohort)
        info = info._replace(weights=keep_own(edges.weights, accepted), up=info.up + classes)
        return State(model, Server(state.server.rounds + 1)), info

    return Algorithm(init, round, own_models, task.problem.apply)
