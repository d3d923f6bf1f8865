"""The models that clients deploy, also clients that were never seen or have been away."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxfl.core import tree
from jaxfl.core.types import Params, PRNGKey


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


def deploy_key() -> PRNGKey:
    """The key with which a client chooses or takes a step before it deploys a model.

    It is always the same: only models that draw random numbers in training, such as those of
    dropout, need it.

    Example:
      >>> bool(deploy_key() == deploy_key())
      True
    """
    return jax.random.key(0)
