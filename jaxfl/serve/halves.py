"""The two halves of an exchange, each with its part of the uplink, as pure functions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxfl.algorithms.steps.composition import UPLOADS
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Down, Exchange, Outcome, Report, ServerState, Up, Uploads, ups_of
from jaxfl.core.streams import stream
from jaxfl.core.types import Cohort, Info, Params, PRNGKey, State, Task
from jaxfl.simulation.rounds import keep_finite
from jaxfl.training.channel import Channel, nothing_of

# (key, memory [M], Down, cohort, secret) -> (memory [M], Ups as they are sent, Report)
ClientStep = Callable[[PRNGKey, Any, Down, Cohort, PRNGKey | None], tuple[Any, tuple, Report]]
# (key, ServerState, Ups as they arrive, fills, ids [M], sizes [M], arrived [M])
# -> (Outcome, reported [M])
DefendedStep = Callable[..., tuple[Outcome, Bool[Array, "m"]]]


def channel_of(task: Task) -> Channel:
    """The two halves of a task's upload.

    Raises:
      InputError: the upload is a function without halves.

    Example:
      >>> channel_of(task).uplink.__name__
      'faithful'
    """
    upload = task.upload
    if not isinstance(upload, Channel):
        raise InputError(
            "the task's upload is one function for both sides: make it by Channel(uplink, "
            "defence), whose first half the clients apply and whose second half the server"
        )
    return upload


def client_step(channel: Channel, exchange: Exchange, first: int) -> ClientStep:
    """A client's half of an exchange: its work, and its half of the uplink.

    Args:
      channel: of the task.
      exchange: of a method.
      first: how many messages clients have sent in the exchanges of the round before.

    Returns:
      step(key of the round, memory [M], Down, cohort, secret) -> (memory [M], Ups as they are sent,
      Report). The noise of the uplink is drawn with the key of the round, which the server knows,
      or with the secret if there is one.

    Example:
      >>> wire = jaxfl.algorithms.fedavg(task).wire
      >>> step = client_step(task.upload, wire.exchanges[0], 0)
      >>> memory, state = wire.init(jax.random.key(0), cohort.train)
      >>> _, ups, _ = step(jax.random.key(0), memory, wire.download(state), cohort, None)
      >>> len(ups), len(jax.tree.leaves(ups[0].after)[0])
      (1, 4)
    """

    def step(
        key: PRNGKey, memory: Any, down: Down, cohort: Cohort, secret: PRNGKey | None
    ) -> tuple[Any, tuple, Report]:
        memory, ups, report = exchange.client(key, memory, down, cohort)
        noise = key if secret is None else secret

        def send(up: Up, place: int) -> Up:
            if not jax.tree.leaves(up.after):
                return up
            key_up = stream(noise, UPLOADS[place])
            return up._replace(after=channel.uplink(key_up, up.before, up.after, cohort.ids))

        sent = tuple(send(up, first + place) for place, up in enumerate(ups_of(ups)))
        return memory, sent, report

    return step


def defended_step(channel: Channel, serve: Callable, first: int, single: bool) -> DefendedStep:
    """The server's half of an exchange: its defence, and its step.

    Args:
      channel: of the task.
      serve: `Exchange.server`.
      first: as in `client_step`.
      single: whether the step takes one `Uploads`, not a tuple of them.

    Returns:
      step(key of the round, ServerState [M], Ups [M], fills, ids [M], sizes [M], arrived [M]) ->
      (Outcome, reported [M]). The rows of what has not arrived may hold any number. `fills` has for
      each of the Ups what stands in the place of what has not arrived, as its `before` does.

    Example:
      >>> serve = jaxfl.algorithms.fedavg(task).wire.exchanges[0].server
      >>> step = defended_step(task.upload, serve, 0, single=True)
      >>> up = Up(jnp.array([[1.0], [5.0]]), jnp.zeros((2, 1)))
      >>> arrived = jnp.array([True, False])
      >>> sent = ((up,), (up.before,), jnp.arange(2), jnp.array([9, 0]), arrived)
      >>> step(jax.random.key(0), ServerState(), *sent)[0].state.server.tolist()
      [1.0]
    """

    def step(
        key: PRNGKey,
        known: ServerState,
        ups: tuple[Up, ...],
        fills: tuple[Params, ...],
        ids: Int[Array, "m"],
        sizes: Int[Array, "m"],
        arrived: Bool[Array, "m"],
    ) -> tuple[Outcome, Bool[Array, "m"]]:
        def receive(up: Up, fill: Params, place: int) -> Uploads:
            received, reported = up.after, arrived
            if jax.tree.leaves(up.after):
                rows = tree.choose(arrived, up.after, nothing_of(up.after))
                key_up = stream(key, UPLOADS[place])
                defended, sound = channel.defended(key_up, up.before, rows, ids)
                reported = sound & arrived
                received = tree.choose(reported, defended, fill)
            return Uploads(ids, sizes, reported, received, up.before, up.plain)

        uploads = tuple(
            receive(up, fill, first + place)
            for place, (up, fill) in enumerate(zip(ups, fills, strict=True))
        )
        reported = jnp.stack([each.reported for each in uploads]).all(axis=0)
        return serve(key, known, uploads[0] if single else uploads), reported

    return step


def settle(
    old: ServerState, new: ServerState, reported: Bool[Array, "m"]
) -> tuple[ServerState, Bool[Array, "m"]]:
    """What the server keeps of a round: as `rounds.keep_finite`, for its half of the state.

    Args:
      old: before the round, with the records of the cohort [M, ...].
      new: after it.
      reported: who has reported in all exchanges [M].

    Example:
      >>> old, new = ServerState(jnp.zeros(1)), ServerState(jnp.array([jnp.nan]))
      >>> state, reported = settle(old, new, jnp.ones(2, bool))
      >>> state.server.tolist(), reported.tolist()
      ([0.0], [False, False])
    """
    zeros = jnp.zeros(reported.size)
    info = Info(zeros, None, zeros, zeros, zeros, reported)
    state, info = keep_finite(State(old.record, old.server), State(new.record, new.server), info)
    return ServerState(state.server, state.clients), info.reported
