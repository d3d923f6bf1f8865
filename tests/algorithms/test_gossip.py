"""Gossip and push-sum: rounds beside NumPy, what is counted, and graphs from files."""

import jax.numpy as jnp
import numpy as np
import pytest
from toys import close, deployed, federation, made, quadratic, quick_key, run, trained

import jaxfl
from jaxfl.algorithms import fedavg, gossip, local, push_sum
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.graphs.measures import spectral_gap

CLIENTS = 5
rng = np.random.default_rng(0)
X = [(c + 0.3 * rng.normal(size=(20, 3))).astype(np.float32) for c in range(CLIENTS)]
DATA = federation(X, [np.zeros(20, np.int32)] * CLIENTS)
# A path of four clients and a client alone.
PATH = np.zeros((CLIENTS, CLIENTS), int)
PATH[[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]] = 1


def first_models(algorithm):
    state = algorithm.init(quick_key(0), DATA.train)
    models = rng.normal(size=(CLIENTS, 3)).astype(np.float32)
    memory = {"w": jnp.asarray(models)}
    if not isinstance(state.clients.memory, dict):
        memory = state.clients.memory._replace(total=memory)
    return state._replace(clients=Clients(memory)), models


def test_rounds_of_gossip_on_a_path_equal_numpy():
    """Degrees 1, 2, 2, 1 and 0; each edge weighs 1 / 3."""
    algorithm = gossip(quadratic(), graph=PATH)
    state, models = first_models(algorithm)
    state, info, _ = run(algorithm, DATA, 2, state=state)
    expected = np.eye(CLIENTS)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        expected[[a, b], [b, a]] += 1 / 3
        expected[[a, b], [a, b]] -= 1 / 3
    np.testing.assert_allclose(info.weights[1], expected, atol=1e-6)
    for number in range(2):
        models = expected @ trained(models, DATA, number)
    np.testing.assert_allclose(state.clients.memory["w"], models, atol=1e-5)
    for floats in (info.up, info.down):
        assert floats[0].tolist() == [3, 6, 6, 3, 0]
    assert spectral_gap(info.weights[0]) == 0  # one client is alone


def test_rounds_of_push_sum_equal_numpy():
    """Client 0 sends to all others and hears from client 1 alone."""
    graph = np.zeros((CLIENTS, CLIENTS))
    graph[1:, 0] = 1
    graph[0, 1] = 1
    graph[[2, 3, 4], [1, 2, 3]] = 1
    graph[1, 4] = 1
    algorithm = push_sum(quadratic(), graph=graph)
    state, x = first_models(algorithm)
    state, info, _ = run(algorithm, DATA, 3, state=state)
    shares = graph + np.eye(CLIENTS)
    shares = shares / shares.sum(axis=0)
    w = np.ones(CLIENTS)
    for number in range(3):
        z = x / w[:, None]
        x = shares @ (x + trained(z, DATA, number) - z)
        before = w
        w = shares @ w
    np.testing.assert_allclose(state.clients.memory.weight, w, rtol=1e-5)
    np.testing.assert_allclose(deployed(algorithm, state, CLIENTS)["w"], x / w[:, None], atol=1e-5)
    np.testing.assert_allclose(info.weights[2], shares * before / w[:, None], atol=1e-6)
    assert info.up[0].tolist() == [4 * sent for sent in (4, 2, 1, 1, 1)]
    assert info.down[0].tolist() == [4 * got for got in (1, 2, 2, 2, 2)]
    # The shares that clients have got are 1 at first, and the weights are then not those of P.
    second = np.sort(np.abs(np.linalg.eigvals(shares / shares.sum(axis=1, keepdims=True))))[-2]
    np.testing.assert_allclose(spectral_gap(info.weights[0]), 1 - second, atol=1e-3)


@pytest.mark.parametrize("graph", ["one_peer", "ring"])
def test_without_training_push_sum_finds_the_mean_of_the_first_models(graph):
    algorithm = push_sum(quadratic(learning_rate=0.0), graph=graph)
    state, models = first_models(algorithm)
    state, _, _ = run(algorithm, DATA, 30, state=state)
    found = deployed(algorithm, state, CLIENTS)["w"]
    np.testing.assert_allclose(found, np.tile(models.mean(axis=0), (CLIENTS, 1)), atol=5e-3)


def test_push_sum_refuses_graphs_on_which_somebody_hears_nobody():
    """Client 0 sends to client 1 and hears nobody: its model would be 0 / 0 in the end."""
    graph = np.zeros((4, 4))
    graph[[1, 2, 3, 1], [0, 1, 2, 3]] = 1
    with pytest.raises(InputError, match="no path leads from client 1 to client 0"):
        push_sum(quadratic(), graph=graph)
    with pytest.raises(InputError, match="no path leads from client 0 to client 1"):
        push_sum(quadratic(), graph=graph.T)
    with pytest.raises(InputError, match="not strongly connected"):
        push_sum(quadratic(), graph=np.zeros((4, 4)))
    graph[0, 3] = 1
    push_sum(quadratic(), graph=graph)


def test_on_the_complete_graph_gossip_is_fedavg_of_equal_clients():
    found, info, _ = run(gossip(quadratic(), graph="complete"), DATA, 2)
    expected, _, _ = run(made(fedavg, quadratic), DATA, 2)
    np.testing.assert_allclose(
        found.clients.memory["w"], np.tile(expected.server["w"], (CLIENTS, 1)), atol=1e-5
    )
    assert spectral_gap(info.weights[0]) == pytest.approx(1, abs=1e-5)


def test_a_client_that_keeps_everything_trains_alone():
    alone, _, _ = run(made(local, quadratic), DATA, 2)
    for algorithm in (gossip(quadratic(), own=1.0), push_sum(quadratic(), own=1.0)):
        state, _, _ = run(algorithm, DATA, 2)
        close(deployed(algorithm, state, CLIENTS), alone.clients.memory)


def test_a_part_of_a_given_graph_serves_a_cohort(tmp_path):
    """Of the path 0 - 1 - 2 - 3, clients 0, 2 and 3 have one edge."""
    file = str(tmp_path / "path.npy")
    np.save(file, PATH)
    who = jaxfl.participation.schedule(np.array([[3, 0, 2]]))
    _, info, ids = run(gossip(quadratic(), graph=file), DATA, 1, participation=who)
    expected = np.array([[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    places = np.searchsorted([0, 2, 3], ids[0])
    np.testing.assert_allclose(info.weights[0], expected[np.ix_(places, places)], atol=1e-6)


def test_graphs_that_are_none_are_refused_in_one_line(tmp_path):
    file = str(tmp_path / "objects.npy")
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot be read: expected an array of numbers"):
        gossip(quadratic(), graph=file)
    with pytest.raises(InputError, match=r"a \.npy file that exists, or one of ring, grid"):
        gossip(quadratic(), graph="rings")
    with pytest.raises(InputError, match="directed: expected a symmetric matrix"):
        gossip(quadratic(), graph=np.triu(np.ones((5, 5))))
    np.save(file, np.ones((5, 4)))
    with pytest.raises(InputError, match="expected a square matrix"):
        push_sum(quadratic(), graph=file)
    with pytest.raises(InputError, match="the graph has 4 clients, and there are 5"):
        gossip(quadratic(), graph=np.ones((4, 4))).init(quick_key(0), DATA.train)
