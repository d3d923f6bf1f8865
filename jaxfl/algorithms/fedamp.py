"""FedAMP and HeurFedAMP: personal models that attract each other.

each round t:                                                               (Algorithm 1)
  server:    u_i = sum_j xi_ij w_j of the models w_j that it last received, and sends it
  client i:  w_i = local training of F_i(w) + factor |w - u_i|^2 from w_i, and sends it
client i deploys w_i.

FedAMP:      xi_ij = alpha A'(|w_i - w_j|^2), xi_ii = 1 - the others; factor = lam / (2 alpha)
HeurFedAMP:  xi_ij = (1 - xi_ii) softmax_j(sigma cos(w_i, w_j)), j != i; factor = lam / 2
"""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms import steps
from jaxfl.core import tree
from jaxfl.core.edges import Edges
from jaxfl.core.facts import FRACTION, NOT_NEGATIVE, POSITIVE, Paper, method
from jaxfl.core.messages import Down, Exchange, Outcome, ServerState, Turn, Uploads, Wire
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Objective,
    Params,
    PRNGKey,
    Problem,
    Scalar,
    Task,
)
from jaxfl.kernels import attentive, heuristic, isolate, mix, similarities, squared_distances
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.similarity import Measure
from jaxfl.training import data_loss

PAPER = Paper(
    authors="Huang, Yutao and Chu, Lingyang and Zhou, Zirui and Wang, Lanjun and Liu, Jiangchuan "
    "and Pei, Jian and Zhang, Yong",
    title="Personalized Cross-Silo Federated Learning on Non-IID Data",
    venue="AAAI",
    year=2021,
    link="https://arxiv.org/abs/2007.03797",
)


class Record(NamedTuple):
    """What the server keeps for each client."""

    # [C, ...] what it last received from the client; at first the initial model
    received: Params
    # [C] whether it has received anything
    seen: Bool[Array, "*c"]


