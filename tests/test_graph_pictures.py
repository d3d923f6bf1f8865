"""Pictures of mixing weights and of scores."""

import numpy as np

from jaxfl.data import from_arrays
from jaxfl.experiment.show import curves, graphs


def test_a_panel_names_the_method_and_the_part_of_its_model(monkeypatch):
    figures = []
    monkeypatch.setattr(graphs, "png", lambda figure: figures.append(figure) or b"")
    ids = np.arange(2)
    mean = np.full((2, 2), 0.5)
    source = from_arrays(np.zeros((4, 1)), np.array([0, 1, 0, 1]), np.zeros((2, 1)), np.arange(2))
    graphs.draw_graphs(
        {
            "fedavg": graphs.Graph({"weights": mean}, ids),
            "fedbn": graphs.Graph({"weights_shared": mean, "weights_norms": np.eye(2)}, ids),
        },
        source,
        [np.array([0, 1]), np.array([2, 3])],
    )
    (figure,) = figures
    first, second = (axes.get_title().splitlines()[0] for axes in figure.axes)
    assert first == "fedavg and 1 more"
    assert second == "fedbn (norms)"
    assert figure.get_supxlabel() == "sender\nfedavg: also fedbn (shared)"


def test_a_loss_of_zero_throughout_is_drawn_without_a_warning(monkeypatch):
    """pytest turns the warning of a logarithmic scale without positive values into an error."""
    figures = []
    monkeypatch.setattr(curves, "png", lambda figure: figures.append(figure) or b"")
    scores = {"mean": 1.0, "worst10": 1.0}
    for loss in (0.0, 0.5):
        lines = [{"round": n, "loss": loss, "before": scores, "after": scores} for n in (1, 2)]
        curves.draw_curves({"run": lines})
    scales = [figure.axes[1].get_yscale() for figure in figures]
    assert scales == ["linear", "log"]


def test_what_was_not_scored_has_no_bar_and_no_curve(monkeypatch):
    drawn = []
    monkeypatch.setattr(curves, "png", lambda figure: drawn.append(figure) or b"")
    known = {"mean": 0.5, "weighted": 0.5, "std": 0.1, "worst10": 0.2}
    stages = {"before": known, "after": dict.fromkeys(known)}
    lines = [{"round": number, "loss": 1.0} | stages for number in (1, 2)]
    summary = {"measure": "accuracy", "final": stages}
    curves.draw_comparison({"one": {"summary": summary, "lines": lines}})
    curves.draw_curves({"one": lines})
    comparison, alone = drawn
    assert len(comparison.axes[1].patches) == 1
    assert len(alone.axes[0].lines) == 1
