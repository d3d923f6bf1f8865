"""Graphs of servers."""

import numpy as np
import pytest

from jaxfl.graphs.topology import adjacency, ring


@pytest.mark.parametrize("servers", [1, 2, 3, 6])
def test_graphs_of_servers_are_found_by_name(servers):
    np.testing.assert_array_equal(adjacency("ring", servers), ring(servers))
    assert not adjacency("alone", servers).any()
    np.testing.assert_array_equal(ring(servers).sum(axis=1), min(servers - 1, 2))


def test_a_given_graph_stays_as_it_is():
    edge = np.array([[0, 1], [1, 0]])
    np.testing.assert_array_equal(adjacency(edge, 2), edge)
