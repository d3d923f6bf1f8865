"""Matrices of what each client is worth to each other one, and of the graph's weights beside it."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxfl.experiment.pictures.drawing import MANY, canvas, literal, shorten
from jaxfl.simulation.metrics import Metric

WRITTEN = 12  # clients at most whose numbers stand in the cells
LONGEST = 16  # letters of a name


def draw_worth(
    differences: np.ndarray,
    graph: np.ndarray | None,
    names: list[str],
    title: str,
    metric: Metric,
) -> Figure:
    """The differences as colours, from red (worse with the sender) to blue, and the graph.

    Args:
      differences: of receivers (rows) and senders [C, C]; NaN where there is none.
      graph: the weights [C, C]; None if there are none.
      names: of the clients.
      title: of the picture.
      metric: of the differences.
    """
    figure, panels = canvas(1 if graph is None else 2, width=5.4, height=4.8)
    most = max(float(np.nanmax(np.abs(differences), initial=0.0)), 1e-9)
    unit = " points" if metric.percent else ""
    label = f"gain in {metric.title}{unit}"
    _draw(panels[0], differences, names, (-most, most), "RdBu", label, f"+{metric.format}")
    if graph is not None:
        weights = np.where(np.eye(len(names), dtype=bool), np.nan, graph)
        highest = max(float(np.nanmax(weights, initial=0.0)), 1e-9)
        _draw(panels[1], weights, names, (0, highest), "Blues", "weight in the last round", ".2f")
    figure.suptitle(literal(title), fontsize=10)
    return figure


def _draw(
    panel: Axes,
    values: np.ndarray,
    names: list[str],
    limits: tuple[float, float],
    colours: str,
    label: str,
    form: str,
) -> None:
    low, high = limits
    image = panel.imshow(values, cmap=colours, vmin=low, vmax=high)
    panel.figure.colorbar(image, ax=panel, shrink=0.8, label=label)
    panel.set(xlabel="sender", ylabel="receiver")
    count = len(names)
    if count <= MANY:
        shown = [literal(shorten(name, LONGEST)) for name in names]
        panel.set_xticks(range(count), shown, fontsize=8, rotation=90)
        panel.set_yticks(range(count), shown, fontsize=8)
    if count > WRITTEN:
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            dark = abs(value) > 0.6 * max(abs(low), abs(high))
            panel.text(
                column,
                row,
                f"{value + 0.0:{form}}",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if dark else "black",
            )
