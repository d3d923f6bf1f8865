"""Messages over the edges of a network: which arrive, how old they are, and what they have."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from jaxfl.core import tree
from jaxfl.core.edges import Neighbours, SparseRows
from jaxfl.core.messages import Down, Outcome, ServerState, Uploads
from jaxfl.core.streams import client_keys, stream
from jaxfl.core.types import Params, PRNGKey
from jaxfl.graphs.links import Links
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.network import (
    among,
    for_info,
    for_mixing,
    from_others,
    mix_parts,
    to_others,
)


class Past(NamedTuple):
    """What each client sent before; `ServerState.record` of a network with delays."""

    # [M, d, ...] its last models, the newest first
    models: Params
    # [M] how many times it has sent
    count: Int[Array, "*m"]


class Delivery(NamedTuple):
    """The messages of a round."""

    links: Links
    # of the round
    key: PRNGKey
    uploads: Uploads
    # who sends to whom
    sent: Neighbours
    # the same among the clients that have reported
    network: Neighbours
    # [M, k] whether the message of each edge of that network arrives in this round
    arrived: Bool[Array, "m k"]
    # of the cohort; nothing without delays
    past: Past | tuple[()]


def init_past(links: Links, models: Params) -> Past | tuple[()]:
    """The record of a network before the first round; nothing without delays.

    Args:
      links: the conditions of the edges.
      models: of all clients [C, ...].

    Example:
      >>> from jaxfl.graphs.links import links_of
      >>> init_past(links_of(delay=2), jnp.zeros((4, 3))).models.shape
      (4, 2, 3)
    """
    if links.longest == 0:
        return ()
    clients = jax.tree.leaves(models)[0].shape[0]

    def zeros(x: Array) -> Array:
        return jnp.zeros((clients, links.longest, *x.shape[1:]), x.dtype)

    return Past(jax.tree.map(zeros, models), jnp.zeros(clients, jnp.int32))


def deliver(
    links: Links,
    key: PRNGKey,
    uploads: Uploads,
    sent: Neighbours,
    past: Past | tuple[()] = (),
) -> Delivery:
    """Sends a message over each edge.

    One does not arrive if it is lost, if its sender or receiver has not reported, or if the sender
    has sent none that is old enough.

    Args:
      links: the conditions of the edges.
      key: of the round. A draw depends on it and on the ids of receiver and sender.
      uploads: of the round, from M clients.
      sent: who sends to whom.
      past: of the cohort.

    Example:
      >>> from jaxfl.graphs.links import links_of
      >>> x, ids = jnp.zeros((2, 3)), jnp.arange(2)
      >>> uploads = Uploads(ids, ids, jnp.array([True, True]), x, x)
      >>> both = Neighbours(jnp.array([[1], [0]]), jnp.array([[True], [True]]))
      >>> deliver(links_of(loss=1.0), jax.random.key(0), uploads, both).arrived.tolist()
      [[False], [False]]
    """
    network = among(sent, uploads.reported)
    arrived = network.there
    receivers, senders = uploads.ids[:, None], uploads.ids[sent.senders]
    if links.is_lossy:
        drawn = jax.vmap(jax.vmap(jax.random.uniform))(_edge_keys("edge_loss", key, uploads, sent))
        arrived &= drawn >= links.loss(receivers, senders)
    if isinstance(past, Past):
        arrived &= past.count[sent.senders] >= links.delay(receivers, senders)
    return Delivery(links, key, uploads, sent, network, arrived, past)


def mix_delivered(delivery: Delivery, rows: SparseRows, state: ServerState) -> Outcome:
    """The outcome of a round in which clients mix the models that they received.

    Args:
      delivery: the messages.
      rows: the weights [M, k + 1]: those of the edges in the order of the network, and the
        client's own.
      state: of the server after the round, but for the record.

    Returns:
      Each client is offered its mixture. Of the information the weights are `rows`, and a message
      with delay counts in the round in which it arrives.

    Example:
      >>> from jaxfl.graphs.links import links_of
      >>> from jaxfl.kernels.network import mean_rows
      >>> x, ids = jnp.array([[2.0], [4.0]]), jnp.arange(2)
      >>> uploads = Uploads(ids, ids, jnp.array([True, True]), x, x)
      >>> one_way = Neighbours(jnp.array([[1], [0]]), jnp.array([[True], [False]]))
      >>> delivery = deliver(links_of(), jax.random.key(0), uploads, one_way)
      >>> rows = mean_rows(delivery.network, delivery.arrived)
      >>> mix_delivered(delivery, rows, ServerState()).reply.each.tolist()
      [[3.0], [4.0]]
    """
    links, past, sent = delivery.links, delivery.past, delivery.sent
    models = delivery.uploads.received
    receivers = delivery.uploads.ids[:, None]
    senders = delivery.uploads.ids[sent.senders]
    rows_of_sent, all_sent = rows, models
    if isinstance(past, Past):
        # A row for each model of client 0, the newest first, then for those of client 1, ...
        newest = jax.tree.map(
            lambda x, p: jnp.concatenate([x[:, None], p], axis=1), models, past.models
        )
        all_sent = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), newest)
        delays = jnp.pad(links.delay(receivers, senders), ((0, 0), (0, 1)))
        rows_of_sent = rows._replace(columns=rows.columns * (1 + links.longest) + delays)
        reported = delivery.uploads.reported
        kept = jax.tree.map(lambda x: x[:, :-1], newest)
        past = Past(tree.choose(reported, kept, past.models), past.count + reported)
    parts = None
    if links.is_partial:
        keys = _edge_keys("edge_part", delivery.key, delivery.uploads, sent)
        part = links.part(receivers, senders)
        mixed, numbers = mix_parts(rows_of_sent, all_sent, models, keys, part)
        parts = numbers / (tree.size(models) // len(receivers))
    elif isinstance(past, Past):
        mixed = mix(rows_of_sent, all_sent)
    else:
        mixed = mix(for_mixing(rows), models)
    return Outcome(
        state._replace(record=past),
        Down(each=mixed),
        for_info(rows),
        copies=copies_of(delivery, parts),
    )


def copies_of(delivery: Delivery, parts: Float[Array, "m k"] | None = None) -> tuple[Array, Array]:
    """`Outcome.copies`: how many messages each client sends, and how many it receives ([M], [M]).

    What is lost counts as sent.

    Args:
      delivery: the messages.
      parts: which part of a model each message has; None: the whole.

    Example:
      >>> from jaxfl.graphs.links import links_of
      >>> x, ids = jnp.zeros((2, 3)), jnp.arange(2)
      >>> uploads = Uploads(ids, ids, jnp.array([True, True]), x, x)
      >>> both = Neighbours(jnp.array([[1], [0]]), jnp.array([[True], [True]]))
      >>> delivery = deliver(links_of(loss=1.0), jax.random.key(0), uploads, both)
      >>> sent, received = copies_of(delivery)
      >>> sent.tolist(), received.tolist()
      ([1, 1], [0, 0])
    """
    received = delivery.sent._replace(there=delivery.arrived)
    return to_others(delivery.sent, parts), from_others(received, parts)


def _edge_keys(
    name: Literal["edge_loss", "edge_part"], key: PRNGKey, uploads: Uploads, sent: Neighbours
) -> Key[Array, "m k"]:
    """A key for each edge, by the ids of its receiver and its sender."""
    of_receivers = client_keys(stream(key, name), uploads.ids)
    return jax.vmap(client_keys)(of_receivers, uploads.ids[sent.senders])
