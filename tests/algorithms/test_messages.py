"""What every method of messages owes: neither side sees more of the other than a message."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SIZES, close, equal, jit, normed, once, opposite_groups, pick, run, shallow

import jaxfl
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.messages import Clients, Exchange, ServerState, Up, Uploads, floats, ups_of
from jaxfl.core.types import Cohort, State
from jaxfl.experiment.privacy.dataflow import follow

C = len(SIZES)


@once
def data():
    return opposite_groups(sizes=SIZES)


def of_messages(factory, task):
    """The method on a task; one that is not written as messages says why in its docstring."""
    algorithm = factory(task)
    if algorithm.wire is None:
        assert "not written as messages" in " ".join(factory.__doc__.split())
        pytest.skip("it is not written as messages")
    return algorithm


def by_hand(algorithm, key, state, federation):
    """A round in which each client works alone, and NumPy arrays of messages are all that passes.

    Returns:
      The state after it, and the floats that were sent and received, by their shapes [M].
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
            cohort = Cohort(
                np.array(own), pick(federation.train, own), pick(federation.val, own), 0
            )
            own_down = down._replace(
                each=pick(down.each, own),
                counted=None if down.counted is None else np.asarray(down.counted)[own],
            )
            memory[client], ups, _ = jit(exchange.client)(key, memory[client], own_down, cohort)
            messages.append(ups)
        got += floats(own_down, 1) * np.asarray(copies_down)
        if exchange.server is None:
            break
        stacked = jax.tree.map(lambda *x: np.concatenate(x), *messages)
        uploads = tuple(
            Uploads(
                jnp.arange(C), federation.sizes, jnp.ones(C, bool), up.after, up.before, up.plain
            )
            for up in ups_of(stacked)
        )
        one = len(uploads) == 1 and stacked is ups_of(stacked)[0]
        outcome = jit(exchange.server)(key, known, uploads[0] if one else uploads)
        copies_up, copies_down = outcome.copies or (1, 1)
        sent += sum(floats(up, 1) for up in ups_of(ups)) * np.asarray(copies_up)
        sent += np.asarray(outcome.joining.up)
        got += np.asarray(outcome.joining.down)
        known, down = outcome.state, outcome.reply._replace(counted=np.ones(C, bool))
    memories = jax.tree.map(lambda *x: np.concatenate(x), *memory)
    return State(Clients(memories, known.record), known.server), sent, got


@pytest.mark.long
def test_a_round_of_lonely_clients_and_their_messages_is_the_round(factory):
    """Each client works in a program of its own, which has no row of any other client."""
    algorithm = of_messages(factory, shallow())
    state, _, _ = run(algorithm, data(), 1)
    key = jax.random.key(3)
    everybody = Cohort(jnp.arange(C), data().train, data().val, 0)
    together, info = jit(algorithm.round)(key, state, everybody)
    alone, sent, got = by_hand(algorithm, key, state, data())
    close(together, alone, 2e-4)
    np.testing.assert_array_equal(info.up, sent)
    np.testing.assert_array_equal(info.down, got)


@pytest.mark.long
def test_a_method_says_whether_clients_send_and_whether_models_are_personal(factory):
    """The facts on the methods' page are those of the messages."""
    facts = facts_of(factory)
    for task in (shallow(), normed()):
        wire = of_messages(factory, task).wire
        key = jax.random.key(0)
        memory, known = jax.eval_shape(wire.init, key, data().train)
        cohort = Cohort(jnp.arange(C), data().train, data().val, 0)
        down = jax.eval_shape(wire.download, known)
        _, ups, _ = jax.eval_shape(wire.exchanges[0].client, key, memory, down, cohort)
        sent = [floats(up._replace(floats=None), C) for up in ups_of(ups)]
        assert (sum(sent) > 0) == (facts.sends != "")
        down = jax.eval_shape(wire.release or wire.download, known)

        def deploy(common, own, wire=wire, down=down, ids=cohort.ids):
            memory, each, train, val = own
            return wire.deploy(
                memory, down._replace(common=common, each=each), Cohort(ids, train, val, 0)
            )

        own = (memory, down.each, data().train, data().val)
        program = jax.make_jaxpr(deploy)(down.common, own).jaxpr
        common = len(jax.tree.leaves(down.common))
        flags = [place >= common for place in range(len(program.invars))]
        personal = any(follow(program, flags).outputs)
    # Of the model with normalisation layers, which some methods keep. That models which may differ
    # do so is tested with numbers: `test_opposite_groups_need_personal_models`.
    may_differ = personal or factory(task).recall is not None
    assert may_differ or facts.personal == ""


@pytest.mark.slow
def test_a_server_step_takes_arrays_of_anybody_and_gives_the_models_of_the_round():
    """pFedGraph's aggregates and weights by the step alone are those of a round."""
    algorithm = jaxfl.algorithms.pfedgraph(shallow())
    state, _, _ = run(algorithm, data(), 1)
    key = jax.random.key(3)
    cohort = Cohort(jnp.arange(C), data().train, data().val, 0)
    after, info = jit(algorithm.round)(key, state, cohort)
    _, ups, _ = jit(algorithm.wire.exchanges[0].client)(
        key, state.clients.memory, algorithm.wire.download(ServerState(state.server)), cohort
    )
    uploads = jax.tree.map(np.asarray, ups.after)
    step = jaxfl.server_step(algorithm)
    alone, models, weights = step(state, uploads, np.asarray(data().sizes), key=key)
    close(models, jit(algorithm.models)(after, cohort))
    close(weights, info.weights)
    close(alone.clients.memory.model, after.clients.memory.model)


