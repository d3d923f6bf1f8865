"""The server's step of a method alone, for the uploads of anybody."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check
from jaxfl.core.messages import (
    MOST_EXAMPLES,
    Clients,
    Down,
    Exchange,
    ServerState,
    Uploads,
    Wire,
    models_of,
    wire_of,
)
from jaxfl.core.plain_array import plain_array
from jaxfl.core.types import Algorithm, Cohort, Dataset, Info, Params, PRNGKey, State
from jaxfl.simulation.checks import check_algorithm
from jaxfl.simulation.rounds import keep_finite


class Aggregated(NamedTuple):
    """What the server makes of the uploads of a round."""

    # what the next step needs
    state: State
    # [M, ...] the model that each client deploys then; where a client keeps a model of its own
    # beside what the server sends, as in FedAMP, it is the one in the state, for no client has
    # trained
    models: Params
    # [M, M] mixing weights (receiver, sender), or one matrix for each part of the model, or None
    weights: PyTree


# (state, uploads [M, ...], sizes [M], reported [M] or None, ...) -> Aggregated; see `server_step`
ServerStep = Callable[..., Aggregated]


def server_step(algorithm: Algorithm) -> ServerStep:
    """The server's step of a method, jitted: from uploads to a model for each client.

    It calls the same function of the method as a round of `make_rounds` and a server of
    `jaxfl.serve`, without clients and without an uplink. Only the first exchange of a round is
    done: what clients would answer to the reply, from which pFedGAT learns, is not. As in a round,
    what is not finite changes no state. The arrays may come from anything that NumPy reads, such as
    PyTorch (`tensor.numpy()`).

    Args:
      algorithm: a method of messages.

    Returns:
      step(state, uploads, sizes, reported, before=, plain=, data=, key=) -> `Aggregated`.

      - state: of the step before; None: the initial state for M clients. A method that looks at
        the clients' examples at the start needs `algorithm.init(key, train)` here.
      - uploads: what the clients send [M, ...], in the form of `Up.after`: models for most methods,
        a part of the model or a tuple for others.
      - sizes: numbers of examples [M], from 0 to 2^24.
      - reported: who has sent something [M]; None: all. What the others' rows hold does not count.
      - before: from what each client trained [M, ...]; it takes the place of what has not arrived.
        None: what the clients deploy by the state, or what the server sends to all.
      - plain: what the clients tell beside [M, ...], for methods that ask for it. A client whose
        numbers are not finite, or so large that their squares overflow, has not reported.
      - data: of the clients [M, n, ...], for methods whose clients look at their data before they
        take the server's reply. Examples are not needed otherwise.
      - key: of the round; None: `jax.random.key(0)`.

      It raises an InputError if uploads, sizes and reported are of different numbers of clients, if
      a size cannot be a number of examples, if a number of `before` is not finite, if the
      uploads have not the form that the method needs, or if its clients keep something within a
      round.

    Raises:
      InputError: the method is not written as messages, or its clients send nothing.

    Example:
      >>> step = jaxfl.server_step(jaxfl.algorithms.pfedgraph(task))
      >>> uploads = tree.broadcast(task.problem.init(jax.random.key(0)), 5)
      >>> state, models, weights = step(None, uploads, sizes=[30, 30, 20, 10, 10])
      >>> weights.shape, round(weights[0].sum().item(), 3)
      ((5, 5), 1.0)
    """
    check_algorithm(algorithm)
    wire = wire_of(algorithm)
    if wire is None or wire.exchanges[0].server is None:
        raise InputError(
            "this method has no server step of its own: choose one that is written as messages"
        )
    advance = jax.jit(lambda *arguments: _advance(wire, *arguments))

    def step(
        state: State | None,
        uploads: PyTree,
        sizes: ArrayLike | Sequence[int],
        reported: ArrayLike | Sequence[bool] | None = None,
        *,
        before: PyTree | None = None,
        plain: PyTree = (),
        data: Dataset | None = None,
        key: PRNGKey | None = None,
    ) -> Aggregated:
        sizes = plain_array(sizes, "sizes")
        clients = sizes.size
        here = np.ones(clients, bool) if reported is None else plain_array(reported, "reported")
        check(
            here.dtype.kind in "buif" and bool(((here == 0) | (here == 1)).all()),
            f"reported is {here.tolist()!r:.60}: expected True or False for each client",
        )
        reported = here.astype(bool)
        uploads, plain, before = (
            jax.tree.map(functools.partial(_plain_leaf, what), leaves)
            for what, leaves in (("uploads", uploads), ("plain", plain), ("before", before))
        )
        _check_sizes(sizes)
        rows = [np.shape(x)[:1] for x in jax.tree.leaves((uploads, plain, before))]
        lengths = {clients, reported.size, *(row[0] if row else 0 for row in rows)}
        check(
            len(lengths) == 1,
            f"uploads, sizes and reported are of {sorted(lengths)} clients: give one row a client "
            "in each",
        )
        check(
            all(np.isfinite(x).all() for x in jax.tree.leaves(before)),
            "before has a number that is not finite: give the models that the clients trained from",
        )
        key = jax.random.key(0) if key is None else key
        state = _start(algorithm, key, clients) if state is None else state
        try:
            result = advance(key, state, uploads, sizes, reported, before, plain, data)
        except InputError:
            raise
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise InputError(
                f"the server's step cannot take these uploads ({str(error).splitlines()[0]}): give "
                "them in the form in which the method's clients send them, and plain= and data= if "
                "the method asks for them"
            ) from error
        shapes, others = (jax.tree.map(jnp.shape, one) for one in (state, result.state))
        check(
            shapes == others,
            "the state would change its form by these uploads: give them in the form in which the "
            "method's clients send them, such as a part of the model",
        )
        return result

    return step


def _plain_leaf(what: str, leaf: Any) -> Any:
    """An array that holds nothing but real numbers.

    Raises:
      InputError: it holds others, or more.
    """
    array = leaf if isinstance(leaf, jax.Array) else plain_array(leaf, what)
    is_complex = jnp.issubdtype(array.dtype, jnp.complexfloating)
    check(not is_complex, f"{what} hold complex numbers: expected real ones")
    return array


def _check_sizes(sizes: np.ndarray) -> None:
    """Checks that these may be numbers of examples; the serving side has the same limit."""
    check(
        sizes.ndim == 1 and sizes.dtype.kind in "uif",
        f"sizes are {sizes.dtype} {list(sizes.shape)}: expected a number of examples for each "
        "client",
    )
    good = np.isfinite(sizes) & (sizes >= 0) & (sizes <= MOST_EXAMPLES)
    for client in np.flatnonzero(~good)[:1]:
        raise InputError(
            f"sizes has {sizes[client]} for client {client}: expected a number of examples from 0 "
            f"to {MOST_EXAMPLES}"
        )


def _start(algorithm: Algorithm, key: PRNGKey, clients: int) -> State:
    """The initial state for clients without examples."""
    try:
        return algorithm.init(key, _nobody(clients))
    except (TypeError, AttributeError) as error:
        raise InputError(
            "this method looks at the clients' examples before the first round: give "
            "state=algorithm.init(key, train)"
        ) from error


def _nobody(clients: int) -> Dataset:
    return Dataset(None, None, jnp.zeros((clients, 1), bool))


def _advance(
    wire: Wire,
    key: PRNGKey,
    state: State,
    uploads: PyTree,
    sizes: Int[Array, "m"],
    reported: Bool[Array, "m"],
    before: PyTree,
    plain: PyTree,
    data: Dataset | None,
) -> Aggregated:
    memory, record = state.clients
    known = ServerState(state.server, record)
    ids = jnp.arange(sizes.size)
    examples = _nobody(sizes.size) if data is None else data
    cohort = Cohort(ids, examples, examples, round=0)
    if before is None:
        before = _start_of_training(wire, memory, known, cohort, uploads)
    reported = reported & tree.finite_squares((uploads, plain), sizes.size)
    uploads = tree.choose(reported, uploads, before)
    plain = tree.choose(reported, plain, tree.zeros_like(plain))
    first, *others = wire.exchanges
    received = Uploads(ids, sizes, reported, uploads, before, plain)
    outcome = first.server(key, known, received)  # pyright: ignore[reportOptionalCall]
    if others:
        # The clients take the reply; what they send then is not asked for.
        down = outcome.reply._replace(counted=reported)
        memory = _after_reply(others[0], key, memory, down, cohort)
    after = (Clients(memory, outcome.state.record), outcome.state.server)
    after = State(*tree.cast_like(after, tuple(state)))
    none = jnp.zeros(sizes.size)
    after, _ = keep_finite(state, after, Info(none, None, none, none, none, reported))
    memory, record = after.clients
    models = models_of(wire, memory, ServerState(after.server, record), cohort)
    return Aggregated(after, models, outcome.weights)


def _after_reply(
    exchange: Exchange, key: PRNGKey, memory: PyTree, down: Down, cohort: Cohort
) -> PyTree:
    """What clients keep after they have taken the server's reply.

    Raises:
      InputError: clients keep something from one exchange of a round to the next.
    """
    within = InputError(
        "clients of this method keep something from one exchange of a round to the next, so that a "
        "step of the server alone ends within a round: use make_rounds or jaxfl.serve"
    )
    try:
        after, *_ = exchange.client(key, memory, down, cohort)
    except AttributeError as error:
        # They look for what an earlier exchange of the round has left.
        if isinstance(error.obj, type(memory)):
            raise within from error
        raise
    if jax.tree.map(jnp.shape, after) != jax.tree.map(jnp.shape, memory):
        raise within
    return after


def _start_of_training(
    wire: Wire, memory: PyTree, known: ServerState, cohort: Cohort, uploads: PyTree
) -> PyTree:
    """What clients deploy now, or what the server sends to all, if it has the uploads' form."""
    candidates = (
        models_of(wire, memory, known, cohort),
        tree.broadcast(wire.download(known).common, cohort.ids.size),
    )
    for one in candidates:
        if jax.tree.structure(one) == jax.tree.structure(uploads):
            return one
    return tree.zeros_like(uploads)
