"""Hierarchies beside nested means, and beside HierFAVG's rounds in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from toys import federation, init_key, made, quadratic, run

import jaxfl
from jaxfl.algorithms import fedavg, gossip, local
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.core.types import State
from jaxfl.graphs.hierarchy import given_weights, hierarchy
from jaxfl.graphs.measures import spectral_gap

CLIENTS = 6
SERVER_OF = np.array([2, 0, 0, 1, 2, 2])
SIZES = np.array([5, 1, 3, 7, 2, 13])
rng = np.random.default_rng(0)
MODELS = rng.normal(size=(CLIENTS, 3))
LENGTHS = [20, 10, 15, 25, 30, 40]
X = [(c + rng.normal(size=(n, 3))).astype(np.float32) for c, n in enumerate(LENGTHS)]
DATA = federation(X, [np.zeros(n, np.int32) for n in LENGTHS])


def edge_means(models, server_of, sizes):
    """The model of each server, and how many examples it stands for."""
    means, totals = {}, {}
    for server in np.unique(server_of):
        own = server_of == server
        means[server] = np.average(models[own], axis=0, weights=sizes[own])
        totals[server] = sizes[own].sum()
    return means, totals


def nested(models, server_of, sizes, graph):
    """The mean over the clients of each server, the mean over servers, given to the clients."""
    means, totals = edge_means(models, server_of, sizes)
    result = []
    for server in server_of:
        if isinstance(graph, str) and graph == "cloud":
            result.append(sum(totals[s] * means[s] for s in means) / sum(totals.values()))
        elif isinstance(graph, str):
            result.append(means[server])
        else:
            result.append(sum(graph[server, s] * means[s] for s in means))
    return np.array(result)


GRAPH = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [0.0, 0.1, 0.9]])


@pytest.mark.parametrize("graph", ["cloud", "alone", GRAPH], ids=["cloud", "alone", "given"])
def test_the_product_is_that_of_nested_means(graph):
    weights = np.asarray(hierarchy(SERVER_OF, SIZES, 3, graph))
    assert weights.min() >= 0
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    expected = nested(MODELS, SERVER_OF, SIZES, graph)
    np.testing.assert_allclose(weights @ MODELS, expected, atol=1e-6)


def test_with_the_cloud_every_row_is_that_of_fedavg():
    weights = hierarchy(SERVER_OF, SIZES, 3)
    np.testing.assert_allclose(weights, np.tile(SIZES / SIZES.sum(), (CLIENTS, 1)), rtol=1e-6)


def test_servers_without_examples_count_in_no_mean():
    """Server 1 has nobody and server 3 only clients without examples."""
    server_of, sizes = np.array([0, 0, 2, 3]), np.array([1, 1, 2, 0])
    graph = np.full((4, 4), 0.25)
    weights = np.asarray(hierarchy(server_of, sizes, 4, graph))
    np.testing.assert_allclose(weights, np.tile([0.25, 0.25, 0.5, 0], (4, 1)), atol=1e-6)
    alone = np.asarray(hierarchy(server_of, sizes, 4, "alone"))
    np.testing.assert_array_equal(alone[3], [0, 0, 0, 1])


def trained(models, number):
    start = State(Clients({"w": jnp.asarray(models, jnp.float32)}), ())
    state, _, _ = run(made(local, quadratic), DATA, 1, state=start, start=number)
    return np.asarray(state.clients.memory["w"], np.float64)


def hierfavg(rounds, servers, every):
    """Edge means after each round of local steps; in each k-th round the cloud's mean of them."""
    algorithm = gossip(quadratic(), graph="hierarchy", servers=servers, every=every)
    state, info, _ = run(algorithm, DATA, rounds)
    begin = algorithm.init(init_key(), DATA.train).clients.memory["w"]
    models = np.asarray(begin, np.float64)
    sizes = np.array(LENGTHS)
    server_of = np.arange(CLIENTS) % servers
    for number in range(rounds):
        models = trained(models, number)
        cloud = (number + 1) % every == 0
        models = nested(models, server_of, sizes, "cloud" if cloud else "alone")
    return state, info, models


@pytest.mark.slow
def test_rounds_of_gossip_on_a_hierarchy_are_those_of_hierfavg():
    state, info, expected = hierfavg(rounds=4, servers=2, every=2)
    np.testing.assert_allclose(state.clients.memory["w"], expected, atol=1e-5)
    # Without the cloud there are two eigenvalues 1, with it all models are equal at once.
    gaps = [spectral_gap(weights) for weights in info.weights]
    np.testing.assert_allclose(gaps, [0, 1, 0, 1], atol=1e-3)
    np.testing.assert_array_equal(info.up, np.full((4, CLIENTS), 3))


