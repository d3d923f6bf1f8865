"""The picture of how weights change with the depth of the model, of weights made by hand."""

import numpy as np
import pytest

from jaxfl.data import from_arrays
from jaxfl.experiment.pictures import depth, graphs
from jaxfl.experiment.pictures.client_colours import clients_of

SOURCE = from_arrays(np.zeros((40, 1)), np.arange(40) % 4, np.zeros((4, 1)), np.arange(4))
PARTS = [np.arange(10 * client, 10 * client + 10) for client in range(4)]
GROUPS = np.array([0, 0, 1, 1])
EQUAL = np.full((4, 4), 0.25)
WITHIN = np.kron(np.eye(2), np.full((2, 2), 0.5))
IDS = np.array([2, 0, 3, 1])


def graph_of(*matrices):
    """The weights of layers, of clients in another order than their ids."""
    by_layer = {
        f"weights_block{number}/up": matrix[np.ix_(IDS, IDS)]
        for number, matrix in enumerate(matrices)
    }
    return graphs.Graph(by_layer, IDS)


def curves_of(panel):
    return {line.get_label(): line.get_ydata().tolist() for line in panel.lines}


def test_curves_say_how_each_layer_is_mixed():
    figure = depth.draw_depth(
        graph_of(EQUAL, WITHIN, np.eye(4)), clients_of(SOURCE, PARTS, GROUPS), "round 3"
    )
    shares, numbers, *matrices = figure.subfigs[0].axes + figure.subfigs[1].axes
    assert curves_of(shares) == {
        "on itself": [0.25, 0.5, 1.0],
        "on its true group, with itself": [0.5, 1.0, 1.0],
    }
    np.testing.assert_allclose(next(iter(curves_of(numbers).values())), [4, 2, 1])
    names = [f"block{number}/up" for number in range(3)]
    assert [text.get_text() for text in shares.get_xticklabels()] == names
    shown = [panel.get_title().splitlines()[0] for panel in matrices if panel.images]
    assert shown == names
    # Clients stand in the order of the picture, group by group.
    np.testing.assert_array_equal(matrices[1].images[0].get_array(), WITHIN)


def test_malicious_clients_are_no_receivers_and_no_group():
    clients = clients_of(SOURCE, PARTS, GROUPS, np.array([False, False, False, True]))
    # Client 3 attacks, and client 2 listens to it.
    weights = np.array([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.25, 0.75], [1, 0, 0, 0]])
    curves = depth.measures_by_layer(graph_of(weights), clients)
    assert curves["on itself"] == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert curves["on its true group, with itself"] == pytest.approx((1 + 1 + 0.25) / 3)


def test_without_groups_there_is_no_weight_on_them():
    assert list(depth.measures_by_layer(graph_of(EQUAL), clients_of(SOURCE, PARTS))) == [
        "on itself",
        depth.COLLABORATORS,
    ]


def test_of_many_layers_all_are_in_the_curves_and_some_have_a_matrix():
    figure = depth.draw_depth(graph_of(*[WITHIN] * 30), clients_of(SOURCE, PARTS, GROUPS), "")
    above, below = figure.subfigs
    assert len(above.axes[0].lines[0].get_ydata()) == 30
    shown = [panel.get_title().splitlines()[0] for panel in below.axes if panel.images]
    assert (len(shown), shown[0], shown[-1]) == (depth.MATRICES, "block0/up", "block29/up")
    assert below.get_supxlabel() == "sender (12 of 30 layers)"


def test_other_pictures_draw_some_of_many_parts():
    graph, clients = graph_of(*[EQUAL, WITHIN] * 10), clients_of(SOURCE, PARTS)
    figure = graphs.draw_graph(graph, clients, "")
    titles = [panel.get_title() for panel in figure.axes if panel.get_label() == "matrix"]
    assert len(titles) == graphs.PARTS
    assert titles[-1] == "mixing weights of block19/up"
    several = graphs.draw_graphs({"pfedla": graph}, clients)
    assert several.get_supxlabel().splitlines()[-1] == "pfedla: 6 of 20 parts"
