"""Pictures of mixing weights and of scores."""

import io

import numpy as np
import pytest
from finished_runs import evaluated_run, run
from PIL import Image

from jaxfl.algorithms import ALGORITHMS
from jaxfl.data import from_arrays
from jaxfl.experiment import Config
from jaxfl.experiment.pictures import client_network as network
from jaxfl.experiment.pictures import curves, drawing, graphs
from jaxfl.experiment.pictures.client_colours import clients_of
from jaxfl.experiment.store import files
from jaxfl.experiment.tables.heading import graph_title

CLIENTS = 10
SOURCE = from_arrays(np.zeros((40, 1)), np.arange(40) % 4, np.zeros((4, 1)), np.arange(4))
# Clients with an even number hold the labels 0 and 1, the others 2 and 3.
PARTS = [
    np.flatnonzero((np.arange(40) % 4 // 2 == client % 2) & (np.arange(40) // 8 == client // 2))
    for client in range(CLIENTS)
]
GROUPS = np.arange(CLIENTS) % 2


def texts(panel):
    return [text.get_text() for text in panel.texts]


def test_a_panel_names_the_method_and_the_part_of_its_model():
    ids = np.arange(2)
    mean = np.full((2, 2), 0.5)
    figure = graphs.draw_graphs(
        {
            "fedavg": graphs.Graph({"weights": mean}, ids),
            "fedbn": graphs.Graph({"weights_shared": mean, "weights_norms": np.eye(2)}, ids),
        },
        clients_of(SOURCE, PARTS[:2]),
    )
    first, second = (axes.get_title().splitlines()[0] for axes in figure.axes)
    assert first == "fedavg and 1 more"
    assert second == "fedbn (norms)"
    assert figure.get_supxlabel() == "sender\nfedavg: also fedbn (shared)"


def test_groups_stand_side_by_side_in_outlines_and_malicious_clients_last():
    malicious = np.zeros(CLIENTS, bool)
    malicious[[0, 1]] = True
    clients = clients_of(SOURCE, PARTS, GROUPS, malicious)
    assert clients.order.tolist() == [2, 4, 6, 8, 3, 5, 7, 9, 0, 1]
    weights = np.full((CLIENTS, CLIENTS), 0.1)
    figure = graphs.draw_graph(
        graphs.Graph({"weights": weights}, np.arange(CLIENTS)), clients, "the last round"
    )
    outlines = [
        (patch.get_x() + 0.5, patch.get_width())
        for patch in figure.axes[0].patches
        if hasattr(patch, "get_width")
    ]
    assert outlines == [(0, 4), (4, 4)]
    colours = {tuple(clients.colours[client]) for client in range(CLIENTS)}
    assert len(colours) == 2


def test_an_arrow_goes_from_the_sender_to_the_receiver():
    weights = np.eye(3)
    weights[2] = [0.4, 0, 0.6]  # client 2 learns from client 0
    assert network.edges(weights) == [(2, 0)]
    figure = graphs.draw_graph(
        graphs.Graph({"weights": weights}, np.arange(3)), clients_of(SOURCE, PARTS[:3]), "few"
    )
    panel = figure.axes[1]
    (arrow,) = panel.patches
    place = {text.get_text(): text.get_position() for text in panel.texts}
    start, end = arrow._posA_posB
    assert start == pytest.approx(place["0"])
    assert end == pytest.approx(place["2"])


def test_of_many_clients_only_the_three_strongest_senders_of_each_have_an_arrow():
    weights = np.tile(np.arange(1.0, 21.0), (20, 1))
    weights /= weights.sum(axis=1, keepdims=True)
    found = network.edges(weights)
    for receiver in range(20):
        senders = {sender for to, sender in found if to == receiver}
        assert senders == set([other for other in (19, 18, 17, 16) if other != receiver][:3])


@pytest.mark.parametrize("groups", [None, GROUPS, np.arange(CLIENTS) // 3])
def test_no_two_nodes_of_a_network_touch(groups):
    points, radius = network.places(groups, CLIENTS)
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    assert distances[~np.eye(CLIENTS, dtype=bool)].min() > 2 * radius
    assert np.abs(points).max() <= 1 + 1e-9


@pytest.mark.parametrize("count", [4, CLIENTS])
def test_no_node_is_cut_off_at_the_edge(count):
    graph = graphs.Graph({"weights": np.eye(count)}, np.arange(count))
    figure = graphs.draw_graph(graph, clients_of(SOURCE, PARTS[:count]), "")
    figure.canvas.draw()
    panel = figure.axes[1]
    (nodes,) = panel.collections
    pixels = figure.dpi / 72  # of a point
    radius = pixels * (np.sqrt(nodes.get_sizes()[0]) + nodes.get_linewidths()[0]) / 2
    places = panel.transData.transform(nodes.get_offsets())
    assert (places.min(axis=0) - radius > panel.bbox.min).all()
    assert (places.max(axis=0) + radius < panel.bbox.max).all()


def test_the_pictures_of_the_rounds_are_one_that_moves():
    clients = clients_of(SOURCE, PARTS)
    config = Config(algorithm="pfedgraph", clients=CLIENTS)
    matrices = [np.eye(CLIENTS), np.full((CLIENTS, CLIENTS), 0.1)]
    frames = [
        graphs.draw_graph(
            graphs.Graph({"weights": weights}, np.arange(CLIENTS)),
            clients,
            graph_title(config, number),
        )
        for number, weights in enumerate(matrices, 1)
    ]
    assert "round 2" in frames[1].get_suptitle()


@pytest.mark.pictures
def test_frames_become_a_gif():
    frames = []
    for height in (1.0, 2.0):
        figure, (panel,) = drawing.canvas(1, width=1.0, height=1.0)
        panel.plot([0, height])
        frames.append(figure)
    with Image.open(io.BytesIO(drawing.gif(frames, 100))) as picture:
        assert picture.format == "GIF"
        assert picture.n_frames == 2


@pytest.mark.pictures
@pytest.mark.parametrize(
    ("format", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]
)
def test_the_same_figure_gives_the_same_bytes_in_every_format(format, start):
    contents = []
    for _ in range(2):
        figure, (panel,) = drawing.canvas(1, width=1.0, height=1.0)
        panel.plot([0, 1])
        contents.append(drawing.render(figure, format))
    assert contents[0].startswith(start)
    assert contents[0] == contents[1]


def test_a_loss_of_zero_throughout_is_drawn_without_a_warning():
    """pytest turns the warning of a logarithmic scale without positive values into an error."""
    scales = []
    for loss in (0.0, 0.5):
        lines = [
            line | {"loss": loss} for line in evaluated_run("local", 1.0, 1.0, fine_tuned=1.0).lines
        ]
        scales.append(curves.draw_curves(lines).axes[1].get_yscale())
    assert scales == ["linear", "log"]


def test_what_was_not_scored_has_no_mark_and_no_curve():
    one = evaluated_run("local", 0.5, 0.5)
    comparison = curves.draw_comparison({"local": one})
    labels = [text.get_text() for text in comparison.subfigs[0].legends[0].get_texts()]
    assert labels == ["mean over clients", "worst clients"]
    alone = curves.draw_curves(one.lines)
    assert texts(alone.axes[0]) == ["deployed", "worst clients"]


def test_a_method_has_one_colour_whatever_its_rank():
    first = curves.draw_comparison(
        {"local": evaluated_run("local", 0.9, 0.9), "ditto": evaluated_run("ditto", 0.1, 0.1)}
    )
    second = curves.draw_comparison(
        {"ditto": evaluated_run("ditto", 0.9, 0.9), "fedavg": evaluated_run("fedavg", 0.1, 0.1)}
    )
    colours = [
        {text.get_text(): text.get_color() for text in figure.axes[0].texts}
        for figure in (first, second)
    ]
    assert colours[0]["ditto"] == colours[1]["ditto"]
    styles = drawing.line_styles({name: name for name in ALGORITHMS})
    assert len({(style["color"], style["linestyle"]) for style in styles.values()}) == len(styles)


def test_runs_of_one_method_differ_in_style():
    styles = drawing.line_styles({"ditto": "ditto", "ditto:lam=1": "ditto"})
    assert styles["ditto"] != styles["ditto:lam=1"]


def test_of_many_runs_the_best_the_references_and_the_chosen_have_labels():
    scores = {name: 0.9 - 0.01 * place for place, name in enumerate(ALGORITHMS)}
    runs = {name: evaluated_run(name, 0.1, score) for name, score in scores.items()}
    names = list(ALGORITHMS)
    figure = curves.draw_comparison(runs, highlight=["scaffold"])
    assert set(texts(figure.axes[0])) == {*names[:5], "local", "fedavg", "scaffold"}


def test_at_most_ten_curves_have_names_but_for_those_that_are_chosen():
    labels = [f"fedavg:{place}" for place in range(30)]
    runs = {name: evaluated_run("fedavg", 0.1, 0.9 - 0.01 * k) for k, name in enumerate(labels)}
    assert set(texts(curves.draw_comparison(runs).axes[0])) == set(labels[:10])
    figure = curves.draw_comparison(runs, highlight=labels[10:])
    assert set(texts(figure.axes[0])) == set(labels[10:])


def test_runs_with_one_evaluation_have_bars_and_no_axis_of_rounds():
    runs = {"local": evaluated_run("local", 0.5), "ditto": evaluated_run("ditto", 0.75)}
    figure = curves.draw_comparison(runs)
    (panel,) = figure.axes
    assert [bar.get_width() for bar in panel.patches] == [75.0, 50.0]
    runs["local"] = evaluated_run("local", 0.25, 0.5)
    assert [panel.get_xlabel() for panel in curves.draw_comparison(runs).axes] == ["round", ""]


def test_runs_and_scores_are_called_as_asked_and_a_title_is_left_out():
    runs = {name: run(name, 0.5) for name in ("local", "ditto")}
    names = {"local": "Local $x$", "accuracy": "Acc"}
    figure = curves.draw_comparison(runs, names=names, title=False)
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert set(labels) == {r"Local \$x\$", "ditto"}
    assert figure.axes[0].get_title() == "Acc, last round"
    assert figure.subfigs[0].get_suptitle() == ""
    assert "digits" in curves.draw_comparison(runs).subfigs[0].get_suptitle()


@pytest.mark.pictures
@pytest.mark.parametrize("parts", [1, 2])
def test_each_panel_of_a_graph_is_a_file_of_its_own(tmp_path, parts):
    weights = {f"weights_{part}": np.eye(CLIENTS) for part in range(parts)}
    graph = graphs.Graph(weights, np.arange(CLIENTS))

    def draw():
        return graphs.draw_graph(graph, clients_of(SOURCE, PARTS), "")

    drawing.write_panels(tmp_path, "graph", draw, ["png", "svg"])
    names = {f"graph-{panel}.{end}" for panel in ("matrix", "network") for end in ("png", "svg")}
    assert {file.name for file in tmp_path.iterdir()} == names
    assert names <= set(files.RUN_FILES)
    matrix, network = ((tmp_path / f"graph-{one}.svg").read_text() for one in ("matrix", "network"))
    assert "receiver" in matrix
    assert "who learns" not in matrix
    assert network.count("who learns from whom") == parts
    assert "receiver</text>" not in network
    with Image.open(tmp_path / "graph-matrix.png") as picture:
        assert picture.height > 0.7 * parts * picture.width


def test_labels_at_the_ends_of_lines_do_not_touch():
    places = drawing.spread_out([50.0, 50.1, 50.2, 70.0, 99.9, 100.0], 3.0, 100.0)
    assert (np.diff(places) > 3.0 - 1e-9).all()
    assert max(places) <= 100.0
    assert places[3] == 70.0


def test_scores_of_seeds_have_a_band_and_a_deviation():
    several = evaluated_run("local", 0.5, 0.6, seeds=(0.5, 0.7))
    figure = curves.draw_comparison({"local": several})
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(60 + np.std([50, 70], ddof=1))
    assert any("±14.1" in text for text in texts(figure.axes[1]))
    alone = curves.draw_comparison({"local": evaluated_run("local", 0.5, 0.6)})
    assert not alone.axes[0].collections
