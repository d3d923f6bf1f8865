"""Loss, delay and parts of messages on the edges of a network, beside NumPy."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import federation, quadratic, quick_key, run, trained

import jaxfl
from jaxfl.algorithms import epidemic, gossip, push_sum
from jaxfl.algorithms.steps.composition import of_copies
from jaxfl.cli import main
from jaxfl.core.edges import SparseRows
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.graphs.measures import spectral_gap
from jaxfl.graphs.networks import network_of
from jaxfl.kernels import dense_rows, keep_own, mean_rows, metropolis_rows, neighbours_of, network

CLIENTS, NUMBERS = 6, 3
rng = np.random.default_rng(0)
X = [(c + 0.3 * rng.normal(size=(20, NUMBERS))).astype(np.float32) for c in range(CLIENTS)]
DATA = federation(X, [np.zeros(20, np.int32)] * CLIENTS)
RING = np.roll(np.eye(CLIENTS), 1, axis=1) + np.roll(np.eye(CLIENTS), -1, axis=1)
METHODS = [
    (gossip, {"graph": "random_regular"}),
    (gossip, {"graph": RING / 2, "weights": "given", "own": 0.2}),
    (epidemic, {"degree": 2}),
    (epidemic, {"peers": "random"}),
    (epidemic, {"peers": "dissimilar"}),
]


def with_models(algorithm):
    """A state whose clients have different models, and these models."""
    state = algorithm.init(quick_key(0), DATA.train)
    models = np.random.default_rng(1).normal(size=(CLIENTS, NUMBERS)).astype(np.float32)
    return state._replace(clients=state.clients._replace(memory={"w": jnp.asarray(models)})), models


def models_of(state):
    return np.asarray(state.clients.memory["w"])


def test_a_lost_message_leaves_its_weight_with_the_receiver():
    algorithm = gossip(quadratic(), graph="random_regular", degree=4, edge_loss=0.3)
    state, models = with_models(algorithm)
    state, info, _ = run(algorithm, DATA, 40, state=state)
    arrived = 0
    for number in range(40):
        weights = np.asarray(info.weights[number])
        others = weights - np.diag(np.diag(weights))
        # Whatever arrives weighs 1 / (1 + 4); the client has the rest.
        np.testing.assert_allclose(others[others > 0], 0.2, atol=1e-6)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
        models = weights @ trained(models, DATA, number)
        received = np.count_nonzero(others, axis=1)
        np.testing.assert_array_equal(info.down[number], NUMBERS * received)
        np.testing.assert_array_equal(info.up[number], 4 * NUMBERS)
        arrived += received.sum()
    np.testing.assert_allclose(models_of(state), models, atol=1e-5)
    messages = 40 * CLIENTS * 4
    assert abs(arrived / messages - 0.7) < 4 * np.sqrt(0.21 / messages)


def test_each_edge_has_its_own_probability():
    loss = np.zeros((CLIENTS, CLIENTS))
    loss[0, 1] = 1.0
    _, info, _ = run(gossip(quadratic(), graph=RING, edge_loss=loss), DATA, 10)
    weights = np.asarray(info.weights)
    assert (weights[:, 0, 1] == 0).all()
    np.testing.assert_allclose(weights[:, 1, 0], 1 / 3, atol=1e-6)
    np.testing.assert_allclose(weights[:, 0, 0], 2 / 3, atol=1e-6)


def test_edges_of_a_client_are_lost_independently_and_anew():
    _, info, _ = run(gossip(quadratic(), graph=RING, edge_loss=0.5), DATA, 300)
    weights = np.asarray(info.weights)
    left, right = (np.arange(CLIENTS) + 1) % CLIENTS, (np.arange(CLIENTS) - 1) % CLIENTS
    rows = np.arange(CLIENTS)
    lost = np.stack([weights[:, rows, left] == 0, weights[:, rows, right] == 0])  # [2, T, M]
    flat = np.concatenate([lost[0].T, lost[1].T])
    correlation = np.corrcoef(flat) - np.eye(2 * CLIENTS)
    assert np.abs(correlation).max() < 4 / np.sqrt(300)
    # From one round to the next.
    assert abs(np.corrcoef(flat[:, 1:].ravel(), flat[:, :-1].ravel())[0, 1]) < 4 / np.sqrt(3600)


def test_a_draw_depends_on_receiver_and_sender_alone():
    everybody = gossip(quadratic(), graph=np.ones((CLIENTS, CLIENTS)), edge_loss=0.5)
    _, all_info, _ = run(everybody, DATA, 1)
    who = jaxfl.participation.schedule(np.array([[5, 0, 2]]))
    _, some, ids = run(everybody, DATA, 1, participation=who)
    met = np.asarray(all_info.weights[0])[np.ix_(ids[0], ids[0])] > 0
    np.testing.assert_array_equal(np.asarray(some.weights[0]) > 0, met)


def test_messages_with_delays_are_the_models_of_earlier_rounds():
    delay = np.random.default_rng(2).integers(0, 4, size=(CLIENTS, CLIENTS))
    algorithm = gossip(quadratic(), graph=np.ones((CLIENTS, CLIENTS)), edge_delay=delay)
    state, models = with_models(algorithm)
    state, info, _ = run(algorithm, DATA, 6, state=state)
    sent = []
    for number in range(6):
        sent.append(trained(models, DATA, number))
        weights = np.eye(CLIENTS)
        models = sent[-1].copy()
        for receiver in range(CLIENTS):
            for sender in range(CLIENTS):
                age = delay[receiver, sender]
                if sender != receiver and age <= number:
                    share = 1 / CLIENTS
                    models[receiver] += share * (sent[number - age][sender] - sent[-1][receiver])
                    weights[receiver, [sender, receiver]] += share, -share
        np.testing.assert_allclose(info.weights[number], weights, atol=1e-6)
        received = np.count_nonzero(weights, axis=1) - 1
        np.testing.assert_array_equal(info.down[number], NUMBERS * received)
    np.testing.assert_allclose(models_of(state), models, atol=1e-5)


def test_a_delay_counts_the_rounds_of_the_sender():
    """Client 1 is away in round 1: in round 2 client 0 gets what client 1 sent in round 0."""
    algorithm = gossip(quadratic(learning_rate=0.0), graph=np.ones((3, 3)), edge_delay=1)
    data = federation(X[:3], [np.zeros(20, np.int32)] * 3)
    state = algorithm.init(quick_key(0), data.train)
    models = np.arange(9.0).reshape(3, 3).astype(np.float32)
    state = state._replace(clients=state.clients._replace(memory={"w": jnp.asarray(models)}))
    who = jaxfl.participation.schedule(np.array([[0, 1], [0, 2], [0, 1]]))
    state, info, _ = run(algorithm, data, 3, state=state, participation=who)
    assert np.asarray(info.weights[0]).tolist() == [[1, 0], [0, 1]]
    # Client 2 is new; client 0 has sent before.
    assert np.asarray(info.weights[1]).tolist() == [[1, 0], [0.5, 0.5]]
    assert np.asarray(info.weights[2]).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    np.testing.assert_allclose(models_of(state)[0], (models[0] + models[1]) / 2)
    np.testing.assert_allclose(models_of(state)[2], (models[0] + models[2]) / 2)


@pytest.mark.long(every=5)
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_a_number_that_was_not_sent_is_the_receivers_own(method, options):
    """With a learning rate of 0 each number of a mixture is one of few."""
    part = np.full((CLIENTS, CLIENTS), 0.5)
    part[3] = 1.0  # whatever client 3 receives is whole
    algorithm = method(quadratic(learning_rate=0.0), **options, edge_part=part)
    state, models = with_models(algorithm)
    after, info, _ = run(algorithm, DATA, 1, state=state)
    weights = np.asarray(info.weights[0])
    numbers = np.zeros(CLIENTS)
    for receiver in range(CLIENTS):
        senders = [j for j in np.flatnonzero(weights[receiver]) if j != receiver]
        found = models_of(after)[receiver]
        for place in range(NUMBERS):
            # All subsets of senders from which this number may have come.
            own = models[receiver, place]
            values = {}
            for subset in range(2 ** len(senders)):
                sent = [j for bit, j in enumerate(senders) if subset >> bit & 1]
                change = sum(weights[receiver, j] * (models[j, place] - own) for j in sent)
                values[len(sent), subset] = own + change
            near = [key for key, value in values.items() if abs(value - found[place]) < 1e-5]
            assert len(near) == 1
            numbers[receiver] += near[0][0]
        if receiver == 3:
            assert numbers[receiver] == NUMBERS * len(senders)
    np.testing.assert_array_equal(info.down[0], numbers)
    assert int(np.sum(info.up[0])) == numbers.sum()


def test_a_part_is_sent_with_its_probability():
    algorithm = gossip(quadratic(), graph="complete", edge_part=0.3)
    _, info, _ = run(algorithm, DATA, 60)
    sent = NUMBERS * CLIENTS * (CLIENTS - 1) * 60
    share = np.sum(info.down) / sent
    assert abs(share - 0.3) < 4 * np.sqrt(0.21 / sent)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), METHODS)
def test_where_nothing_happens_to_messages_nothing_changes(method, options):
    """Conditions without an effect take the way of those that have one."""
    loss = np.zeros((CLIENTS, CLIENTS))
    expected, plain, _ = run(method(quadratic(), **options), DATA, 3)
    everything = {"edge_loss": jnp.float32(0), "edge_part": jnp.float32(1), "edge_delay": loss}
    for name in ("edge_loss", "edge_part"):
        found, info, _ = jax.jit(
            lambda value, name=name: run(method(quadratic(), **options, **{name: value}), DATA, 3)
        )(everything[name])
        np.testing.assert_allclose(models_of(found), models_of(expected), atol=1e-5)
        np.testing.assert_allclose(info.weights, plain.weights, atol=1e-6)
        np.testing.assert_array_equal(info.down, plain.down)


def test_push_sum_loses_messages_and_no_mass():
    algorithm = push_sum(quadratic(learning_rate=0.0), graph="exponential", edge_loss=0.4)
    state = algorithm.init(quick_key(0), DATA.train)
    models = np.random.default_rng(1).normal(size=(CLIENTS, NUMBERS)).astype(np.float32)
    memory = state.clients.memory._replace(total={"w": jnp.asarray(models)})
    state = state._replace(clients=Clients(memory))
    state, info, _ = run(algorithm, DATA, 60, state=state)
    total, weight = state.clients.memory
    np.testing.assert_allclose(np.asarray(total["w"]).sum(axis=0), models.sum(axis=0), atol=1e-4)
    assert float(weight.sum()) == pytest.approx(CLIENTS, abs=1e-4)
    mean = np.asarray(total["w"]) / np.asarray(weight)[:, None]
    np.testing.assert_allclose(mean, np.tile(models.mean(axis=0), (CLIENTS, 1)), atol=1e-3)
    assert np.sum(info.down) < 0.75 * np.sum(info.up)


def test_epidemic_takes_the_mean_of_what_arrived():
    _, info, _ = run(epidemic(quadratic(), degree=3, edge_loss=0.5), DATA, 5)
    for weights in np.asarray(info.weights):
        for row in weights:
            np.testing.assert_allclose(row[row > 0], 1 / np.count_nonzero(row), atol=1e-6)
    assert len({np.count_nonzero(row) for row in np.asarray(info.weights).reshape(-1, 6)}) > 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_loss": 1.5}, r"is 1\.5: expected a number in \[0, 1\] or an array \[clients, "),
        ({"edge_delay": -1}, "is -1: expected a whole number from 0 to 100 or an array"),
        ({"edge_delay": 0.5 * RING}, "edge_delay has 0.5 for the edge from client 1 to client 0"),
        ({"edge_loss": np.full((2, 2), np.nan)}, "edge_loss has nan for the edge from client 1"),
        ({"edge_part": np.zeros((0, 0))}, r"edge_part has shape \(0, 0\)"),
        ({"edge_part": 0.0}, r"is 0\.0: expected a number in \(0, 1\] or an array"),
        ({"edge_loss": -RING}, "edge_loss has -1.0 for the edge from client 1 to client 0"),
        ({"edge_part": jnp.zeros(())}, r"edge_part is 0\.0: expected a fraction in \(0, 1\]"),
        ({"edge_loss": np.zeros((4, 5))}, r"edge_loss has shape \(4, 5\)"),
        ({"edge_loss": "loss.txt"}, r"edge_loss in loss\.txt: expected a \.npy file that exists"),
        ({"edge_loss": np.zeros((4, 4)), "edge_part": np.ones((5, 5))}, "of 4 and 5 clients"),
    ],
)
def test_conditions_that_are_none_are_refused_in_one_line(options, message):
    for method in (gossip, epidemic):
        with pytest.raises(InputError, match=message):
            method(quadratic(), **options)


def test_the_diagonal_of_conditions_does_not_matter():
    delay = np.diag(np.full(CLIENTS, np.nan))
    plain, info, _ = run(gossip(quadratic(), graph=RING), DATA, 2)
    options = {"edge_loss": np.eye(CLIENTS), "edge_delay": delay, "edge_part": -np.eye(CLIENTS) + 1}
    found, same, _ = run(gossip(quadratic(), graph=RING, **options), DATA, 2)
    assert found.clients.record == ()
    np.testing.assert_allclose(models_of(found), models_of(plain), atol=1e-6)
    np.testing.assert_array_equal(same.down, info.down)


def test_a_delay_that_is_traced_is_refused_in_one_line():
    with pytest.raises(InputError, match="edge_delay is traced by jit, grad or vmap: expected"):
        jax.jit(lambda delay: gossip(quadratic(), edge_delay=delay))(RING)


def test_who_has_not_reported_receives_nothing_and_has_sent():
    """Client 1's upload is lost: both of its neighbours get one model less."""

    def lost(key, ids, work):
        return ids == 1

    algorithm = gossip(quadratic(), graph=RING)
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(CLIENTS), lost=lost)
    state = algorithm.init(quick_key(0), DATA.train)
    _, (info, _) = rounds(quick_key(0), DATA, state, 0, 1)
    assert info.up[0].tolist() == [2 * NUMBERS] * CLIENTS
    assert info.down[0].tolist() == [NUMBERS * n for n in (1, 0, 1, 2, 2, 2)]


