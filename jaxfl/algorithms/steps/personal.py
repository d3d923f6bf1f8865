"""The models that clients deploy, also clients that were never seen or have been away."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxfl.core import tree
from jaxfl.core.types import Cohort, Params, PRNGKey, State


class Personal(NamedTuple):
    """A personal model for each client, and who has one already."""

    # [C, ...]
    model: Params
    # [C] whether the client has taken part in a round and reported
    seen: Bool[Array, "*c"]


def start_personal(model: Params, clients: int) -> Personal:
    """The state of clients that have not taken part yet.

    Example:
      >>> clients = start_personal(jnp.array([1.0, 2.0]), clients=3)
      >>> clients.model.shape, clients.seen.tolist()
      ((3, 2), [False, False, False])
    """
    return Personal(tree.broadcast(model, clients), jnp.zeros(clients, bool))


def personal_models(clients: Personal, server: Params) -> Params:
    """The personal models [M, ...]; a client that was never seen has the server's current model.

    Args:
      clients: of M clients.
      server: one model.

    Example:
      >>> clients = Personal(jnp.array([[1.0], [2.0]]), seen=jnp.array([True, False]))
      >>> personal_models(clients, jnp.array([90.0])).tolist()
      [[1.0], [90.0]]
    """
    others = tree.broadcast(server, clients.seen.size)
    return tree.choose(clients.seen, clients.model, others)


def own_models(state: State, cohort: Cohort) -> Params:
    """What `Algorithm.models` returns where the state of a client is the model that it deploys.

    Example:
      >>> own_models(State(jnp.array([[1.0], [2.0], [3.0], [4.0]]), ()), cohort).tolist()
      [[1.0], [2.0], [3.0], [4.0]]
    """
    return tree.take(state.clients, cohort.ids)


def models_in_state(state: State, cohort: Cohort) -> Params:
    """What `Algorithm.models` returns where a client deploys the `model` of its state.

    Example:
      >>> clients = Personal(jnp.array([[1.0], [2.0], [3.0], [4.0]]), seen=jnp.ones(4, bool))
      >>> models_in_state(State(clients, ()), cohort).tolist()
      [[1.0], [2.0], [3.0], [4.0]]
    """
    return tree.take(state.clients.model, cohort.ids)


def personal_or_global(state: State, cohort: Cohort) -> Params:
    """What `Algorithm.models` returns for a state of `Personal` and the global model.

    Example:
      >>> clients = Personal(jnp.array([[1.0], [2.0], [3.0], [4.0]]), seen=jnp.arange(4) > 0)
      >>> personal_or_global(State(clients, jnp.array([90.0])), cohort).tolist()
      [[90.0], [2.0], [3.0], [4.0]]
    """
    return personal_models(tree.take(state.clients, cohort.ids), state.server)


def deploy_key() -> PRNGKey:
    """The key with which a client chooses or takes a step before it deploys a model.

    It is always the same: only models that draw random numbers in training, such as those of
    dropout, need it.

    Example:
      >>> bool(deploy_key() == deploy_key())
      True
    """
    return jax.random.key(0)
