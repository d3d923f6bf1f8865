"""A served method is the method of `make_rounds`."""

import copy
import re
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

import served
from flower_nodes import Nodes, floats
from flwr.app import ArrayRecord, ConfigRecord
from served import CLIENTS, EXAMPLE, alike, app_of, lossy, method, serve, simulate, strategy_of
from toys import shallow

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.algorithms.steps.composition import compose
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.serve.client_half import served_wire
from jaxfl.serve.forms import form_of
from jaxfl.uplink import attack, chain, clip_to_median, gaussian, top_k

# FedCedar is served as soon as it is written as messages.
NAMES = [
    name
    for name in (
        "fedavg",
        "pfedgraph",
        "ditto",
        "fedper",
        "gossip",
        "fedavgm",
        "fedcedar",
        "fedfomo",
    )
    if ALGORITHMS[name](shallow()).wire is not None
]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES[:2])
def test_all_clients_learn_what_they_learn_in_make_rounds(name):
    algorithm = method(name)
    strategy, _ = serve(algorithm, 3)
    alike(strategy, *simulate(algorithm, 3))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:no answer came in time from")
@pytest.mark.parametrize("name", NAMES)
def test_some_clients_and_lost_replies_are_those_of_make_rounds(name):
    algorithm = method(name)
    some = jaxfl.participation.uniform(CLIENTS, 0.67)
    state, info, scores, ids = lossy(algorithm, 5, some, jaxfl.work.drop(0.3))
    assert info.lost.any()
    gone = [set(round_ids[lost].tolist()) for round_ids, lost in zip(ids, info.lost, strict=True)]

    def lost(kind, number, client):
        return kind == "train" and client in gone[number]

    strategy, _ = serve(algorithm, 5, participation=some, lost=lost)
    alike(strategy, state, info, scores)
    assert strategy.half.steps[0]._cache_size() == 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["lg_fedavg", "fedproto"])
def test_clients_with_models_of_two_architectures_learn_what_they_learn_in_make_rounds(name):
    other = jaxfl.classification(
        jaxfl.models.mlp(2, hidden=(9, 8)), EXAMPLE[0], steps=5, batch_size=8
    )
    task = jaxfl.heterogeneous({"a": shallow(), "b": other}, np.arange(CLIENTS) % 2)
    algorithm = method(name, task)
    strategy, _ = serve(algorithm, 3, task)
    alike(strategy, *simulate(algorithm, 3, task))


@pytest.mark.slow
def test_each_side_applies_its_half_of_the_uplink():
    malicious = np.arange(CLIENTS) == 1
    uplink = chain(attack("sign_flip", malicious), gaussian(clip=1.0, noise=0.1), top_k(0.5))
    task = shallow(uplink=uplink, defence=clip_to_median)
    algorithm = method("fedavg", task)
    strategy, _ = serve(algorithm, 3, task)
    alike(strategy, *simulate(algorithm, 3, task))


@pytest.mark.slow
def test_a_client_gets_its_own_arrays_and_a_reply_once():
    strategy, grid = serve(method("pfedgraph"), 2)
    to_first = [(kind, content) for kind, client, content in grid.sent if client == 0]
    assert [kind for kind, _ in to_first] == ["query", "train", "evaluate", "train", "evaluate"]
    sizes = [floats(content) for _, content in to_first]
    model = 90  # 8 * 8 + 8 + 8 * 2 + 2
    assert sizes == [{}, {}, {"reply-arrays": 2 * model}, {}, {"reply-arrays": 2 * model}]
    assert [log.down.tolist() for log in strategy.rounds] == [[0] * CLIENTS] * 2
    assert [log.up.tolist() for log in strategy.rounds] == [[model] * CLIENTS] * 2


@pytest.mark.slow
def test_clients_that_are_away_come_back():
    algorithm = method("pfedgraph")
    strategy, grid = strategy_of(algorithm), Nodes(app_of(algorithm), CLIENTS)
    away = [{0, 1}, set(), {4}]
    for number, clients in enumerate(away):
        grid.away = clients
        strategy.start(grid, num_rounds=number + 1)
    grid.away = set()
    strategy.evaluate_every = 3
    messages = strategy.configure_evaluate(0, ArrayRecord(), ConfigRecord(), grid)
    strategy.aggregate_evaluate(0, grid.send_and_receive(messages))

    def absent(number, ids):
        return jnp.isin(ids, jnp.array(sorted(away[number]), int))

    alike(strategy, *simulate(algorithm, 3, loses=absent))


@pytest.mark.slow
def test_a_node_takes_over_the_client_that_another_node_was():
    algorithm = method("fedavg")
    strategy, grid = strategy_of(algorithm), Nodes(app_of(algorithm), CLIENTS)
    strategy.start(grid, num_rounds=1)
    context = grid.contexts.pop(102)
    grid.contexts[202] = context
    strategy.start(grid, num_rounds=2)
    assert strategy.rounds[1].reported.all()
    alike(strategy, *simulate(algorithm, 2))


