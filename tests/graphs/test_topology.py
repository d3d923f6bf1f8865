"""Graphs of servers."""

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from jaxfl.graphs.networks import DIRECTED_NETWORKS
from jaxfl.graphs.pairs import unreached
from jaxfl.graphs.topology import adjacency, ring


@pytest.mark.parametrize("servers", [1, 2, 3, 6])
def test_graphs_of_servers_are_found_by_name(servers):
    np.testing.assert_array_equal(adjacency("ring", servers), ring(servers))
    assert not adjacency("alone", servers).any()
    np.testing.assert_array_equal(ring(servers).sum(axis=1), min(servers - 1, 2))


def test_a_given_graph_stays_as_it_is():
    edge = np.array([[0, 1], [1, 0]])
    np.testing.assert_array_equal(adjacency(edge, 2), edge)


def test_two_nodes_are_apart_where_scipy_finds_several_strong_components():
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(60):
        graph = (rng.random((7, 7)) < 0.35) * (1.0 - np.eye(7))
        count, labels = connected_components(graph, connection="strong")
        counts.append(count)
        apart = unreached(np.argwhere(graph), 7)
        assert (apart is None) == (count == 1)
        if apart is not None:
            sender, receiver = apart
            # Powers count the paths.
            paths = np.linalg.matrix_power(np.eye(7) + graph, 7)
            assert labels[sender] != labels[receiver]
            assert paths[receiver, sender] == 0
    assert 5 < counts.count(1) < 55


@pytest.mark.parametrize("name", DIRECTED_NETWORKS)
def test_named_directed_graphs_are_strongly_connected_over_their_turns(name):
    for clients in (1, 2, 5, 8):
        pairs = np.concatenate(DIRECTED_NETWORKS[name](clients, 0, 0))
        assert unreached(pairs, clients) is None