@pytest.mark.slow
def test_rows_of_different_lengths_are_refused_in_one_line():
    """In the other tests beartype checks arguments too; in this process it does not."""
    program = "from jaxfl.graphs.links import links_of\nlinks_of(loss=[[0.1], [0.1, 0.2]])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "InputError: edge_loss has rows of different lengths: expected a number" in ended.stderr


def test_conditions_are_those_of_all_clients():
    for method in (gossip, epidemic, push_sum):
        algorithm = method(quadratic(), edge_loss=np.zeros((4, 4)))
        with pytest.raises(InputError, match="of 4 clients, and there are 6"):
            algorithm.init(quick_key(0), DATA.train)
    with pytest.raises(InputError, match="clients have no edges to each other"):
        gossip(quadratic(), graph="hierarchy", edge_loss=0.1)


def test_push_sum_refuses_a_network_that_dead_edges_divide():
    dead = np.zeros((CLIENTS, CLIENTS))
    dead[1, 0] = 1.0
    algorithm = push_sum(quadratic(), graph="ring", edge_loss=dead)
    message = "no path leads from client 0 to client 1: expected a path from each client"
    with pytest.raises(InputError, match=message):
        algorithm.init(quick_key(0), DATA.train)
    for graph in ("exponential", "one_peer", np.ones((CLIENTS, CLIENTS))):
        push_sum(quadratic(), graph=graph, edge_loss=dead).init(quick_key(0), DATA.train)
    push_sum(quadratic(), graph="ring", edge_loss=1.0).init(quick_key(0), DATA.train)


