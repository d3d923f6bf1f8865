"""The server's half of a method: what it keeps, and the compiled functions of a round."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.messages import Down, ServerState, Wire, ups_of
from jaxfl.core.types import Params, PRNGKey
from jaxfl.serve.forms import Form, examples_of, stacked, stand_in
from jaxfl.serve.halves import DefendedStep, defended_step, settle
from jaxfl.serve.named_arrays import from_named, named, rows, write_rows
from jaxfl.serve.state import read_arrays, write_arrays
from jaxfl.training.channel import Channel


class Progress(NamedTuple):
    """All that the server keeps between rounds, as NumPy arrays."""

    # rounds that are done
    rounds: np.ndarray
    # a number of the whole run, by which clients know what they keep for it
    run: np.ndarray
    # the server's own state, without client axis
    server: PyTree
    # [C, ...] what it keeps for each client
    record: PyTree
    # [C] the last round in which the client's upload counted; -1: none
    counted: np.ndarray
    # [C, ...] (common, each) of the reply to that upload; () if nobody takes replies
    replies: PyTree


class ServerHalf(NamedTuple):
    """The compiled functions of the server; each is compiled once for all rounds."""

    # key -> Progress before the first round
    start: Callable[[PRNGKey], Progress]
    # ServerState [M] -> Down, for the first exchange of a round
    download: Callable[[ServerState], Down]
    # ServerState [C] -> Down, for an evaluation
    release: Callable[[ServerState], Down]
    # of each exchange: (key, Down, ids [M], round) -> where the updates of its messages start from
    starts: tuple[Callable[[PRNGKey, Down, Array, Array], tuple[Params, ...]], ...]
    # of each exchange
    steps: tuple[DefendedStep, ...]
    # see `halves.settle`
    settle: Callable


def server_half(
    wire: Wire,
    channel: Channel,
    form: Form,
    example: tuple,
) -> ServerHalf:
    """The server's half of a method.

    Args:
      wire: the method.
      channel: of the task.
      form: of the method's messages.
      example: (x [*feature], y [*target]), whose values are not read.

    Example:
      >>> wire, example = jaxfl.algorithms.fedavg(task).wire, (np.zeros(8, np.float32), np.int32(0))
      >>> form = jaxfl.serve.forms.form_of(wire, task.upload, example, 4, 2)
      >>> half = server_half(wire, task.upload, form, example)
      >>> half.start(jax.random.key(0)).counted.tolist()
      [-1, -1, -1, -1]
    """

    @jax.jit
    def first_state(key: PRNGKey) -> ServerState:
        return wire.init(key, examples_of(example, form.clients))[1]

    def start(key: PRNGKey) -> Progress:
        state = jax.tree.map(np.asarray, first_state(key))
        replies = ()
        if form.reply is not None:
            parts = (stacked(_with_axis(form.reply.common), form.clients), form.reply.each)
            parts = (parts[0], stacked(parts[1], form.clients))
            replies = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), parts)
        return Progress(
            np.asarray(0),
            np.frombuffer(np.random.default_rng().bytes(8), np.int64)[0] >> 1,
            state.server,
            state.record,
            np.full(form.clients, -1),
            replies,
        )

    def starts_of(place: int) -> Callable:
        exchange, exchange_form = wire.exchanges[place], form.exchanges[place]

        def starts(key: PRNGKey, down: Down, ids: Array, number: Array) -> tuple[Params, ...]:
            many = stacked((exchange_form.memory, exchange_form.ups), form.rows)
            memory, zeros = jax.tree.map(lambda x: jax.numpy.zeros(x.shape, x.dtype), many)
            if "server" not in exchange_form.starts:
                return tuple(up.before for up in zeros)
            # XLA leaves out the training, on which no start depends.
            ups = ups_of(exchange.client(key, memory, down, stand_in(example, ids, number))[1])
            return tuple(
                up.before if start == "server" else zero.before
                for up, zero, start in zip(ups, zeros, exchange_form.starts, strict=True)
            )

        return jax.jit(starts)

    steps = tuple(
        jax.jit(defended_step(channel, exchange.server, each.first, each.single))
        for exchange, each in zip(wire.exchanges, form.exchanges, strict=False)
        if exchange.server is not None
    )
    return ServerHalf(
        start,
        jax.jit(wire.download),
        jax.jit(wire.release or wire.download),
        tuple(starts_of(place) for place in range(len(form.exchanges))),
        steps,
        jax.jit(settle),
    )


def known_of(progress: Progress, ids: np.ndarray) -> ServerState:
    """What the server knows at the start of a round, with the records of a cohort [M, ...].

    Example:
      >>> progress = Progress(0, 1, np.ones(2), np.array([[5.0], [7.0]]), np.array([-1, -1]), ())
      >>> known_of(progress, np.array([1])).record.tolist()
      [[7.0]]
    """
    return ServerState(progress.server, rows(progress.record, ids))


def advance(
    progress: Progress, ids: np.ndarray, state: ServerState, reported: np.ndarray, reply: Down
) -> Progress:
    """What the server keeps after a round.

    Args:
      progress: before it.
      ids: of the cohort [M].
      state: with the records of the cohort [M, ...].
      reported: who has reported in all exchanges [M].
      reply: to the last upload, which the clients take with their next message.

    Example:
      >>> progress = Progress(np.asarray(3), 1, (), (), np.array([-1, -1]), ())
      >>> advance(progress, np.array([1]), ServerState(), np.array([True]), Down()).counted.tolist()
      [-1, 3]
    """
    who = ids[reported]
    counted, replies = progress.counted.copy(), progress.replies
    counted[who] = progress.rounds
    if who.size and jax.tree.leaves(replies):
        common = jax.tree.map(lambda x: np.stack([np.asarray(x)] * who.size), reply.common)
        each = jax.tree.map(lambda x: np.asarray(x)[reported], reply.each)
        replies = write_rows(replies, who, (common, each))
    return progress._replace(
        rounds=progress.rounds + 1,
        server=jax.tree.map(np.asarray, state.server),
        record=write_rows(progress.record, ids, state.record),
        counted=counted,
        replies=replies,
    )


# What a run is, by name, such as the key of its rounds; see `settings_of`.
Settings = dict[str, str]

SETTING, PROGRAM = "settings/", "program"


def settings_of(form: Form, key: PRNGKey, init_key: PRNGKey) -> Settings:
    """What a saved server must share with the one that goes on.

    Args:
      form: of the method's messages.
      key: of the rounds.
      init_key: of the first state.

    Example:
      >>> wire = jaxfl.algorithms.fedavg(task).wire
      >>> example = (jnp.zeros(8), jnp.zeros((), jnp.int32))
      >>> form = jaxfl.serve.forms.form_of(wire, task.upload, example, 9, 4)
      >>> key = jax.random.key(0)
      >>> settings_of(form, key, key)["clients"]
      '9'
    """
    return {
        "clients": str(form.clients),
        "size of a cohort": str(form.rows),
        "key": str(np.asarray(jax.random.key_data(key)).tolist()),
        "init_key": str(np.asarray(jax.random.key_data(init_key)).tolist()),
        PROGRAM: " ".join(exchange.fingerprint for exchange in form.exchanges),
    }


def save_progress(file: Path, progress: Progress, settings: Settings) -> None:
    """Writes what the server keeps, completely or not at all.

    Args:
      file: where.
      progress: what it keeps.
      settings: of the run.

    Raises:
      OSError: the file cannot be written.

    Example:
      >>> progress = Progress(np.asarray(3), np.asarray(7), np.ones(2), (), np.array([2, -1]), ())
      >>> save_progress(Path("state.npz"), progress, {"key": "[0, 5]"})
      >>> restore_progress(Path("state.npz"), progress, {"key": "[0, 5]"}).counted.tolist()
      [2, -1]
    """
    texts = {f"{SETTING}{name}": np.array(text) for name, text in settings.items()}
    write_arrays(file, named(progress._asdict()) | texts)


def restore_progress(file: Path, like: Progress, settings: Settings) -> Progress:
    """What `save_progress` wrote.

    A server whose step is another program is warned of: its method or its options are others, or
    only the versions of jaxfl and JAX.

    Args:
      file: its file.
      like: of the same method, model and number of clients; its values are not read.
      settings: of the run that goes on.

    Raises:
      InputError: the file is damaged, or is of another method, model, number of clients or run.
      FileNotFoundError: there is none.

    Example:
      >>> progress = Progress(np.asarray(3), np.asarray(7), np.ones(2), (), np.array([2, -1]), ())
      >>> restore_progress(Path("none.npz"), progress, {})
      Traceback (most recent call last):
      FileNotFoundError: [Errno 2] No such file or directory: 'none.npz'
    """
    arrays = read_arrays(file)
    texts = {name: str(arrays.pop(name)) for name in list(arrays) if name.startswith(SETTING)}
    for name, here in settings.items():
        saved = texts.get(f"{SETTING}{name}", "none")
        check(
            saved == here or name == PROGRAM,
            f"{file} is of another run ({name} {saved[:60]}, here {here}): choose another "
            "directory",
        )
    try:
        progress = Progress(**from_named(arrays, like._asdict()))
    except InputError as error:
        raise InputError(
            f"{file} is of another method, model or number of clients ({error}): choose another "
            "directory"
        ) from None
    if texts.get(f"{SETTING}{PROGRAM}") != settings.get(PROGRAM):
        warn(
            f"{file} is of a server whose step is another program: it goes on, which is right only "
            "if the method and its options are the same and a version is new"
        )
    return progress


def _with_axis(shapes: PyTree) -> PyTree:
    """Shapes with a client axis of 1 before them."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), shapes)
