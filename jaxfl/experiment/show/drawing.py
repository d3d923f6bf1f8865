"""What all pictures share. Figures are built without pyplot: no global state, no display."""

import io
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = matplotlib.colormaps["tab10"].colors
LABELS = matplotlib.colormaps["turbo"]  # of labels, by their number
MALICIOUS = "crimson"
MANY = 40  # above so many clients they are not named one by one


def png(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def canvas(columns: int, width: float = 5.0, height: float = 4.2) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side."""
    figure = Figure(figsize=(columns * width, height), layout="constrained")
    panels = figure.subplots(1, columns, squeeze=False)[0]
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(panels)


def literal(text: str) -> str:
    """The text as matplotlib draws it letter by letter: a dollar begins no formula."""
    return text.replace("$", r"\$")


def colours(count: int) -> list:
    """So many colours that differ."""
    if count <= 10:
        return list(COLOURS[:count])
    return list(matplotlib.colormaps["turbo"](np.linspace(0, 1, count)))
