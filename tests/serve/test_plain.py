"""Clients that train without jaxfl."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flower_nodes import Nodes
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.core.types import Dataset, Fitted
from jaxfl.serve.flower import FlowerStrategy
from jaxfl.serve.plain import plain_task

CLIENTS = 4
MODEL = {"body.weight": np.ones((2, 3), np.float32), "head.bias": np.zeros(3, np.float32)}
TARGETS = np.arange(CLIENTS, dtype=np.float32)


def numpy_clients(asked, anonymous=False):
    """Clients that go half of the way to their targets, and know nothing of jaxfl."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        target = TARGETS[context.node_config["partition-id"]]
        model = {name: array.numpy() for name, array in message.content["arrays"].items()}
        trained = {name: Array((x + target) / 2) for name, x in model.items()}
        metrics = MetricRecord({"num-examples": 10, "loss": 1.0})
        return Message(
            RecordDict({"arrays": ArrayRecord(trained), "metrics": metrics}), reply_to=message
        )

    @app.evaluate()
    def evaluate(message, context):
        client = context.node_config["partition-id"]
        asked[client] = {k: v.numpy() for k, v in message.content["arrays"].items()}
        metrics = MetricRecord({"num-examples": 10, "test": float(asked[client]["head.bias"][0])})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    @app.query()
    def query(message, context):
        number = {} if anonymous else {"client": context.node_config["partition-id"]}
        return Message(RecordDict({"jaxfl": ConfigRecord(number)}), reply_to=message)

    return app


def jaxfl_clients():
    """The same clients by jaxfl."""
    task = plain_task(MODEL)

    def fit(key, params, anchor, cohort):
        targets = jnp.asarray(TARGETS)[cohort.ids]
        halfway = jax.tree.map(lambda x: (x + targets.reshape(-1, *[1] * (x.ndim - 1))) / 2, params)
        return Fitted(halfway, jnp.ones(cohort.ids.size), jnp.ones(cohort.ids.size, int))

    return task._replace(trainer=lambda objective, **changes: fit)


OPTIONS = {"fedper": {"head": "head"}, "fedbabu": {"head": "head"}}


def strategy_of(name, task):
    algorithm = ALGORITHMS[name](task, **OPTIONS.get(name, {}))
    return FlowerStrategy(
        algorithm,
        task,
        jaxfl.participation.uniform(CLIENTS, 0.75),
        clients=CLIENTS,
        key=jax.random.key(5),
        init_key=jax.random.key(1),
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:clients without jaxfl train on their loss alone")
@pytest.mark.parametrize("name", ["fedavg", "fedper", "gossip", "pfedgraph"])
def test_clients_with_arrays_alone_get_the_models_of_the_method(name):
    asked = {}
    strategy = strategy_of(name, plain_task(MODEL))
    strategy.start(Nodes(numpy_clients(asked), CLIENTS), num_rounds=4)
    algorithm = ALGORITHMS[name](jaxfl_clients(), **OPTIONS.get(name, {}))
    empty = Dataset(jnp.zeros((CLIENTS, 10)), jnp.zeros((CLIENTS, 10)), jnp.ones((CLIENTS, 10)))
    none = empty._replace(mask=jnp.zeros((CLIENTS, 10)))
    federation = jaxfl.types.Federation(empty, none, empty)
    state = algorithm.init(jax.random.key(1), empty)
    participation = jaxfl.participation.uniform(CLIENTS, 0.75)
    state, (info, _) = jaxfl.make_rounds(algorithm, participation)(
        jax.random.key(5), federation, state, 0, 4
    )
    models = algorithm.models(state, jaxfl.types.Cohort(jnp.arange(CLIENTS), empty, none))
    for client, model in asked.items():
        for layer, array in model.items():
            np.testing.assert_allclose(array, models[layer][client], atol=1e-6)
    assert len(asked) == CLIENTS
    weights = jax.tree.map(lambda *x: np.stack(x), *[log.weights for log in strategy.rounds])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), weights, info.weights)


def test_a_method_that_asks_clients_for_more_is_refused():
    with pytest.raises(InputError, match=r"asks clients for more than plain training"):
        strategy_of("ditto", plain_task(MODEL))


def test_a_term_that_clients_leave_out_is_said():
    with pytest.warns(RunWarning, match=r"train on their loss alone"):
        strategy_of("fedprox", plain_task(MODEL))


def test_a_term_that_a_method_has_not_is_not_said():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        strategy_of("fedbuff", plain_task(MODEL))


def test_nodes_without_a_number_are_clients_only_where_nobody_keeps_anything_for_a_client():
    asked = {}
    strategy_of("fedavg", plain_task(MODEL)).start(
        Nodes(numpy_clients(asked, anonymous=True), CLIENTS), num_rounds=1
    )
    assert len(asked) == CLIENTS
    strategy = strategy_of("fedper", plain_task(MODEL))
    with pytest.warns(RunWarning, match=r"node 10\d does not say which client it is"):
        strategy.start(Nodes(numpy_clients({}, anonymous=True), CLIENTS), num_rounds=1)
    assert not strategy.rounds[0].reported.any()


def test_a_method_that_sends_a_part_of_the_model_is_refused():
    with pytest.raises(InputError, match=r"1 arrays, which are not the whole model of 2"):
        strategy_of("fedbabu", plain_task(MODEL))


@pytest.mark.parametrize(
    ("array", "dtype"), [(np.zeros((), np.int64), "int64"), (np.zeros(3), "float64")]
)
def test_arrays_that_would_come_back_in_another_type_are_refused(array, dtype):
    with pytest.raises(InputError, match=rf"bn\.tracked is {dtype} in the first model"):
        plain_task({**MODEL, "bn.tracked": array})
