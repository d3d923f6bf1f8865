"""A round, composed of the messages of a method: the one place where an uplink is applied.

What is sent, how many floats it has, and whose upload is lost follow from the messages.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfl.core import tree
from jaxfl.core.messages import (
    Clients,
    ServerState,
    Up,
    Uploads,
    Wire,
    floats,
    ups_of,
)
from jaxfl.core.streams import Stream, stream
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

    Example:
      >>> server = lambda key, state, uploads: Outcome(ServerState(tree.mean(uploads.received)))
      >>> algorithm = compose(task, jaxfl.algorithms.fedavg(task).wire)
      >>> one_round(algorithm)[1].up.shape
      (4,)
    """

    def init(key: PRNGKey, train: Dataset) -> State:
        memory, state = wire.init(key, train)
        return State(Clients(memory, state.record), state.server)

    def round(key: PRNGKey, state: State, cohort: Cohort) -> tuple[State, Info]:
        clients = cohort.ids.size
        memory, record = state.clients
        known = ServerState(state.server, record)
        streams = iter(UPLOADS)
        none = jnp.zeros(clients, jnp.int32)
        info = Info(none, None, none, none, none, jnp.ones(clients, bool))
        down, copies_down = wire.download(known), 1
        accepted, taken, measured = None, {}, {}
        for number, exchange in enumerate(wire.exchanges):
            info = info._replace(down=info.down + floats(down, clients) * copies_down)
            memory, ups, report = exchange.client(key, memory, down, cohort._replace(lost=None))
            info = info._replace(batches=info.batches + report.batches)
            taken, measured = taken | report.taken, measured | report.metrics
            if report.loss is not None:
                info = info._replace(loss=report.loss, trained=report.trained)
            if report.accepted is not None:
                accepted = report.accepted
            if exchange.server is None:
                break
            uploads = tuple(
                upload(task, stream(key, next(streams)), up, cohort) for up in ups_of(ups)
            )
            reported = jnp.stack([each.reported for each in uploads]).all(axis=0)
            if number == 0:
                info = info._replace(reported=reported)
            outcome = exchange.server(key, known, uploads[0] if isinstance(ups, Up) else uploads)
            copies_up, copies_down = outcome.copies or (1, 1)
            sent = sum(floats(up, clients) for up in ups_of(ups)) * copies_up
            if outcome.joining is not None:
                more, batches = outcome.joining
                sent, info = sent + more, info._replace(batches=info.batches + batches)
            info = info._replace(
                up=info.up + sent,
                weights=info.weights if outcome.weights is None else outcome.weights,
                metrics=info.metrics | outcome.metrics,
            )
            known, down = outcome.state, outcome.reply._replace(counted=reported)
        if accepted is not None:
            info = info._replace(weights=keep_own(info.weights, accepted))
        for part, fractions in taken.items():
            rows = keep_part(info.weights[part], jnp.where(info.reported, fractions, 0.0))
            info = info._replace(weights=info.weights | {part: rows})
        for name, values in measured.items():
            value = values.mean(where=info.reported) if values.ndim else values
            info = info._replace(metrics=info.metrics | {name: value})
        return State(Clients(memory, known.record), known.server), info

    def models(state: State, cohort: Cohort) -> Params:
        memory, record = tree.take(state.clients, cohort.ids)
        return wire.deploy(memory, wire.download(ServerState(state.server, record)), cohort)

    apply = task.problem.apply if apply is None else apply
    return Algorithm(init, round, models, apply, wire=wire, **others)


def upload(task: Task, key: PRNGKey, up: Up, cohort: Cohort) -> Uploads:
    """What the server receives of a message of a cohort.

    Args:
      task: has the uplink.
      key: of the upload's stream.
      up: the message. If nothing of it goes through the uplink, all clients have reported.
      cohort: the clients; it says whose uploads are lost.

    Example:
      >>> up = Up(after=jnp.array([[1.0], [2.0], [3.0], [jnp.nan]]), before=jnp.zeros((4, 1)))
      >>> uploads = upload(task, jax.random.key(0), up, cohort)
      >>> uploads.received.tolist(), uploads.reported.tolist()
      ([[1.0], [2.0], [3.0], [0.0]], [True, True, True, False])
    """
    received, reported = (), jnp.ones(cohort.ids.size, bool)
    if jax.tree.leaves(up.after):
        received, reported = task.upload(key, up.before, up.after, cohort.ids, cohort.lost)
    return Uploads(cohort.ids, cohort.sizes, reported, received, up.before, up.plain)
