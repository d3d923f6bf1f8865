"""Rules for messages: neither side of a round sees more of the other than a message."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core import tree
from jaxfl.core.facts import facts_of
from jaxfl.core.messages import Clients, ServerState, Up, Uploads, Wire, floats, ups_of
from jaxfl.core.types import Algorithm, AlgorithmFactory, Cohort, Federation, State
from jaxfl.experiment.privacy.dataflow import follow
from jaxfl.simulation.server_step import server_step
from jaxfl.testing.equality import all_finite, close, equal, require
from jaxfl.testing.federations import C, uneven
from jaxfl.testing.quick_key import quick_key
from jaxfl.testing.runs import cohort_of, honest_round, init_key, jit, made, pick, run_together
from jaxfl.testing.tasks import normed, shallow

NOT_MESSAGES = "not written as messages"


def wire_of_method(factory: AlgorithmFactory, algorithm: Algorithm) -> Wire | None:
    """The messages of a method; None if its docstring says that it is "not written as messages"."""
    if algorithm.wire is None:
        require(
            NOT_MESSAGES in " ".join((factory.__doc__ or "").split()),
            "it has no messages, so no client can be served with it: make it by jaxfl.compose, or "
            f"write in its docstring that it is {NOT_MESSAGES}, and why",
        )
    return algorithm.wire


def check_alone(factory: AlgorithmFactory) -> None:
    """A round of clients that work alone, and send NumPy arrays, is the round."""
    algorithm = made(factory, shallow)
    if wire_of_method(factory, algorithm) is None:
        return
    state, _ = run_together(factory, uneven(), 1)
    key = quick_key(3)
    cohort = cohort_of(uneven(), np.arange(C))
    together, info = honest_round(factory, key, state, cohort)
    alone, sent, got = apart(algorithm, key, state, uneven())
    words = "clients that work alone, and what they send, make another round:"
    close(together, alone, 2e-4, words)
    equal(info.up, sent, "info.up, and the floats of the messages that were sent:")
    equal(info.down, got, "info.down, and the floats of the messages that were received:")


def apart(
    algorithm: Algorithm, key: Any, state: State, federation: Federation
) -> tuple[State, np.ndarray, np.ndarray]:
    """A round in which each client works in a program that has no row of any other client.

    Returns:
      The state after it, and the floats that were sent and received, by the forms of the messages
      [M].
    """
    wire = algorithm.wire
    memory = [pick(state.clients.memory, [client]) for client in range(C)]
    known = ServerState(state.server, state.clients.record)
    down = jit(wire.download)(known)
    sent, got, copies_down = np.zeros(C, int), np.zeros(C, int), 1
    for exchange in wire.exchanges:
        messages = []
        for client in range(C):
            own = [client]
            cohort = cohort_of(federation, np.array(own))
            own_down = down._replace(
                each=pick(down.each, own),
                counted=None if down.counted is None else np.asarray(down.counted)[own],
            )
            memory[client], ups, _ = jit(exchange.client)(key, memory[client], own_down, cohort)
            messages.append(ups)
            got[client] += np.broadcast_to(floats(own_down, 1) * copies_down, C)[client]
        if exchange.server is None:
            break
        stacked = jax.tree.map(lambda *x: np.concatenate(x), *messages)
        uploads = tuple(
            Uploads(
                jnp.arange(C), federation.sizes, jnp.ones(C, bool), up.after, up.before, up.plain
            )
            for up in ups_of(stacked)
        )
        one = isinstance(stacked, Up)
        outcome = jit(exchange.server)(key, known, uploads[0] if one else uploads)
        copies_up, copies_down = outcome.copies or (1, 1)
        for client, ups in enumerate(messages):
            copies = np.broadcast_to(copies_up, C)[client]
            sent[client] += sum(int(np.sum(floats(up, 1))) for up in ups_of(ups)) * copies
        sent += np.asarray(outcome.joining.up)
        got += np.asarray(outcome.joining.down)
        known, down = outcome.state, outcome.reply._replace(counted=np.ones(C, bool))
    memories = jax.tree.map(lambda *x: np.concatenate(x), *memory)
    return State(Clients(memories, known.record), known.server), sent, got


def check_told(factory: AlgorithmFactory) -> None:
    """What a method says of uploads and of personal models is what its messages show."""
    facts = facts_of(factory)
    personal = False
    # Some methods keep the layers of a model that normalise.
    for make_task in (shallow, normed):
        algorithm = made(factory, make_task)
        wire = wire_of_method(factory, algorithm)
        if wire is None:
            return
        memory, known = jax.eval_shape(wire.init, quick_key(0), uneven().train)
        cohort = cohort_of(uneven(), np.arange(C))
        down = jax.eval_shape(wire.download, known)
        client = wire.exchanges[0].client
        _, ups, _ = jax.eval_shape(client, quick_key(0), memory, down, cohort)
        told = () if ups is None else ups_of(ups)
        sent = sum(floats(up._replace(floats=None), C) for up in told)
        require(
            (sent > 0) == (facts.sends != ""),
            f"a client sends {sent} floats in a round, and @method has sends={facts.sends!r}",
        )
        personal = personal or algorithm.recall is not None or deploys_own(wire, memory, known)
        if personal or facts.personal == "":
            break
    require(
        personal or facts.personal == "",
        "all clients deploy what the server sends to all, and @method has "
        f"personal={facts.personal!r}",
    )


def deploys_own(wire: Wire, memory: Any, known: ServerState) -> bool:
    """Whether a deployed model depends on more than what the server sends to all clients.

    Args:
      wire: the method.
      memory: of all clients, or its shapes [C, ...].
      known: by the server, or its shapes.
    """
    down = jax.eval_shape(wire.release or wire.download, known)

    def deploy(common: Any, own: Any) -> Any:
        memory, each, train, val = own
        message = down._replace(common=common, each=each)
        return wire.deploy(memory, message, Cohort(jnp.arange(C), train, val, 0))

    own = (memory, down.each, uneven().train, uneven().val)
    program = jax.make_jaxpr(deploy)(down.common, own).jaxpr
    common = len(jax.tree.leaves(down.common))
    return any(follow(program, [place >= common for place in range(len(program.invars))]).outputs)


def check_lost(factory: AlgorithmFactory) -> None:
    """Nothing is learned from a message that was lost.

    What would have stood in it beside the model, which composition does not take out, changes
    nothing either.
    """
    wire = wire_of_method(factory, made(factory, shallow))
    if wire is None:
        return
    key, lost = quick_key(3), 1
    reported = jnp.arange(C) != lost
    others = np.flatnonzero(reported)
    told = []

    def results(cohort: Cohort, rubbish: Any) -> list:
        """The server's state, and of those who reported the replies and the rows of weights."""
        memory, known = wire.init(quick_key(0), cohort.train)
        down = wire.download(known)
        outcomes = []
        for exchange in wire.exchanges:
            memory, ups, _ = exchange.client(key, memory, down, cohort)
            if exchange.server is None:
                break
            uploads = []
            for up in ups_of(ups):
                after = tree.choose(reported, up.after, up.before)
                nothing = jax.tree.map(
                    lambda x: jnp.broadcast_to(rubbish, x.shape).astype(x.dtype), up.plain
                )
                plain = tree.choose(reported, up.plain, nothing)
                told.append(plain)
                uploads.append(Uploads(cohort.ids, cohort.sizes, reported, after, up.before, plain))
            one = isinstance(ups, Up)
            outcome = exchange.server(key, known, uploads[0] if one else tuple(uploads))
            known, down = outcome.state, outcome.reply._replace(counted=reported)
            rows = jax.tree.map(lambda x: x[others], (down.each, outcome.weights))
            outcomes.append((known, down.common, rows, outcome.metrics))
        return outcomes

    cohort = cohort_of(uneven(), jnp.arange(C))
    program = jax.jit(results).trace(cohort, 0.0)
    if jax.tree.leaves(told):
        program = program.lower().compile()
        words = f"what client {lost}, whose message was lost, would have told changes"
        equal(program(cohort, 0.0), program(cohort, 1.0), words)