def attraction(problem: Problem) -> Objective:
    """The data loss plus factor |w - u|^2, where the anchor is (u, factor).

    Example:
      >>> params = task.problem.init(jax.random.key(0))
      >>> mixture = jax.tree.map(lambda x: x + 1, params)  # of 90 parameters
      >>> batch = Dataset(jnp.zeros((2, 8)), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> value, aux = attraction(task.problem)(params, batch, (mixture, 0.5), jax.random.key(0))
      >>> round((value - aux).item(), 2)
      45.0
    """
    loss = data_loss(problem)

    def objective(params: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        mixture, factor = anchor
        value, aux = loss(params, batch, None, key)
        return value + misalignment(params, mixture, factor, "l2"), aux

    return objective


def attracted_models(
    task: Task,
    *,
    weigh: Callable[[Params, Params], Float[Array, "m m"]],
    factor: Callable[[PyTree, Bool[Array, "m"]], Scalar],
    step: Callable[[int], PyTree] = lambda clients: (),
    compare: bool = False,
) -> Algorithm:
    """A method whose server sends each client a mixture u, near which the client trains its model.

    A client that refuses its mixture is attracted to nothing, and its row of the weights is that of
    the identity. A client from which the server has received nothing is in nobody's mixture.

    State: memory = each client's model (`Personal`); record = `Record`; server = the initial model
    if `compare`, otherwise nothing.

    Args:
      task: the problem and its clients.
      weigh: (what the server last received [M, ...], the server's state) -> weights [M, M].
      factor: (what `step` gives, whether the server has received an upload of the client [M]) -> of
        the attraction, one number or one for each client [M].
      step: M -> what all clients learn of the server's step.
      compare: the server keeps the initial model.

    Example:
      >>> weigh = lambda received, initial: jnp.eye(4)
      >>> algorithm = attracted_models(task, weigh=weigh, factor=lambda step, seen: 0.1)
      >>> state, info = one_round(algorithm)
      >>> info.weights.shape, state.clients.record.seen.shape
      ((4, 4), (4,))
    """
    fit = task.trainer(attraction(task.problem))
    start = steps.init_personal(task.problem)

    def edges(state: ServerState) -> Edges:
        return task.keep_edges(
            isolate(weigh(state.record.received, state.server), state.record.seen)
        )

    def init(key: PRNGKey, train: Dataset) -> tuple[steps.Personal, ServerState]:
        memory, state = start(key, train)
        return memory, ServerState(state.server if compare else (), Record(*memory))

    def download(state: ServerState) -> Down:
        received = state.record.received
        return Down(step(state.record.seen.size), mix(edges(state), received))

    def client(
        key: PRNGKey, memory: steps.Personal, down: Down, cohort: Cohort
    ) -> Turn[steps.Personal]:
        mixture, accepted = task.accept(memory.model, down.each, cohort)
        anchor = (mixture, factor(down.common, memory.seen) * accepted)
        trained, up, report = steps.train_and_send(fit, key, memory.model, anchor, cohort)
        return steps.seen(trained, cohort), up, report._replace(accepted=accepted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        record = Record(uploads.received, jnp.ones_like(state.record.seen))
        # The graph of a round is that of its download.
        return Outcome(ServerState(state.server, record), weights=edges(state).weights)

    def deploy(memory: steps.Personal, down: Down, cohort: Cohort) -> Params:
        return memory.model

    return steps.compose(task, Wire(init, (Exchange(client, server),), deploy, download))


@method(
    title="FedAMP",
    paper=PAPER,
    place="Algorithm 1",
    personal="the whole model",
    sends="its model",
    defaults="ours",
    offers_mixture=True,
    takes_top_edges=True,
    mixes_before_training=True,
    starts_from_server=False,
    advice="lower lam: clients are then less attracted to the mixture; then sigma, in the "
    "order of the squared distances of models",
)
def fedamp(
    task: Task,
    *,
    alpha: Annotated[Scalar | None, POSITIVE] = None,
    sigma: Annotated[Scalar, POSITIVE] = 10.0,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
) -> Algorithm:
    """Each client has a model near a mixture of all models, in which similar models weigh more.

    At the start of a round the server sends each client of the cohort its mixture u of the models
    that it last received from the cohort. The client minimises its loss plus
    lam / (2 alpha) |w - u|^2, starting from its own model. A client from which the server has
    received nothing is in nobody's mixture, and its own model is its u.

    State: memory = each client's model (`Personal`); record = `Record`; server =
    nothing.

    Args:
      task: the model and its training.
      alpha: alpha_k, the step size of the server. None: sigma / M, which gives positive weights for
        any models.
      sigma: of A(x) = 1 - exp(-x / sigma), where x is the squared distance of two models. Choose it
        for the model and its training.
      lam: strength of the attraction.

    Differs: alpha does not decay over the rounds, and weights whose sum would exceed 1 are scaled,
    see `kernels.amp`.

    Example:
      >>> _, info = one_round(fedamp(task, sigma=1.0))
      >>> info.weights.shape
      (4, 4)
    """

    def step(clients: int) -> Scalar:
        return sigma / clients if alpha is None else alpha

    def weigh(received: Params, server: tuple) -> Float[Array, "m m"]:
        # The weights xi of the others' models.
        distances = squared_distances(received)
        return attentive(distances, step(len(distances)), sigma)

    def factor(alpha_k: Scalar, seen: Array) -> Scalar:
        return lam / (2 * alpha_k)

    def common(clients: int) -> Array:
        return jnp.asarray(step(clients))

    return attracted_models(task, weigh=weigh, factor=factor, step=common)


@method(
    title="HeurFedAMP",
    paper=PAPER,
    personal="the whole model",
    sends="its model",
    defaults="pFedGraph's tables",
    offers_mixture=True,
    takes_top_edges=True,
    mixes_before_training=True,
    advice="raise own, the weight of a client's own model; then sigma: higher prefers similar "
    "clients",
)
def heurfedamp(
    task: Task,
    *,
    own: Annotated[Scalar, FRACTION] = 0.3,
    sigma: Scalar = 10.0,
    lam: Annotated[Scalar, NOT_NEGATIVE] = 1.0,
    similarity: Literal["delta", "raw"] = "delta",
    measure: Measure = "cosine",
) -> Algorithm:
    """FedAMP for deep networks: the weights are a softmax of cosines, not a function of distances.

    At the start of a round the server sends each client of the cohort its mixture u of the models
    that it last received from the cohort. The client minimises its loss plus lam / 2 |w - u|^2,
    starting from its own model. A client from which the server has received nothing is in nobody's
    mixture. The defaults are those of pFedGraph's tables (FedAMP there, 2023).

    State: memory = each client's model (`Personal`); record = `Record`; server = the
    initial model if differences from it are compared, otherwise nothing.

    Args:
      task: the model and its training.
      own: xi_ii, the weight of a client's own model.
      sigma: sharpness of the softmax over the cosines with the other models.
      lam: strength of the attraction, lam / alpha_k in the paper.
      similarity: "delta" compares the differences from the initial model, "raw" the models, as in
        the paper.
      measure: in place of the cosine, not the paper's, of which sigma must suit the range: see
        `kernels.similarity.similarities`.

    Differs: there is no attraction before the server has received a model of the client.

    Example:
      >>> state = initial_state(heurfedamp(task, similarity="raw"))
      >>> state.server
      ()
    """

    def weigh(received: Params, initial: Params) -> Float[Array, "m m"]:
        delta = similarity == "delta"
        features = tree.subtract(received, initial) if delta else received
        # The weights xi of the others' models.
        return heuristic(similarities(features, measure), own, sigma)

    def factor(step: tuple, seen: Bool[Array, "m"]) -> Array:
        return lam / 2 * seen

    return attracted_models(task, weigh=weigh, factor=factor, compare=similarity == "delta")