def test_traffic_that_no_counter_holds_counts_as_the_most():
    # Float64 as an independent reference.
    copies = np.array([2, 47, 48, 199, 300, 2**20])
    found = of_copies(11_200_000, jnp.asarray(copies))
    assert found.tolist() == [int(min(11_200_000.0 * n, 2.0**29)) for n in copies]


def test_conditions_come_from_files(tmp_path):
    file = str(tmp_path / "delay.npy")
    np.save(file, np.ones((CLIENTS, CLIENTS), np.uint8))
    found, _, _ = run(gossip(quadratic(), edge_delay=file), DATA, 3)
    expected, _, _ = run(gossip(quadratic(), edge_delay=1), DATA, 3)
    np.testing.assert_array_equal(models_of(found), models_of(expected))


SPARSE = [
    (gossip, {"graph": "ring"}),
    (gossip, {"graph": "ring", "edge_loss": 0.3, "edge_delay": 1, "edge_part": 0.5}),
    (epidemic, {"degree": 2}),
    (push_sum, {"graph": "exponential"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "options"), SPARSE)
def test_rounds_on_sparse_rows_are_those_on_matrices(method, options, monkeypatch):
    expected, dense, _ = run(method(quadratic(), **options), DATA, 3)
    monkeypatch.setattr(network, "MATRIX_UP_TO", 2)
    monkeypatch.setattr(network, "SPARSE_FROM", 1)
    found, info, _ = run(method(quadratic(), **options), DATA, 3)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found.clients, expected.clients
    )
    assert isinstance(info.weights, SparseRows)
    for number in range(3):
        rows = jax.tree.map(lambda x, number=number: x[number], info.weights)
        np.testing.assert_allclose(dense_rows(rows, CLIENTS), dense.weights[number], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        (gossip, {"graph": "ring"}),
        (gossip, {"graph": "random_regular", "edge_loss": 0.1, "edge_delay": 1, "edge_part": 0.5}),
        (epidemic, {"degree": 4}),
        (push_sum, {"graph": "one_peer"}),
    ],
)
def test_the_memory_of_a_round_grows_with_the_edges(method, options):
    """By the compiler's plan, of 4,096 and 8,192 clients: a matrix of these has 256 MiB."""

    def peak(clients):
        x = [np.zeros((1, NUMBERS), np.float32)] * clients
        data = federation(x, [np.zeros(1, np.int32)] * clients)
        algorithm = method(quadratic(), **options)
        rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(clients))
        state = jax.eval_shape(algorithm.init, quick_key(0), data.train)
        lowered = jax.jit(lambda key, data, state: rounds(key, data, state, 0, 1)).lower(
            quick_key(0), data, state
        )
        return lowered.compile().memory_analysis().temp_size_in_bytes

    few, many = peak(4096), peak(8192)
    assert many < 2.5 * few
    assert many < 64 * 2**20


