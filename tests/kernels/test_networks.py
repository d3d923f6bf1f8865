"""Networks of clients and the weights on them."""

import time

import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.core.errors import InputError
from jaxfl.graphs.networks import DIRECTED_NETWORKS, NETWORKS
from jaxfl.graphs.pairs import erdos_renyi_pairs, matrix_of, random_regular_pairs
from jaxfl.kernels.gossip import column_stochastic, metropolis


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("clients", [6, 16])
def test_metropolis_weights_of_every_network_are_doubly_stochastic(name, clients):
    for pairs in NETWORKS[name](clients, 4, 0):
        graph = matrix_of(pairs, clients)
        weights = np.asarray(metropolis(jnp.float32(graph), jnp.ones(clients, bool)))
        assert weights.min() >= 0
        np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-6)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("name", sorted(DIRECTED_NETWORKS))
def test_shares_sum_to_one_for_each_sender(name):
    reported = np.arange(7) != 3
    for pairs in DIRECTED_NETWORKS[name](7, 4, 0):
        graph = matrix_of(pairs, 7)
        shares = np.asarray(column_stochastic(jnp.float32(graph), jnp.asarray(reported), 0.2))
        np.testing.assert_allclose(shares.sum(axis=0), 1, atol=1e-6)
        np.testing.assert_array_equal(shares[3], np.eye(7)[3])
        assert (np.diag(shares) >= 0.2).all()


def test_one_peer_for_each_power_of_two_is_an_exact_mean():
    """After log2 M rounds, of a number of clients that is a power of two."""
    total = np.eye(8)
    for pairs in NETWORKS["one_peer"](8, 0, 0):
        graph = matrix_of(pairs, 8)
        total = np.asarray(metropolis(jnp.float32(graph), jnp.ones(8, bool))) @ total
    np.testing.assert_allclose(total, 1 / 8, atol=1e-6)


@pytest.mark.parametrize(("nodes", "degree"), [(9, 4), (10, 3), (3, 4)])
def test_random_regular_graphs_have_equal_degrees_and_are_simple(nodes, degree):
    graph = matrix_of(random_regular_pairs(nodes, degree, seed=1), nodes)
    np.testing.assert_array_equal(graph, graph.T)
    np.testing.assert_array_equal(graph.sum(axis=0), min(degree, nodes - 1))
    assert not np.diag(graph).any()
    assert (
        nodes == 3 or (graph != matrix_of(random_regular_pairs(nodes, degree, seed=2), nodes)).any()
    )


def test_a_regular_graph_is_random_and_no_ring_of_near_clients():
    """Random graphs expand: the second eigenvalue is near 2 sqrt(degree - 1), that of a ring 4."""
    graph = matrix_of(random_regular_pairs(400, 4, seed=0), 400)
    moduli = np.sort(np.abs(np.linalg.eigvalsh(graph)))
    assert moduli[-2] < 2 * np.sqrt(3) + 0.15


def test_a_regular_graph_of_thousands_of_clients_is_made_in_seconds():
    began = time.process_time()
    graph = matrix_of(random_regular_pairs(2000, 3, seed=0), 2000)
    assert time.process_time() - began < 5
    assert (graph.sum(axis=0) == 3).all()


def test_a_regular_graph_of_degree_one_is_connected_for_two_clients_only():
    np.testing.assert_array_equal(
        matrix_of(random_regular_pairs(2, 1, seed=0), 2), [[0, 1], [1, 0]]
    )
    np.testing.assert_array_equal(matrix_of(random_regular_pairs(1, 4, seed=0), 1), [[0]])
    with pytest.raises(InputError, match="none of 100 graphs of 4 clients with degree 1"):
        matrix_of(random_regular_pairs(4, 1, seed=0), 4)


def test_a_regular_graph_of_odd_numbers_does_not_exist():
    with pytest.raises(InputError, match="expected an even degree"):
        matrix_of(random_regular_pairs(9, 3, seed=0), 9)


@pytest.mark.slow
def test_a_random_graph_that_cannot_be_connected_is_refused_at_once():
    began = time.process_time()
    with pytest.raises(InputError, match="183 of 10000 nodes of mean degree 4 have no edge"):
        erdos_renyi_pairs(10_000, 4.0, 0)
    assert time.process_time() - began < 1