@pytest.mark.slow
def test_a_client_that_goes_back_to_an_older_memory_gets_its_last_reply_again():
    algorithm = method("pfedgraph")
    strategy, grid = strategy_of(algorithm, evaluate_every=0), Nodes(app_of(algorithm), CLIENTS)
    strategy.start(grid, num_rounds=1)
    older = [copy.deepcopy(grid.contexts[node]) for node in (102, 103)]
    strategy.evaluate_every = 1
    messages = strategy.configure_evaluate(0, ArrayRecord(), ConfigRecord(), grid)
    strategy.aggregate_evaluate(0, grid.send_and_receive(messages))
    strategy.evaluate_every = 0
    # Client 2 is on another node, and client 3 on the same one.
    del grid.contexts[102]
    grid.contexts[202], grid.contexts[103] = older
    with pytest.warns(RunWarning, match=r"client 3 .* its node could not answer"):
        strategy.start(grid, num_rounds=2)
    strategy.start(grid, num_rounds=3)
    reported = [log.reported.tolist() for log in strategy.rounds[1:]]
    assert reported == [[True, True, True, False, True, True], [True] * CLIENTS]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"partition-id": 77}, "node 103 says that it is client 77: expected 0 to 5"),
        ({}, "node 103 does not say which client it is"),
    ],
)
def test_a_node_that_is_no_client_takes_no_part(config, message):
    algorithm = method("fedavg")
    strategy, grid = strategy_of(algorithm), Nodes(app_of(algorithm), CLIENTS)
    grid.contexts[103].node_config = config
    with pytest.warns(RunWarning, match=message):
        strategy.start(grid, num_rounds=1)
    assert strategy.rounds[0].reported.tolist() == [True, True, True, False, True, True]


def test_what_cannot_be_served_is_said_in_one_line():
    algorithm = method("fedavg")
    with pytest.raises(InputError, match=r"not written as messages"):
        strategy_of(algorithm._replace(wire=None))
    with pytest.raises(InputError, match=r"one function for both sides"):
        strategy_of(algorithm, shallow()._replace(upload=lambda *_: None))
    wire = algorithm.wire

    def init(key, train):
        memory, state = wire.init(key, train)
        return memory, state._replace(server=(state.server, train.x.mean()))

    with pytest.raises(InputError, match=r"reads the data of all clients before its first round"):
        strategy_of(compose(shallow(), wire._replace(init=init)))
    # Its messages are not those of its rounds.
    with pytest.raises(InputError, match=r"not written as messages"):
        strategy_of(algorithm._replace(round=lambda *arguments: algorithm.round(*arguments)))


def test_a_defence_that_clients_can_evade_is_warned_of():
    """Gossip's clients train from models that only they have."""
    task = shallow(defence=clip_to_median)
    with pytest.warns(RunWarning, match=r"a client tells from where its update starts"):
        strategy = strategy_of(method("gossip", task), task)
    assert strategy.form.exchanges[0].starts == ("client",)
    with warnings.catch_warnings(action="error"):
        strategy_of(method("fedavg", task), task)


@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("client", "the clients of the method keep something of another form"),
        ("server", "the server of the method keeps something of another form"),
    ],
)
def test_what_is_kept_in_another_form_is_refused(side, message):
    wire = method("ditto").wire
    before = wire.exchanges[0]

    def client(*arguments):
        memory, ups, report = before.client(*arguments)
        return (memory, memory), ups, report

    def server(*arguments):
        outcome = before.server(*arguments)
        state = outcome.state
        return outcome._replace(state=state._replace(server=(state.server, state.server)))

    changed = before._replace(**{side: {"client": client, "server": server}[side]})
    changed = wire._replace(exchanges=(changed, *wire.exchanges[1:]))
    with pytest.raises(InputError, match=message):
        form_of(changed, shallow().upload, served.EXAMPLE, CLIENTS, CLIENTS)


@pytest.mark.slow(seconds=90)
def test_the_page_names_the_methods_that_are_refused():
    page = (Path(__file__).parents[2] / "docs" / "guides" / "deployment.md").read_text()
    section = page.partition("## Methods that are refused")[2].partition("\n## ")[0]
    names = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert names == {name for name in ALGORITHMS if is_refused(name)}


def is_refused(name):
    """Whether a method is refused, in one line; the messages of the others have a form."""
    wire = method(name).wire
    form, lines = None, []
    try:
        form = form_of(
            served_wire(method(name)), shallow().upload, served.EXAMPLE, CLIENTS, CLIENTS
        )
    except InputError as error:
        lines = str(error).splitlines()
    if form is None:
        assert len(lines) == 1, name
        return True
    assert len(form.exchanges) == sum(each.server is not None for each in wire.exchanges), name
    return False


@pytest.mark.slow
def test_logs_have_the_weights_and_the_scores():
    strategy, _ = serve(method("fedavg"), 1)
    assert strategy.rounds[0].weights.shape == (CLIENTS, CLIENTS)
    # A model of 8 * 8 + 8 + 8 * 2 + 2 numbers goes to each client and comes back.
    assert strategy.rounds[0].down.tolist() == strategy.rounds[0].up.tolist() == [90] * CLIENTS
    assert strategy.scores[0].ids.tolist() == list(range(CLIENTS))
    assert served.EXAMPLE[0].shape == (8,)
