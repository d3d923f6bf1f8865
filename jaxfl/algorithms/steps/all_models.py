"""Clients that get all models of a round and mix them themselves, such as those of FedFomo."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxfl.algorithms.steps.client_steps import deploy_memory, init_own, train_and_send
from jaxfl.algorithms.steps.composition import compose
from jaxfl.core import tree
from jaxfl.core.edges import Edges
from jaxfl.core.messages import (
    Down,
    Exchange,
    Outcome,
    Report,
    ServerState,
    Turn,
    Uploads,
    Wire,
)
from jaxfl.core.types import Algorithm, Cohort, Params, PRNGKey, Task
from jaxfl.kernels.mixing import leave_out
from jaxfl.training.objectives import data_loss


class Offer(NamedTuple):
    """What M clients know when they choose among the models of N senders, their own among them."""

    # [M, ...] the client's model from before the round
    start: Params
    # [M, ...] the client's model after it, before the uplink
    trained: Params
    # [N, ...] what the server received
    models: Params
    # [N] whether the sender has reported
    reported: Bool[Array, "n"]
    # [N] examples that the sender owns, or nothing
    sizes: PyTree
    # [M] the client's place among the senders
    place: Int[Array, "m"]

    @property
    def own(self) -> Bool[Array, "m n"]:
        """Which model is the client's own: the identity in a cohort whose clients all send."""
        return self.place[:, None] == jnp.arange(self.reported.size)[None]


# (key, offer, cohort) -> (the model that each client takes [M, ...], the report with its weights)
Choice = Callable[[PRNGKey, Offer, Cohort], tuple[Params, Report]]


def isolate_rows(weights: Float[Array, "m n"], offer: Offer) -> Float[Array, "m n"]:
    """`mixing.isolate` for the rows of some receivers.

    Example:
      >>> there = jnp.array([True, False])
      >>> offer = Offer((), (), (), there, (), place=jnp.array([1]))
      >>> isolate_rows(jnp.array([[0.5, 0.5]]), offer).tolist()
      [[0.0, 1.0]]
    """
    rows = leave_out(weights, offer.reported)
    return jnp.where(offer.reported[offer.place, None], rows, offer.own.astype(rows.dtype))


def keep_rows(task: Task, weights: Float[Array, "m n"], offer: Offer) -> Edges:
    """`Task.keep_edges` for the rows of some receivers.

    Example:
      >>> there = jnp.ones(2, bool)
      >>> offer = Offer((), (), (), there, (), place=jnp.array([1]))
      >>> keep_rows(task, jnp.array([[0.5, 0.5]]), offer).weights.tolist()
      [[0.5, 0.5]]
    """
    senders = offer.reported.size
    whole = jnp.zeros((senders, senders), weights.dtype).at[offer.place].set(weights)
    return tree.take(task.keep_edges(whole), offer.place)


def choose_from_all(task: Task, choose: Choice, sizes: bool = False) -> Algorithm:
    """A method whose clients train their own models, and get those of the whole cohort to choose.

    State: memory = each client's model; server = nothing.

    Args:
      task: the problem and its clients.
      choose: what a client makes of the models.
      sizes: clients learn how many examples each sender owns.

    Example:
      >>> choose = lambda key, offer, cohort: (offer.trained, Report(weights=jnp.eye(4)))
      >>> _, info = one_round(choose_from_all(task, choose))
      >>> info.weights.shape
      (4, 4)
    """
    fit = task.trainer(data_loss(task.problem))

    def client(
        key: PRNGKey, memory: Params, down: Down, cohort: Cohort
    ) -> Turn[tuple[Params, Params]]:
        trained, up, report = train_and_send(fit, key, memory, None, cohort)
        return (memory, trained), up, report

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        common = (uploads.received, uploads.reported, uploads.sizes if sizes else ())
        return Outcome(state, Down(common, each=jnp.arange(uploads.ids.size)))

    def take(
        key: PRNGKey, memory: tuple[Params, Params], down: Down, cohort: Cohort
    ) -> Turn[Params]:
        start, trained = memory
        models, reported, counts = down.common
        offer = Offer(start, trained, models, reported, counts, down.each)
        model, report = choose(key, offer, cohort)
        return model, None, report

    exchanges = (Exchange(client, server), Exchange(take))
    wire = Wire(init_own(task.problem), exchanges, deploy_memory)
    return compose(task, wire, validates=True)
