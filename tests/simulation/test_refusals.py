"""What a program in Python may get wrong is refused in one line of jaxfl's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import full, jit, linear, made, opposite_groups, quick_key

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.messages import ServerState
from jaxfl.core.types import Cohort

KEY = quick_key(0)
MODEL = jaxfl.models.mlp(2, hidden=())
X = np.zeros(8, np.float32)


def local():
    return made(jaxfl.algorithms.local)


def start(data):
    return jit(local().init)(KEY, data.train)


def evaluate(ids, data=None, state=None, key=KEY):
    data = opposite_groups() if data is None else data
    state = start(opposite_groups()) if state is None else state
    return jaxfl.make_evaluate(local(), linear(), after="none")(key, data, state, ids)


def rounds(*, key=KEY, federation=None, length=1, algorithm=None, **data_changes):
    data = opposite_groups()._replace(**data_changes)
    algorithm = algorithm or local()
    state = jit(algorithm.init)(KEY, data.train)
    run = jaxfl.make_rounds(algorithm, full(6))
    return run(key, data if federation is None else federation, state, 0, length)


def float_labels():
    train = opposite_groups().train
    return rounds(train=train._replace(y=train.y.astype(jnp.float32)))


def batch_axis():
    task = jaxfl.classification(MODEL, np.zeros((40, 8)), steps=1)
    return rounds(algorithm=jaxfl.algorithms.local(task))


IDS = jnp.arange(6)
CASES = {
    "optimizer of supervised is 'adam': expected": lambda: jaxfl.classification(
        MODEL, X, optimizer="adam"
    ),
    "the optimiser is the function adam": lambda: jaxfl.classification(
        MODEL, X, optimizer=optax.adam
    ),
    "expected a module of flax.linen": lambda: jaxfl.classification(jaxfl.models.linear, X),
    "fedavg is a function: expected the algorithm": lambda: jaxfl.make_rounds(
        jaxfl.algorithms.fedavg, full(6)
    ),
    "the algorithm has type Task": lambda: jaxfl.make_rounds(linear(), full(6)),
    "the participation is 6": lambda: jaxfl.make_rounds(local(), 6),
    "the task has type Algorithm": lambda: jaxfl.make_evaluate(local(), local()),
    "unknown hyper-parameter of fedprox 'lam'": lambda: jaxfl.algorithms.fedprox(linear(), lam=1.0),
    "the key has type int32": lambda: linear().problem.init(0),
    "expected a key such as jax.random.key(0)": lambda: local().init(0, opposite_groups().train),
    "the task of fedavg has type str": lambda: jaxfl.algorithms.fedavg("digits"),
    "expected one example without an axis of the batch": batch_axis,
    "the labels of a batch are float32": float_labels,
    "the key has type int": lambda: rounds(key=0),
    "the federation has type Dataset": lambda: rounds(federation=opposite_groups().train),
    "have different numbers of clients": lambda: rounds(test=opposite_groups(clients=5).test),
    "the number of rounds is 2.0": lambda: rounds(length=2.0),
    "the ids have type list": lambda: evaluate([0, 1]),
    "the ids name client 99": lambda: evaluate(jnp.array([1, 99])),
    "the ids name client -1": lambda: evaluate(jnp.array([-1])),
    "the ids are float32": lambda: evaluate(jnp.array([1.0])),
    "the ids are bool": lambda: evaluate(jnp.ones(6, bool)),
    "the federation has 5 clients": lambda: evaluate(IDS, data=opposite_groups(clients=5)),
    "the federation has type State": lambda: evaluate(IDS, data=start(opposite_groups())),
    "the state has type str": lambda: evaluate(IDS, state="state"),
    "the state is of another algorithm": lambda: evaluate(
        IDS, state=jit(made(jaxfl.algorithms.fedavg).init)(KEY, opposite_groups().train)
    ),
    "the key has type int: expected": lambda: evaluate(IDS, key=0),
    "fedavg is a function": lambda: jaxfl.server_step(jaxfl.algorithms.fedavg),
    "keep something from one exchange of a round to the next": lambda: step_within_a_round(),
}


def step_within_a_round():
    """The server's step of a method whose clients choose in a second exchange."""
    algorithm, train = made(jaxfl.algorithms.safe_graph), opposite_groups().train
    state = jit(algorithm.init)(KEY, train)
    down = jit(algorithm.wire.download)(ServerState(state.server, state.clients.record))
    client, cohort = algorithm.wire.exchanges[0].client, Cohort(IDS, train, train, 0)
    _, shapes, _ = jax.eval_shape(client, KEY, state.clients.memory, down, cohort)
    up = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)
    sizes = np.full(IDS.size, 9)
    step = jaxfl.server_step(algorithm)
    return step(state, up.after, sizes, before=up.before, plain=up.plain, data=train)


@pytest.mark.parametrize("message", CASES)
def test_it_is_refused_in_one_line(message, without_types):
    with pytest.raises(InputError) as refused:
        CASES[message]()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_evaluation_in_a_trace_is_not_checked():
    data, state = opposite_groups(), start(opposite_groups())
    scores = jax.jit(lambda ids: evaluate(ids, data, state))(IDS)
    np.testing.assert_array_equal(scores.deployed.test, evaluate(IDS, data, state).deployed.test)


def test_a_client_may_be_scored_twice():
    scores = evaluate(jnp.array([3, 3]))
    assert scores.deployed.test[0] == scores.deployed.test[1]
