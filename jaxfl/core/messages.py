"""What crosses the wire: a round as messages between a server and its clients.

A method is a `Wire`: what the server sends, what a client makes of it, what the server makes of the
uploads, and what a client deploys. Each is a pure function that sees one side only.
`algorithms.steps.compose` makes a round of them; `jaxfl.serve` gives them to real
clients.

Axes as in `core.types`: C clients, M cohort.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxfl.core import tree
from jaxfl.core.types import Algorithm, Cohort, Dataset, Fitted, Params, PRNGKey

# The most examples that a client may say it owns: sums over a cohort stay exact in float32.
MOST_EXAMPLES = 2**24


class Clients(NamedTuple):
    """`State.clients` of a method of messages: its two halves."""

    # [C, ...] what each client keeps, which the server never sees
    memory: PyTree = ()
    # [C, ...] what the server keeps for each client, which no client sees
    record: PyTree = ()


class ServerState(NamedTuple):
    """What the server knows."""

    # its own state, without client axis
    server: PyTree = ()
    # [M, ...] what it keeps for the clients of the cohort
    record: PyTree = ()
    # what its next step in the same round needs; it is forgotten after the round
    memo: Any = None


class Down(NamedTuple):
    """A message to clients."""

    # the same for all clients, without client axis
    common: PyTree = ()
    # [M, ...] what each client gets of its own
    each: PyTree = ()
    # [M] whether the client's last upload arrived and counts; None in a download
    counted: Bool[Array, "*m"] | None = None
    # [M] how many numbers each client gets, where it does not get all of the above; None: all
    floats: Int[Array, "*m"] | None = None


class Up(NamedTuple):
    """A message of clients to the server."""

    # [M, ...] what goes through the task's uplink
    after: PyTree
    # [M, ...] from which the uplink measures an update; both sides know it
    before: PyTree
    # [M, ...] what is told as it is, without noise or compression
    plain: PyTree = ()
    # [M] how many numbers each client sends, where it does not send all of the above; None: all
    floats: Int[Array, "*m"] | None = None


class Uploads(NamedTuple):
    """What the server receives of one `Up`; `ids` and `sizes` are those of a `Cohort`."""

    # [M] of the clients
    ids: Int[Array, "m"]
    # [M] examples that each client owns
    sizes: Int[Array, "m"]
    # [M] whether the upload arrived and is finite
    reported: Bool[Array, "m"]
    # [M, ...] `after` at the end of the uplink; `before` for a client that has not reported
    received: PyTree
    # [M, ...]
    before: PyTree
    # [M, ...]
    plain: PyTree = ()


class Report(NamedTuple):
    """What is measured of a client's step, for the `Info` of a round.

    No method sends it. A client of `jaxfl.serve` sends the loss beside its upload, if it tells it.
    """

    # [M] mean training loss
    loss: Float[Array, "*m"] | None = None
    # [M] batches on which a gradient was computed
    batches: Int[Array, "*m"] | int = 0
    # [M, ...] the models that were trained
    trained: Params | None = None
    # [M] whether each client took the mixture that it was offered
    accepted: Bool[Array, "*m"] | None = None
    # [M, M] mixing weights (receiver, sender) that the clients have chosen themselves
    weights: PyTree = None
    # [M] by the name of a part of the model, what fraction of its mixture each client took
    fractions: dict[str, Float[Array, "*m"]] = {}  # noqa: RUF012 - never written
    # numbers by name, for `Info.metrics`: of each client [M], which has their mean over the clients
    # that reported, or of all
    metrics: dict[str, Array] = {}  # noqa: RUF012 - never written


class Joining(NamedTuple):
    """What each client did before its first round, which that round counts; 0 in the others."""

    # [M] floats sent
    up: Int[Array, "*m"] | int = 0
    # [M] floats received
    down: Int[Array, "*m"] | int = 0
    # [M] batches on which a gradient was computed
    batches: Int[Array, "*m"] | int = 0


class Outcome(NamedTuple):
    """What the server makes of the uploads."""

    state: ServerState
    # to the same clients in the same round, for the client of the next exchange
    reply: Down = Down()
    # of `Info`
    weights: PyTree = None
    # of `Info`
    metrics: dict[str, Array] = {}  # noqa: RUF012 - never written
    # ([M], [M]) to how many peers each client sends its message, and from how many it gets a reply,
    # where no server is between them, and a part of a message counts as a part; None: one server
    copies: tuple[Array, Array] | None = None
    # what is counted beside the messages of this round
    joining: Joining = Joining()


_Memory = TypeVar("_Memory")
# What a client's function returns: its memory [M, ...], its message or messages, and its report.
Turn = tuple[_Memory, Up | tuple[Up, ...] | None, Report]


class Exchange(NamedTuple):
    """Clients work and send; the server makes its step and replies.

    - client: (key, memory [M], Down, cohort) -> (memory [M], Up, a tuple of Ups or None, Report).
      Of the server it sees the message, and nothing else; `cohort.lost` is None.
    - server: (key, ServerState, Uploads or a tuple of them) -> Outcome. None: the clients take the
      last reply, and send nothing.
    """

    client: Callable[[PRNGKey, Any, Down, Cohort], tuple[Any, Any, Report]]
    server: Callable[[PRNGKey, ServerState, Any], Outcome] | None = None


def no_download(state: ServerState) -> Down:
    """The download of a method whose clients go on from what they keep.

    Example:
      >>> no_download(ServerState(jnp.ones(3)))
      Down(common=(), each=(), counted=None, floats=None)
    """
    return Down()


def download_server(state: ServerState) -> Down:
    """The download of a method whose server sends its whole state to all clients.

    Example:
      >>> download_server(ServerState(90.0)).common
      90.0
    """
    return Down(state.server)


class Wire(NamedTuple):
    """A federated method, as messages.

    - init: (key, train [C]) -> (memory [C], ServerState with records [C])
    - exchanges: of a round, one after the other; the first client gets the download, each later one
      the reply to the exchange before
    - deploy: (memory [M], download, cohort) -> params [M, ...]
    - download: ServerState -> Down, to any clients at any time
    - release: ServerState -> Down, what clients get that deploy; None: the download
    """

    init: Callable[[PRNGKey, Dataset], tuple[Any, ServerState]]
    exchanges: tuple[Exchange, ...]
    deploy: Callable[[Any, Down, Cohort], Params]
    download: Callable[[ServerState], Down] = no_download
    release: Callable[[ServerState], Down] | None = None


def models_of(wire: Wire, memory: PyTree, state: ServerState, cohort: Cohort) -> Params:
    """The model that each client of a cohort deploys now [M, ...].

    Args:
      wire: the method.
      memory: of the clients [M, ...].
      state: of the server, with the records of these clients.
      cohort: the clients.

    Example:
      >>> wire = jaxfl.algorithms.fedavg(task).wire
      >>> memory, state = wire.init(jax.random.key(0), cohort.train)
      >>> tree.size(models_of(wire, memory, state, cohort))  # four models of 90 parameters
      360
    """
    release = wire.download if wire.release is None else wire.release
    return wire.deploy(memory, release(state), cohort)


def wire_of(algorithm: Algorithm) -> Wire | None:
    """The messages of which the rounds of an algorithm are composed; None if it has others.

    A method that puts a round or an initial state of its own in place of the composed one has no
    messages, whatever `Algorithm.wire` says.

    Example:
      >>> algorithm = jaxfl.algorithms.fedavg(task)
      >>> wire_of(algorithm) is algorithm.wire, wire_of(algorithm._replace(round=print))
      (True, None)
    """
    wire = algorithm.wire
    composed = (getattr(one, "wire", None) for one in (algorithm.init, algorithm.round))
    return wire if all(one is wire for one in composed) else None


def report_of(fitted: Fitted, **others: Any) -> Report:
    """The report of local training.

    Args:
      fitted: what local training returned.
      others: fields of the report that differ.

    Example:
      >>> fitted = Fitted(jnp.ones((2, 3)), loss=jnp.zeros(2), batches=jnp.full(2, 5))
      >>> report_of(fitted).batches.tolist()
      [5, 5]
    """
    return Report(fitted.loss, fitted.batches, fitted.params)._replace(**others)


def floats(message: Down | Up, clients: int) -> int | Int[Array, "*m"]:
    """How many numbers one client gets or sends by a message; `before` is not sent.

    Args:
      message: to or from a cohort.
      clients: M.

    Example:
      >>> floats(Down(jnp.zeros(3), each=jnp.zeros((2, 5))), clients=2)
      8
    """
    if message.floats is not None:
        return message.floats
    if isinstance(message, Down):
        return tree.size(message.common) + tree.size(message.each) // clients
    return (tree.size(message.after) + tree.size(message.plain)) // clients


def ups_of(ups: Up | tuple[Up, ...]) -> tuple[Up, ...]:
    """The messages of a client's step as a tuple, also where there is one.

    Example:
      >>> len(ups_of(Up(jnp.ones(2), jnp.zeros(2))))
      1
    """
    return (ups,) if isinstance(ups, Up) else ups
