"""Pictures of thousands of clients: neighbours are drawn as their means."""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from jaxfl.data import from_arrays
from jaxfl.experiment.html.client_figures import graph_view, holding_view
from jaxfl.experiment.pictures import client_network as network
from jaxfl.experiment.pictures import graphs
from jaxfl.experiment.pictures import partition_picture as partition
from jaxfl.experiment.pictures.client_colours import clients_of
from jaxfl.experiment.pictures.drawing import render
from jaxfl.experiment.pictures.graphs import Graph
from jaxfl.experiment.pictures.neighbour_means import bin_edges, mean_weights

MANY = 1203
LABELS = 4
SOURCE = from_arrays(
    np.zeros((2 * MANY, 1)), np.arange(2 * MANY) % LABELS, np.zeros((4, 1)), np.arange(4)
)
# Client c holds two examples: of the labels 0 and 1, or 2 and 3.
PARTS = list(np.arange(2 * MANY).reshape(MANY, 2))
GROUPS = np.arange(MANY) % 2


def weights_of_groups(own=0.6):
    """Half of what a client takes from others is from its own group, evenly."""
    weights = np.zeros((MANY, MANY), np.float32)
    for group in (0, 1):
        members = np.flatnonzero(group == GROUPS)
        weights[np.ix_(members, members)] = (1 - own) / 2 / (members.size - 1)
        others = np.flatnonzero(group != GROUPS)
        weights[np.ix_(members, others)] = (1 - own) / 2 / others.size
    np.fill_diagonal(weights, own)
    return weights


def drawn(panel):
    """The matrix of a panel."""
    (image,) = panel.images
    return np.asarray(image.get_array())


@pytest.mark.parametrize(("count", "most"), [(7, 3), (6, 3), (5, 5), (1, 4), (9, 2)])
def test_means_are_those_of_all_pairs_of_two_clients(count, most):
    rng = np.random.default_rng(count)
    weights = rng.random((count, count))
    order = rng.permutation(count)
    edges = bin_edges(count, most)
    means = mean_weights(weights, order, edges)
    bins = [order[start:end] for start, end in pairwise(edges)]
    assert len(bins) <= most
    assert sorted(np.concatenate(bins)) == list(range(count))
    for row, receivers in zip(means, bins, strict=True):
        for mean, senders in zip(row, bins, strict=True):
            pairs = [weights[i, j] for i in receivers for j in senders if i != j]
            assert mean == pytest.approx(np.mean(pairs) if pairs else 0.0)


def test_a_graph_has_no_more_cells_and_arrows_than_can_be_seen():
    clients = clients_of(SOURCE, PARTS, GROUPS)
    graph = Graph({"weights": weights_of_groups()}, np.arange(MANY))
    figure = graphs.draw_graph(graph, clients, "a crowd")
    matrix, circles = figure.axes[:2]
    assert drawn(matrix).shape == (401, 401)
    # The own weights of .6 would leave all others of one colour.
    assert drawn(matrix).max() < 0.001
    assert "means of 3 x 3 clients" in matrix.get_title()
    assert "whose mean is 0.60" in matrix.get_title()
    outlines = [patch for patch in matrix.patches if isinstance(patch, Rectangle)]
    assert [outline.get_width() for outline in outlines] == [602, 601]
    assert [text.get_text() for text in circles.texts] == ["602", "601"]
    assert len(circles.patches) == 2
    assert "inside a circle: 20%" in circles.get_title()
    assert len(render(figure)) < 1_000_000


def test_the_weight_inside_a_group_is_that_of_the_others_in_it():
    size, count = 4, 60
    inside = (np.ones((size, size)) - np.eye(size)) / (size - 1)
    weights = np.kron(np.eye(count), inside)
    # Neighbours in the order of the matrix are parts of four.
    clients = clients_of(SOURCE, PARTS, np.repeat(np.arange(MANY), size)[:MANY])
    order = np.arange(size * count)
    figure, panel = plt.subplots()
    network.draw_network_of_groups(panel, weights, order, order, clients)
    assert "inside a circle: 100%" in panel.get_title()
    plt.close(figure)


def test_clients_without_groups_are_drawn_in_parts():
    clients = clients_of(SOURCE, PARTS, malicious=np.arange(MANY) < 3)
    graph = Graph({"weights": weights_of_groups()}, np.arange(MANY))
    panel = graphs.draw_graph(graph, clients, "a crowd").axes[1]
    assert sum(int(text.get_text()) for text in panel.texts) == MANY
    assert len(panel.texts) <= network.PARTS
    assert len(panel.patches) <= network.STRONGEST * network.PARTS


def test_graphs_side_by_side_have_few_cells_too():
    graph = Graph({"weights": weights_of_groups()}, np.arange(MANY))
    figure = graphs.draw_graphs({"a": graph}, clients_of(SOURCE, PARTS))
    assert max(drawn(figure.axes[0]).shape) <= graphs.SMALL_CELLS
    assert "means of neighbours" in figure.get_supxlabel()


def test_the_labels_of_many_clients_are_columns_that_can_be_seen():
    panel, bars = partition.draw_partition(SOURCE, PARTS, "a crowd").axes[:2]
    assert drawn(panel).shape == (LABELS, 401)
    # Clients with the labels 0 and 1 stand first, and each has one example of both.
    np.testing.assert_array_equal(drawn(panel)[:, 0], [1, 1, 0, 0])
    np.testing.assert_array_equal(drawn(panel)[:, -1], [0, 0, 1, 1])
    assert "means of 3 clients" in panel.get_title()
    assert len(bars.patches) == 1


def test_figures_of_a_page_have_no_more_cells_than_asked_for():
    clients = clients_of(SOURCE, PARTS, GROUPS)
    graph = Graph({"weights": weights_of_groups()}, np.arange(MANY))
    view = graph_view("a crowd", "", {1: graph}, clients, most=50)
    (frame,) = view["frames"]
    assert len(frame["clients"]) == len(frame["z"]) == len(set(frame["clients"])) == 49
    assert frame["clients"][0].endswith(" and 24 more")
    assert [shape["x1"] for shape in frame["shapes"]] == pytest.approx([23.58, 47.62])
    counts = np.tile([1, 1, 0, 0], (MANY, 1))
    cells, bars = holding_view("", counts, list("abcd"), clients, 50)["figure"]["data"]
    assert np.shape(cells["z"]) == (LABELS, 49)
    assert set(bars["y"]) == {2}
