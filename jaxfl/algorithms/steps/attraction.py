"""Clients with models of their own that are attracted to mixtures: FedAMP and HeurFedAMP.

Huang et al., "Personalized Cross-Silo Federated Learning on Non-IID Data", AAAI 2021,
https://arxiv.org/abs/2007.03797.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms.steps.client import init_personal, seen, train_and_send
from jaxfl.algorithms.steps.composition import compose
from jaxfl.algorithms.steps.personal import Personal
from jaxfl.core.edges import Edges
from jaxfl.core.messages import Down, Exchange, Outcome, Report, ServerState, Up, Uploads, Wire
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
from jaxfl.kernels.alignment import misalignment
from jaxfl.kernels.mixing import isolate, mix
from jaxfl.training.batch_statistics import trainable
from jaxfl.training.objectives import data_loss


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
        return value + misalignment(trainable(params), trainable(mixture), factor, "l2"), aux

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
      step: M -> what the server tells all clients of its step.
      compare: the server keeps the initial model.

    Example:
      >>> weigh = lambda received, initial: jnp.eye(4)
      >>> algorithm = attracted_models(task, weigh=weigh, factor=lambda step, seen: 0.1)
      >>> state, info = one_round(algorithm)
      >>> info.weights.shape, state.clients.record.seen.shape
      ((4, 4), (4,))
    """
    fit = task.trainer(attraction(task.problem))
    start = init_personal(task.problem)

    def edges(state: ServerState) -> Edges:
        return task.keep_edges(
            isolate(weigh(state.record.received, state.server), state.record.seen)
        )

    def init(key: PRNGKey, train: Dataset) -> tuple[Personal, ServerState]:
        memory, state = start(key, train)
        return memory, ServerState(state.server if compare else (), Record(*memory))

    def download(state: ServerState) -> Down:
        received = state.record.received
        return Down(step(state.record.seen.size), mix(edges(state).rows, received))

    def client(
        key: PRNGKey, memory: Personal, down: Down, cohort: Cohort
    ) -> tuple[Personal, Up, Report]:
        mixture, accepted = task.accept(memory.model, down.each, cohort)
        anchor = (mixture, factor(down.common, memory.seen) * accepted)
        trained, up, report = train_and_send(fit, key, memory.model, anchor, cohort)
        return seen(trained, cohort), up, report._replace(accepted=accepted)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        record = Record(uploads.received, jnp.ones_like(state.record.seen))
        # The graph of a round is that of its download.
        return Outcome(ServerState(state.server, record), weights=edges(state).weights)

    def deploy(memory: Personal, down: Down, cohort: Cohort) -> Params:
        return memory.model

    return compose(task, Wire(init, (Exchange(client, server),), deploy, download))
