"""Pictures call clients and labels by their names, where these have some."""

from dataclasses import replace

import numpy as np

from jaxfl.data import from_arrays, natural
from jaxfl.experiment.html.client_figures import holding_view
from jaxfl.experiment.pictures import graphs
from jaxfl.experiment.pictures import partition_picture as partition
from jaxfl.experiment.pictures.client_colours import clients_of

# North and west hold the label 1 alone, so that they stand behind the others.
OWNERS = np.arange(40) % 4
LABELS = np.where(OWNERS % 3, np.arange(40) // 4 % 2 * (OWNERS == 1), 1)
NAMES = ("north", "a very long name of a site", "$south", "west")
SOURCE = from_arrays(
    np.zeros((40, 1)), LABELS, owners=OWNERS, owner_names=NAMES, class_names=("alive", "died")
)
PARTS = natural(SOURCE.owners)


def ticks(labels):
    return [label.get_text() for label in labels]


def test_the_rows_the_columns_and_the_nodes_of_a_graph_have_the_names_of_clients():
    malicious = np.array([True, False, False, False])
    clients = clients_of(SOURCE, PARTS, malicious=malicious)
    ids = np.arange(4)
    figure = graphs.draw_graph(graphs.Graph({"weights": np.eye(4)}, ids), clients, "")
    panel, network = figure.axes[:2]
    shown = ticks(panel.get_yticklabels())
    assert ticks(panel.get_xticklabels()) == shown
    assert len(set(shown)) == 4
    assert max(map(len, shown)) == 20
    assert shown[-1] == "north"  # malicious clients stand last, in red
    assert panel.get_yticklabels()[-1].get_color() != panel.get_yticklabels()[0].get_color()
    assert [name in ("north", r"\$south", "west") for name in shown].count(True) == 3
    assert {"north", "west"} < {text.get_text() for text in network.texts}


def test_the_picture_of_a_partition_has_the_names_of_clients_and_labels():
    panel, bars = partition.draw_partition(SOURCE, PARTS, "").axes[:2]
    assert {"north", "west"} < set(ticks(bars.get_xticklabels()))
    assert ticks(panel.get_yticklabels()) == ["alive", "died"]
    # Each bar stands above the name of its client.
    counts = dict(zip(ticks(bars.get_xticklabels()), bars.patches, strict=True))
    assert counts["north"].get_height() == 10


def test_the_figures_of_a_page_have_the_names_of_clients():
    clients = clients_of(SOURCE, PARTS)
    counts = np.array([[0, 10], [5, 5], [10, 0], [0, 10]])
    view = holding_view("all", counts, ["alive", "died"], clients, most=10)
    text = str(view)
    assert all(name in text for name in ("north", "west", "a very long name of a site"))


def test_names_that_are_long_and_alike_stay_apart_on_a_page():
    names = [f"{'a' * 30}{number}{'b' * 30}" for number in range(4)]
    clients = replace(clients_of(SOURCE, PARTS), names=tuple(names))
    view = holding_view("all", np.ones((4, 2)), names[:2], clients, most=10)
    for axis in ("x", "y"):
        shown = view["figure"]["data"][0][axis]
        assert len(set(shown)) == len(shown)
