"""The form of a method's messages: shapes, and who has to send what, found by tracing it once."""

import hashlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.messages import Down, Exchange, ServerState, Up, Wire, ups_of
from jaxfl.core.types import Cohort, Dataset, Params
from jaxfl.serve.halves import defended_step
from jaxfl.training.channel import Channel

# Who knows where an update starts from: the server computes it from what it has sent, the client
# has to tell it, or nobody asks for it.
Start = Literal["server", "client", "nobody"]


class ExchangeForm(NamedTuple):
    """The form of an exchange. All shapes are those of one client, [1, ...]."""

    # what clients keep before it and after it, which need not have the same form within a round
    memory: PyTree
    memory_after: PyTree
    down: Down
    ups: tuple[Up, ...]
    # whether the server's step takes one `Uploads`, not a tuple of them
    single: bool
    # how many messages clients have sent in the exchanges before
    first: int
    # of each message
    starts: tuple[Start, ...]
    # of the server's step: two methods, or two values of an option, differ in it
    fingerprint: str = ""

    @property
    def sent(self) -> tuple[Up, ...]:
        """What a client sends: without the starts that the server knows or does not need."""
        return tuple(
            up if start == "client" else up._replace(before=(), floats=None)
            for up, start in zip(self.ups, self.starts, strict=True)
        )


class Form(NamedTuple):
    """The form of a method's messages."""

    clients: int  # C
    rows: int  # M
    # [1, ...] of one client
    memory: PyTree
    # with the records of all clients [C, ...]
    state: ServerState
    # the exchanges with a step of the server
    exchanges: tuple[ExchangeForm, ...]
    # [1, ...] which clients take in a last step without the server; None: there is none
    reply: Down | None
    # [1, ...] which clients get that deploy; None: they need no message to deploy a model
    release: Down | None


def examples_of(example: tuple, clients: int) -> Dataset:
    """Two examples of zeros for each client [C, 2, ...], which stand for the data of real clients.

    Args:
      example: (x [*feature], y [*target]), whose values are not read.
      clients: C.

    Example:
      >>> examples_of((np.zeros((8, 8)), np.int32(0)), 3).x.shape
      (3, 2, 8, 8)
    """

    def zeros(one: Any) -> Array:
        return jnp.zeros((clients, 2, *np.shape(one)), jnp.asarray(one).dtype)

    x, y = jax.tree.map(zeros, example)
    return Dataset(x, y, jnp.ones((clients, 2), bool))


def form_of(
    wire: Wire, channel: Channel, example: tuple, clients: int, rows: int, name: str = "the method"
) -> Form:
    """The form of a method's messages.

    Args:
      wire: the method.
      channel: of the task.
      example: (x [*feature], y [*target]), whose values are not read.
      clients: C.
      rows: M, the size of a cohort.
      name: of the method, for messages.

    Raises:
      InputError: the method looks at the data of all clients before the first round, or what
        clients or the server keep has another form after a round than before it.

    Example:
      >>> wire = jaxfl.algorithms.fedavg(task).wire
      >>> form = form_of(wire, task.upload, (np.zeros(8, np.float32), np.int32(0)), 4, 2)
      >>> form.exchanges[0].starts, form.reply
      (('server',), None)
    """
    key = jax.eval_shape(jax.random.key, 0)
    _check_blind(wire, key, jax.eval_shape(lambda: examples_of(example, clients)), name)
    memory, state = jax.eval_shape(wire.init, key, examples_of(example, clients))
    memory, record = jax.eval_shape(
        lambda a, b: (tree.take(a, jnp.arange(1)), tree.take(b, jnp.zeros(rows, int))),
        memory,
        state.record,
    )
    first_memory, known = memory, ServerState(state.server, record)
    down = one_client(jax.eval_shape(wire.download, known))
    cohort = jax.eval_shape(lambda: stand_in(example, jnp.arange(1), jnp.int32(0)))
    release = one_client(jax.eval_shape(wire.release or wire.download, known))
    if not any(jax.tree.leaves(used(wire.deploy, memory, release, cohort)[1])):
        release = None
    forms: list[ExchangeForm] = []
    sent, reply = 0, None
    for exchange in wire.exchanges:
        if exchange.server is None:
            reply = down
            memory, _, _ = jax.eval_shape(exchange.client, key, memory, down, cohort)
            break
        memory_after, ups, _ = jax.eval_shape(exchange.client, key, memory, down, cohort)
        single = isinstance(ups, Up)
        form = ExchangeForm(memory, memory_after, down, ups_of(ups), single, sent, ())
        arguments = _arguments(key, known, form.ups, rows)
        step = defended_step(channel, exchange.server, sent, form.single)
        starts = _starts(channel, exchange, form, (key, memory, down, cohort), step, arguments)
        forms.append(form._replace(starts=starts, fingerprint=fingerprint(step, *arguments)))
        outcome, reported = jax.eval_shape(step, *arguments)
        memory, known, sent = memory_after, outcome.state, sent + len(form.ups)
        down = one_client(outcome.reply._replace(counted=reported))
    _check_same(f"the clients of {name} keep", first_memory, memory)
    _check_same(f"the server of {name} keeps", (state.server, record), (known.server, known.record))
    return Form(clients, rows, first_memory, state, tuple(forms), reply, release)


