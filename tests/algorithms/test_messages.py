"""The server's step alone, and rounds of other forms, beside `jaxfl.testing.message_rules`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import SIZES, close, jit, once, opposite_groups, quick_key, run, shallow

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Exchange, ServerState
from jaxfl.core.types import Cohort

C = len(SIZES)


@once
def data():
    return opposite_groups(sizes=SIZES)


@pytest.mark.slow
def test_a_server_step_takes_arrays_of_anybody_and_gives_the_models_of_the_round():
    """pFedGraph's aggregates and weights by the step alone are those of a round."""
    algorithm = jaxfl.algorithms.pfedgraph(shallow())
    state, _, _ = run(algorithm, data(), 1)
    key = quick_key(3)
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
        shallow().problem.init(quick_key(0)),
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
    model = shallow().problem.init(quick_key(0))
    models = jax.tree.map(lambda x: np.ones((4, *x.shape), np.float32), model)
    reported = [True, True, True, False]
    state, *_ = jaxfl.server_step(algorithm)(None, models, [1, 1, 2, 6], reported)
    np.testing.assert_array_equal(state.clients.record.seen, reported)


def test_a_server_step_does_not_take_one_model_of_a_client_that_sends_two():
    algorithm = jaxfl.algorithms.measured_graph(shallow())
    model = shallow().problem.init(quick_key(0))
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
    state = many.init(quick_key(0), data().train)
    with pytest.raises(InputError, match="more than 2 messages"):
        many.round(quick_key(0), state, Cohort(jnp.arange(C), data().train, data().val, 0))


@pytest.mark.parametrize(
    ("uploads", "sizes", "words"),
    [
        ("models", [1, 2], "of [2, 4] clients"),
        ("wrong", [1, 1, 1, 1], "give them in the form"),
        ("scalar", [1, 1, 1, 1], "one row a client"),
        ("models", [1, -2, 1, 1], "sizes has -2 for client 1: expected a number of examples"),
        ("models", [1, 1, np.nan, 1], "sizes has nan for client 2"),
        ("models", ["1", "1", "1", "1"], "expected a number of examples for each client"),
    ],
)
def test_a_server_step_says_in_one_line_what_is_wrong_with_uploads(uploads, sizes, words):
    algorithm = jaxfl.algorithms.fedavg(shallow())
    model = shallow().problem.init(quick_key(0))
    models = jax.tree.map(lambda x: np.zeros((4, *x.shape), np.float32), model)
    given = {"models": models, "wrong": {"w": np.zeros((4, 3))}, "scalar": {"w": 3.0}}[uploads]
    with pytest.raises(InputError) as error:
        jaxfl.server_step(algorithm)(None, given, sizes)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