@pytest.mark.slow
def test_one_server_or_a_cloud_in_every_round_is_fedavg():
    expected, _, _ = run(made(fedavg, quadratic), DATA, 2)
    for options in ({"servers": 1, "every": 5}, {"servers": 3, "every": 1}):
        state, _, _ = run(gossip(quadratic(), graph="hierarchy", **options), DATA, 2)
        wanted = np.tile(expected.server["w"], (CLIENTS, 1))
        np.testing.assert_allclose(state.clients.memory["w"], wanted, atol=1e-5)


@pytest.mark.slow
def test_given_weights_are_taken_in_turn_and_by_cohorts(tmp_path):
    """An array or a file, of a hierarchy, gives what its name gives."""
    servers = np.arange(CLIENTS) % 2, np.array(LENGTHS), 2
    in_turn = np.stack([hierarchy(*servers, g) for g in ("alone", "alone", "cloud")])
    file = str(tmp_path / "weights.npy")
    np.save(file, in_turn)
    expected, said, _ = run(gossip(quadratic(), graph="hierarchy", servers=2, every=3), DATA, 4)
    for given in (in_turn, file):
        state, info, _ = run(gossip(quadratic(), graph=given, weights="given"), DATA, 4)
        np.testing.assert_allclose(info.weights, said.weights, atol=1e-6)
        np.testing.assert_allclose(
            state.clients.memory["w"], expected.clients.memory["w"], atol=1e-5
        )
    assert info.up[0].tolist() == [3 * 2] * CLIENTS  # two others of the same server
    assert info.up[2].tolist() == [3 * 5] * CLIENTS
    # Clients 1 and 3 have one server, client 2 the other.
    who = jaxfl.participation.schedule(np.array([[1, 2, 3]]))
    for given in ({"graph": file, "weights": "given"}, {"graph": "hierarchy", "every": 3}):
        _, info, ids = run(gossip(quadratic(), **given), DATA, 1, participation=who)
        share = LENGTHS[1] / (LENGTHS[1] + LENGTHS[3])
        rows = {1: {1: share, 3: 1 - share}, 2: {2: 1.0}, 3: {1: share, 3: 1 - share}}
        wanted = [[rows[i].get(j, 0.0) for j in ids[0].tolist()] for i in ids[0].tolist()]
        np.testing.assert_allclose(info.weights[0], wanted, atol=1e-6)


@pytest.mark.slow
def test_a_client_whose_upload_is_lost_is_in_no_mean():
    spoilt = DATA._replace(train=DATA.train._replace(x=DATA.train.x.at[2].set(np.nan)))
    for options in (
        {"graph": "hierarchy", "servers": 2},
        {"graph": np.full((6, 6), 1 / 6), "weights": "given"},
    ):
        algorithm = gossip(quadratic(), **options)
        state, info, _ = run(algorithm, spoilt, 1)
        rows = np.asarray(info.weights[0])
        np.testing.assert_array_equal(rows[2], np.eye(6)[2])
        assert not np.delete(rows, 2, axis=0)[:, 2].any()
        np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)
        assert np.isfinite(state.clients.memory["w"]).all()


def test_what_is_no_hierarchy_is_refused_in_one_line():
    with pytest.raises(InputError, match="with rows that sum to 1"):
        hierarchy(SERVER_OF, SIZES, 3, np.ones((3, 3)))
    with pytest.raises(InputError, match=r"expected \(3, 3\)"):
        hierarchy(SERVER_OF, SIZES, 3, np.eye(2))
    with pytest.raises(InputError, match="server_of holds 0 to 2: expected numbers from 0 to 1"):
        hierarchy(SERVER_OF, SIZES, 2)
    with pytest.raises(InputError, match="expected a square matrix"):
        given_weights(np.ones((2, 3)))
    with pytest.raises(InputError, match="with rows that sum to 1"):
        gossip(quadratic(), graph=-np.eye(3), weights="given")
    with pytest.raises(InputError, match="the mixing weights are of 3 clients, and there are 6"):
        gossip(quadratic(), graph=np.eye(3), weights="given").init(init_key(), DATA.train)
    with pytest.raises(InputError, match=r"a \.npy file that exists"):
        gossip(quadratic(), graph="ring", weights="given")
    with pytest.raises(InputError, match="leave out one"):
        gossip(quadratic(), graph="hierarchy", weights="given")