def test_a_client_that_has_not_reported_has_no_weight_in_a_server_step():
    algorithm = jaxfl.algorithms.fedavg(shallow())
    models = jax.tree.map(
        lambda x: (
            np.arange(4.0, dtype=np.float32).reshape(4, *[1] * x.ndim) + np.zeros(x.shape, x.dtype)
        ),
        shallow().problem.init(jax.random.key(0)),
    )
    step = jaxfl.server_step(algorithm)
    _, mean, weights = step(None, models, [1, 1, 2, 6], reported=[True, True, True, False])
    np.testing.assert_allclose(weights[0], [0.25, 0.25, 0.5, 0])
    assert all(np.allclose(x, 1.25) for x in jax.tree.leaves(mean))
    for rubbish in np.float32([np.nan, 3e38]):
        broken = jax.tree.map(lambda x, fill=rubbish: np.where(x == 3, fill, x), models)
        close(step(None, broken, [1, 1, 2, 6]).models, mean)


def test_a_server_step_keeps_no_record_of_a_client_that_has_not_reported():
    """FedAMP's server keeps the last model of each client."""
    algorithm = jaxfl.algorithms.fedamp(shallow())
    model = shallow().problem.init(jax.random.key(0))
    models = jax.tree.map(lambda x: np.ones((4, *x.shape), np.float32), model)
    reported = [True, True, True, False]
    state, *_ = jaxfl.server_step(algorithm)(None, models, [1, 1, 2, 6], reported)
    np.testing.assert_array_equal(state.clients.record.seen, reported)


def test_a_server_step_does_not_take_one_model_of_a_client_that_sends_two():
    algorithm = jaxfl.algorithms.pfedgraph(shallow(), alpha="measured")
    model = shallow().problem.init(jax.random.key(0))
    models = jax.tree.map(lambda x: np.ones((4, *x.shape), np.float32), model)
    with pytest.raises(InputError, match="give them in the form"):
        jaxfl.server_step(algorithm)(None, models, [1, 1, 2, 6])


def test_rounds_of_other_forms_than_composition_knows_are_refused():
    task = shallow()
    wire = jaxfl.algorithms.fedavg(task).wire
    (exchange,) = wire.exchanges
    with pytest.raises(InputError, match="ends a round"):
        jaxfl.compose(task, wire._replace(exchanges=(Exchange(exchange.client), exchange)))

    def server(*arguments):
        outcome = exchange.server(*arguments)
        return outcome._replace(reply=wire.download(outcome.state))

    exchanges = (Exchange(exchange.client, server),) * 3
    many = jaxfl.compose(task, wire._replace(exchanges=exchanges))
    state = many.init(jax.random.key(0), data().train)
    with pytest.raises(InputError, match="more than 2 messages"):
        many.round(jax.random.key(0), state, Cohort(jnp.arange(C), data().train, data().val, 0))


@pytest.mark.parametrize(
    ("uploads", "sizes", "words"),
    [
        ("models", [1, 2], "of [2, 4] clients"),
        ("wrong", [1, 1, 1, 1], "give them in the form"),
        ("scalar", [1, 1, 1, 1], "one row a client"),
    ],
)
def test_a_server_step_says_in_one_line_what_is_wrong_with_uploads(uploads, sizes, words):
    algorithm = jaxfl.algorithms.fedavg(shallow())
    model = shallow().problem.init(jax.random.key(0))
    models = jax.tree.map(lambda x: np.zeros((4, *x.shape), np.float32), model)
    given = {"models": models, "wrong": {"w": np.zeros((4, 3))}, "scalar": {"w": 3.0}}[uploads]
    with pytest.raises(InputError) as error:
        jaxfl.server_step(algorithm)(None, given, sizes)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_nothing_is_learned_from_a_message_that_was_lost(factory):
    """What stood in it beside the model, which composition takes out, changes nothing either."""
    wire = of_messages(factory, shallow()).wire
    key = jax.random.key(3)
    reported = jnp.arange(C) != 1
    others = np.flatnonzero(reported)
    cohort = Cohort(jnp.arange(C), data().train, data().val, 0)
    messages = []

    def results(lost):
        """The server's state, and of those who reported the replies and the rows of weights."""
        memory, known = wire.init(jax.random.key(0), data().train)
        down = wire.download(known)
        outcomes = []
        for exchange in wire.exchanges:
            memory, ups, _ = exchange.client(key, memory, down, cohort)
            if exchange.server is None:
                break
            uploads = []
            for up in ups_of(ups):
                after = tree.choose(reported, up.after, up.before)
                nothing = jax.tree.map(lambda x: jnp.full_like(x, lost), up.plain)
                plain = tree.choose(reported, up.plain, nothing)
                messages.append(plain)
                uploads.append(Uploads(cohort.ids, data().sizes, reported, after, up.before, plain))
            one = isinstance(ups, Up)
            outcome = exchange.server(key, known, uploads[0] if one else tuple(uploads))
            known, down = outcome.state, outcome.reply._replace(counted=reported)
            rows = jax.tree.map(lambda x: x[others], (down.each, outcome.weights))
            outcomes.append((known, down.common, rows, outcome.metrics))
        return outcomes

    program = jax.jit(results).lower(0.0)
    if not jax.tree.leaves(messages):
        pytest.skip("its clients send models alone")
    program = program.compile()
    equal(program(0.0), program(1.0))