def test_a_client_that_refuses_its_mixture_has_its_own_row_of_sparse_rows():
    rows = mean_rows(neighbours_of(jnp.asarray(RING, jnp.float32)))
    accepted = jnp.arange(CLIENTS) != 2
    found = dense_rows(keep_own(rows, accepted), CLIENTS)
    expected = np.where(accepted[:, None], (RING + np.eye(CLIENTS)) / 3, np.eye(CLIENTS))
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["ring", "random_regular"])
def test_the_gap_of_sparse_rows_is_that_of_their_matrix(graph):
    neighbours = network_of(graph, 4, 0, False).neighbours(jnp.arange(40), jnp.array(0))
    rows = metropolis_rows(neighbours)
    moduli = np.sort(np.abs(np.linalg.eigvalsh(np.asarray(dense_rows(rows, 40), float))))
    assert spectral_gap(rows) == pytest.approx(1 - moduli[-2], abs=2e-3)
    broken = rows._replace(values=rows.values.at[0, 0].set(jnp.nan))
    assert np.isnan(spectral_gap(broken))


@pytest.mark.slow
def test_a_run_on_sparse_rows_tells_its_gap_and_says_that_it_keeps_no_graph(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(network, "MATRIX_UP_TO", 2)
    monkeypatch.setattr(network, "SPARSE_FROM", 1)
    out = tmp_path / "run"
    options = ["--clients", "6", "--partition", "iid", "--rounds", "2", "--local-steps", "1"]
    options += ["--model", "linear", "--seeds", "2"]
    assert main(["run", "gossip", *options, "--out", str(out)]) == 0
    told = capsys.readouterr().err
    assert told.count("the weights of 6 clients are sparse rows") == 1
    assert not (out / "graph.npz").exists()
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    # A ring of six: 1/3 + 2/3 cos(60 degrees) is 2/3.
    assert last["metrics"]["spectral_gap"] == pytest.approx(1 / 3, abs=2e-3)
    assert "graph" not in last
