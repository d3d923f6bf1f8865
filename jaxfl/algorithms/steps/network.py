"""Messages over the edges of a network: which arrive, how old they are, and what they have."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core import tree
from jaxfl.core.messages import Down, Outcome, ServerState, Uploads
from jaxfl.core.streams import client_keys, stream
from jaxfl.core.types import Neighbours, Params, PRNGKey, SparseRows
from jaxfl.graphs.links import Links
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.network import for_info, for_mixing, from_others, mix_parts, to_others


class Past(NamedTuple):
    """What each client sent before; `ServerState.record` of a network with delays."""

    # [M, d, ...] its last models, the newest first
    models: Params
    # [M] how many times it has sent
    count: Int[Array, "*m"]


def init_past(links: Links | None, models: Params) -> Past | tuple[()]:
    """The record of a network before the first round; nothing without delays.

    Args:
      links: the conditions of the edges.
      models: of all clients [C, ...].

    Example:
      >>> from jaxfl.graphs.links import links_of
      >>> init_past(links_of(delay=2), jnp.zeros((4, 3))).models.shape
      (4, 2, 3)
    """
    if links is None or links.longest == 0:
        return ()
    clients = jax.tree.leaves(models)[0].shape[0]

    def zeros(x: Array) -> Array:
        return jnp.zeros((clients, links.longest, *x.shape[1:]), x.dtype)

    return Past(jax.tree.map(zeros, models), jnp.zeros(clients, jnp.int32))


def arrivals(
    links: Links | None,
    key: PRNGKey,
    uploads: Uploads,
    neighbours: Neighbours,
    past: Past | tuple[()] = (),
) -> Bool[Array, "m k"] | None:
    """Whether the message of each edge arrives in this round; None: all do.

    A message is lost, or the sender has not sent one that is old enough.

    Args:
      links: the conditions of the edges.
      key: of the round. A draw depends on it and on the ids of receiver and sender.
      uploads: of the round.
      neighbours: the network of the round.
      past: of the cohort.

    Example:
      >>> arrivals(None, jax.random.key(0), None, None) is None
      True
    """
    if links is None:
        return None
    receivers, senders = uploads.ids[:, None], uploads.ids[neighbours.senders]
    drawn = jax.vmap(jax.vmap(jax.random.uniform))(_edge_keys(key, uploads, neighbours, 0))
    arrived = drawn >= links.loss(receivers, senders)
    if isinstance(past, Past):
        arrived &= past.count[neighbours.senders] >= links.delay(receivers, senders)
    return arrived


def over_network(
    links: Links | None,
    key: PRNGKey,
    rows: SparseRows,
    neighbours: Neighbours,
    arrived: Bool[Array, "m k"] | None,
    uploads: Uploads,
    state: ServerState,
) -> Outcome:
    """The outcome of a round in which clients mix the models that they received.

    A message with delay counts in the round in which it arrives.

    Args:
      links: the conditions of the edges.
      key: of the round.
      rows: the weights [M, k + 1], those of edges in the order of the neighbours, and the own one.
      neighbours: the network of the round.
      arrived: of `arrivals`.
      uploads: of the round.
      state: whose record is that of `init_past`.
    """
    own, past = uploads.received, state.record
    if links is None:
        mixed = mix(for_mixing(rows), own)
        copies = copies_of(neighbours, arrived)
        return Outcome(state, Down(each=mixed), for_info(rows), copies=copies)
    receivers, senders = uploads.ids[:, None], uploads.ids[neighbours.senders]
    sent, columns = own, rows.columns
    if isinstance(past, Past):
        # Row i of the models that are sent: those of client i, the newest first.
        newest = jax.tree.map(
            lambda x, p: jnp.concatenate([x[:, None], p], axis=1), own, past.models
        )
        sent = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), newest)
        delays = jnp.pad(links.delay(receivers, senders), ((0, 0), (0, 1)))
        columns = columns * (1 + links.longest) + delays
        reported = uploads.reported
        kept = jax.tree.map(lambda x: x[:, :-1], newest)
        past = Past(tree.choose(reported, kept, past.models), past.count + reported)
    dated = rows._replace(columns=columns)
    if links.is_partial:
        keys = _edge_keys(key, uploads, neighbours, 1)
        mixed, numbers = mix_parts(dated, sent, own, keys, links.part(receivers, senders))
        parts = numbers / (tree.size(own) // len(uploads.ids))
        copies = copies_of(neighbours, arrived, parts)
    else:
        mixed = mix(dated if isinstance(past, Past) else for_mixing(rows), sent)
        copies = copies_of(neighbours, arrived)
    return Outcome(state._replace(record=past), Down(each=mixed), for_info(rows), copies=copies)


def copies_of(
    neighbours: Neighbours,
    arrived: Bool[Array, "m k"] | None,
    parts: Float[Array, "m k"] | None = None,
) -> tuple[Array, Array]:
    """`Outcome.copies`: how many messages each client sends, and how many it receives ([M], [M]).

    Args:
      neighbours: the network of the round.
      arrived: of `arrivals`. What is lost counts as sent.
      parts: which part of a model each message has; None: the whole.

    Example:
      >>> neighbours = Neighbours(jnp.array([[1], [0]]), jnp.array([[True], [True]]))
      >>> sent, received = copies_of(neighbours, jnp.array([[True], [False]]))
      >>> sent.tolist(), received.tolist()
      ([1, 1], [1, 0])
    """
    there = neighbours.there
    met = neighbours if arrived is None else neighbours._replace(there=there & arrived)
    return to_others(neighbours, parts), from_others(met, parts)


def _edge_keys(key: PRNGKey, uploads: Uploads, neighbours: Neighbours, use: int) -> Array:
    """A key for each edge [M, k], by the ids of its receiver and its sender.

    Args:
      key: of the round.
      uploads: of the round.
      neighbours: the network.
      use: 0 for losses, 1 for parts.
    """
    of_use = jax.random.fold_in(stream(key, "edges"), use)
    of_receivers = client_keys(of_use, uploads.ids)
    return jax.vmap(client_keys)(of_receivers, uploads.ids[neighbours.senders])
