"""A round, composed of the messages of a method: the one place where an uplink is applied.

What is sent, how many floats it has, and whose upload is lost follow from the messages.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from jaxfl.core import tree
from jaxfl.core.edges import is_sparse
from jaxfl.core.errors import check, warn
from jaxfl.core.messages import (
    Clients,
    Down,
    Outcome,
    Report,
    ServerState,
    Up,
    Uploads,
    Wire,
    floats,
    models_of,
    ups_of,
)
from jaxfl.core.streams import Stream, check_key, stream
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State, Task
from jaxfl.kernels.mixing import keep_own, keep_part

# The streams of the uplink: one for each `Up` of a round.
UPLOADS: tuple[Stream, ...] = ("upload", "second_upload")


def compose(task: Task, wire: Wire, apply: Callable | None = None, **others: Any) -> Algorithm:
    """The algorithm whose rounds are the exchanges of a method, one after the other.

    Args:
      task: has the uplink.
      wire: the method.
      apply: (params, x [B]) -> predictions [B]; None: that of the task's problem.
      others: further fields of the `Algorithm`.

    Raises:
      InputError: an exchange without a server is not the last, or the clients of a round send more
        than two messages.

    Example:
      >>> algorithm = compose(task, jaxfl.algorithms.fedavg(task).wire)
      >>> one_round(algorithm)[1].up.shape
      (4,)
    """
    check(
        all(exchange.server is not None for exchange in wire.exchanges[:-1]),
        "an exchange without a server ends a round: expected none after it",
    )

    def init(key: PRNGKey, train: Dataset) -> State:
        check_key(key)
        memory, state = wire.init(key, train)
        return State(Clients(memory, state.record), state.server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        check_key(key)
        memory, record = state.clients
        known = ServerState(state.server, record)
        down = wire.download(known)
        trips = []
        number = 0  # of messages so far
        for exchange in wire.exchanges:
            memory, ups, report = exchange.client(key, memory, down, cohort._replace(lost=None))
            if exchange.server is None:
                trips.append(Trip(down, (), report))
                break
            sent = ups_of(ups)
            check(
                number + len(sent) <= len(UPLOADS),
                f"the clients of a round send more than {len(UPLOADS)} messages: join some in one",
            )
            uploads = tuple(
                receive(task, stream(key, UPLOADS[number + place]), up, cohort)
                for place, up in enumerate(sent)
            )
            number += len(sent)
            outcome = exchange.server(key, known, uploads[0] if isinstance(ups, Up) else uploads)
            reported = jnp.stack([each.reported for each in uploads]).all(axis=0)
            trips.append(Trip(down, sent, report, reported, outcome))
            known, down = outcome.state, outcome.reply._replace(counted=reported)
        return State(Clients(memory, known.record), known.server), info_of(trips, cohort.ids.size)

    def models(state: State, cohort: Cohort) -> Params:
        memory, record = tree.take(state.clients, cohort.ids)
        return models_of(wire, memory, ServerState(state.server, record), cohort)

    # So that `messages.wire_of` knows a round that another one has replaced.
    for function in (init, round):
        vars(function)["wire"] = wire
    apply = task.problem.apply if apply is None else apply
    return Algorithm(init, round, models, apply, wire=wire, **others)


class Trip(NamedTuple):
    """One exchange of a round, as it went."""

    down: Down
    # what the clients sent; nothing if the exchange has no server
    ups: tuple[Up, ...]
    report: Report
    # [M] whose messages arrived and are finite; None: the exchange has no server
    reported: Bool[Array, "m"] | None = None
    outcome: Outcome | None = None


def info_of(trips: list[Trip], clients: int) -> Info:
    """The `Info` of a round, from its exchanges.

    Args:
      trips: of the round, in order.
      clients: M.

    Example:
      >>> trip = Trip(Down(jnp.zeros(3)), (), Report(loss=jnp.ones(2), batches=5))
      >>> info = info_of([trip], clients=2)
      >>> info.down.tolist(), info.batches.tolist(), info.reported.tolist()
      ([3, 3], [5, 5], [True, True])
    """
    none = jnp.zeros(clients, jnp.int32)
    # A client has reported if all of its messages arrived.
    reported = jnp.ones(clients, bool)
    for trip in trips:
        reported = reported if trip.reported is None else reported & trip.reported
    info = Info(none, None, none, none, none, reported)
    reports = [trip.report for trip in trips]
    copies_down = 1
    for down, ups, report, _, outcome in trips:
        info = info._replace(
            down=info.down + of_copies(count(floats(down, clients)), copies_down),
            batches=info.batches + report.batches,
            weights=info.weights if report.weights is None else report.weights,
        )
        if report.loss is not None:
            info = info._replace(loss=report.loss, trained=report.trained)
        if outcome is None:
            break
        copies_up, copies_down = outcome.copies or (1, 1)
        sent = of_copies(sum(count(floats(up, clients)) for up in ups), copies_up)
        more = outcome.joining
        info = info._replace(
            up=info.up + sent + more.up,
            down=info.down + more.down,
            batches=info.batches + more.batches,
            weights=info.weights if outcome.weights is None else outcome.weights,
            metrics=info.metrics | outcome.metrics,
        )
    for report in reports:
        # What the clients took of what the server mixed for them.
        if report.accepted is not None:
            own = partial(keep_own, accepted=report.accepted)
            weights = jax.tree.map(own, info.weights, is_leaf=is_sparse)
            info = info._replace(weights=weights)
        for part, fractions in report.fractions.items():
            rows = keep_part(info.weights[part], jnp.where(info.reported, fractions, 0.0))
            info = info._replace(weights=info.weights | {part: rows})
        for name, values in report.metrics.items():
            value = values.mean(where=info.reported) if values.ndim else values
            info = info._replace(metrics=info.metrics | {name: value})
    return info


# The largest number of floats of a message: four of them fit into an int32.
MOST = 2**29


def count(floats: int | Array) -> int | Array:
    """The number of floats of a message, as the `Info` of a round counts them.

    A message of more than `MOST` floats counts as `MOST`, with a warning.

    Example:
      >>> count(90)
      90
    """
    if isinstance(floats, int) and floats > MOST:
        warn(f"a message of {floats:,} floats is counted as {MOST:,}: counts are 32-bit integers")
        return MOST
    return floats


def whole(floats: int | Array) -> int | Array:
    """Numbers of floats as whole numbers, where they are sums of parts of messages.

    Example:
      >>> whole(jnp.array([44.9999])).tolist()
      [45]
    """
    if isinstance(floats, int) or not jnp.issubdtype(floats.dtype, jnp.floating):
        return floats
    return jnp.round(floats).astype(int)


def of_copies(floats: int | Array, copies: int | Array) -> int | Array:
    """The number of floats of copies of a message, to several peers; `MOST` if they are more.

    Args:
      floats: of the message.
      copies: of it, or [M] for each client.

    Example:
      >>> of_copies(90, jnp.array([2, 1_000_000_000])).tolist()
      [180, 536870912]
    """
    if isinstance(copies, int):
        return whole(floats * copies)
    # As floats the product does not overflow.
    fits = copies.astype(float) * floats <= MOST
    return jnp.where(fits, whole(floats * jnp.where(fits, copies, 0)), MOST)


def receive(task: Task, key: PRNGKey, up: Up, cohort: Cohort) -> Uploads:
    """What the server receives of a message of a cohort.

    Args:
      task: has the uplink.
      key: of the upload's stream.
      up: the message. If there is nothing in it, all clients have reported.
      cohort: the clients; it says whose uploads are lost.

    Example:
      >>> up = Up(after=jnp.array([[1.0], [2.0], [3.0], [jnp.nan]]), before=jnp.zeros((4, 1)))
      >>> uploads = receive(task, jax.random.key(0), up, cohort)
      >>> uploads.received.tolist(), uploads.reported.tolist()
      ([[1.0], [2.0], [3.0], [0.0]], [True, True, True, False])
    """
    received, reported = up.after, jnp.ones(cohort.ids.size, bool)
    if cohort.lost is not None and jax.tree.leaves(up.plain):
        reported = ~cohort.lost
    if jax.tree.leaves(up.after):
        received, reported = task.upload(key, up.before, up.after, cohort.ids, cohort.lost)
    return Uploads(cohort.ids, cohort.sizes, reported, received, up.before, up.plain)