def used(function: Callable, *arguments: PyTree) -> PyTree:
    """Of which of its arguments the results of a function depend, leaf by leaf.

    Args:
      function: pure.
      arguments: arrays or their shapes; nothing is computed.

    Example:
      >>> used(lambda a, b: a["x"] + 0 * b, {"x": 1.0, "y": 2.0}, 3.0)
      ({'x': True, 'y': False}, True)
    """
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    _, used_inputs = dce_jaxpr(program, [True] * len(program.outvars))
    return jax.tree.unflatten(jax.tree.structure(arguments), used_inputs)


def fingerprint(function: Callable, *arguments: PyTree) -> str:
    """A text that two functions share if JAX makes the same program of them.

    Args:
      function: pure.
      arguments: arrays or their shapes; nothing is computed.

    Example:
      >>> texts = [fingerprint(lambda x: factor * x, 1.0) for factor in (2.0, 3.0, 3.0)]
      >>> texts[0] == texts[1], texts[1] == texts[2]
      (False, True)
    """
    program = jax.make_jaxpr(function)(*arguments)
    # Where functions stand in the memory of a process says nothing of them.
    text = re.sub(r" at 0x[0-9a-f]+", "", str(program.jaxpr))
    digest = hashlib.sha256(text.encode())
    for constant in program.consts:
        digest.update(np.asarray(constant).tobytes())
    return digest.hexdigest()


def stand_in(example: tuple, ids: Array, number: Array) -> Cohort:
    """A cohort with examples of zeros, for what does not depend on data.

    Example:
      >>> example = (np.zeros(8, np.float32), np.int32(0))
      >>> stand_in(example, jnp.arange(3), jnp.array(0)).train.x.shape
      (3, 2, 8)
    """
    data = examples_of(example, ids.size)
    return Cohort(ids, data, data, number)


def stacked(shapes: PyTree, rows: int) -> PyTree:
    """Shapes of one client [1, ...] as those of several [M, ...].

    Example:
      >>> stacked(jax.ShapeDtypeStruct((1, 3), jnp.float32), 5).shape
      (5, 3)
    """
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((rows, *x.shape[1:]), x.dtype), shapes)


def one_client(down: Down) -> Down:
    """The shapes of a message to one client [1, ...] from those of one to a cohort [M, ...].

    Example:
      >>> one_client(Down(each=jnp.zeros((5, 3)))).each.shape
      (1, 3)
    """
    return Down(down.common, stacked(down.each, 1), stacked(down.counted, 1))


def _arguments(key: Any, known: ServerState, ups: tuple[Up, ...], rows: int) -> tuple:
    """The shapes of the arguments of a `DefendedStep`."""
    many = tuple(stacked(up, rows) for up in ups)
    row = [jax.ShapeDtypeStruct((rows,), dtype) for dtype in (int, int, bool)]
    return key, known, many, tuple(up.before for up in many), *row


def _starts(
    channel: Channel,
    exchange: Exchange,
    form: ExchangeForm,
    client: tuple,
    step: Callable,
    server: tuple,
) -> tuple[Start, ...]:
    """Who knows where the update of each message starts from."""

    def before(place: int, *arguments: Any) -> Params:
        return ups_of(exchange.client(*arguments)[1])[place].before

    asked = used(step, *server)[2]
    starts: list[Start] = []
    for place, up in enumerate(asked):
        _, memory, _, cohort = used(partial(before, place), *client)
        private = jax.tree.leaves((memory, cohort.train, cohort.val))
        if not any(private):
            starts.append("server")
        else:
            starts.append("client" if any(jax.tree.leaves(up.before)) else "nobody")
    return tuple(starts)


def _check_blind(wire: Wire, key: Any, train: Any, name: str) -> None:
    """Raises an `InputError` if the start of a method depends on the data of the clients."""
    try:
        reads = any(jax.tree.leaves(used(wire.init, key, train)[1]))
    except jax.errors.JAXTypeError:  # it computes on the host
        reads = True
    check(
        not reads,
        f"{name} reads the data of all clients before its first round, which no server may: choose "
        "a method that starts from a key alone",
    )


def _check_same(who: str, before: PyTree, after: PyTree) -> None:
    """Raises an `InputError` if what is kept from round to round changes its form."""
    same = jax.tree.structure(before) == jax.tree.structure(after)
    forms = [[(x.shape, x.dtype) for x in jax.tree.leaves(one)] for one in (before, after)]
    check(
        same and forms[0] == forms[1],
        f"{who} something of another form after a round than before it: let the last exchange "
        "return the structure, shapes and types that `Wire.init` makes",
    )