def _numbers(shape: jax.ShapeDtypeStruct) -> np.ndarray:
    """Other numbers for each row, all of them possible: from .5 to 1, or 1."""
    rows = np.linspace(0.5, 1.0, shape.shape[0]).reshape(-1, *[1] * (len(shape.shape) - 1))
    whole = not jnp.issubdtype(shape.dtype, jnp.floating)
    return np.broadcast_to(1.0 if whole else rows, shape.shape).astype(shape.dtype)


def check_numbers(factory: AlgorithmFactory) -> None:
    """Numbers that a client tells beside its model, and that cannot be, spoil nothing.

    Where they are not finite the client does not count. Where they are negative or enormous the
    server's state and the weights are finite all the same, and no weight is negative. It looks at
    methods whose round is one exchange, or one and a reply of which nothing more is kept.
    """
    algorithm = made(factory, shallow)
    wire = wire_of_method(factory, algorithm)
    if wire is None:
        return
    exchange, *further = wire.exchanges
    if exchange.server is None or len(further) > 1:
        return
    liar, train = 2, uneven().train
    state = jit(algorithm.init)(init_key(), train)
    memory, record = state.clients
    down = jit(wire.download)(ServerState(state.server, record))
    cohort = cohort_of(uneven(), np.arange(C))
    _, shapes, _ = jax.eval_shape(exchange.client, quick_key(0), memory, down, cohort)
    messages: list[Up] = [*ups_of(jax.tree.map(_numbers, shapes))]
    first = messages[0]
    if len(messages) > 1 or not jax.tree.leaves(first.plain):
        return
    step = server_step(algorithm)

    def told(number: float, reported: Any = None) -> tuple:
        def leaf(x: Any) -> np.ndarray:
            values = np.array(x)
            values[liar] = number if np.issubdtype(values.dtype, np.floating) else -1
            return values

        plain = jax.tree.map(leaf, first.plain)
        given = {"before": first.before, "plain": plain, "data": train, "key": quick_key(1)}
        found = step(state, first.after, uneven().sizes, reported, **given)
        return found.state, found.weights

    for number in (-1.0, 1e15):
        after, weights = told(number)
        all_finite((after, weights), f"a client tells {number:g}")
        for matrix in jax.tree.leaves(weights):
            require(matrix.min() >= 0, f"a client tells {number:g}, and a weight is negative")
    if any(np.issubdtype(x.dtype, np.floating) for x in jax.tree.leaves(first.plain)):
        silent = told(0.0, np.arange(C) != liar)
        for number in (np.nan, np.inf):
            equal(told(number), silent, f"a client that tells {number} counts:")


RULES = (check_alone, check_told, check_lost, check_numbers)
