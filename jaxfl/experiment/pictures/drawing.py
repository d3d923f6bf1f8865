"""What all pictures share: colours, formats, labels. No pyplot: no global state, no display."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colors
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from jaxfl.algorithms import ALGORITHMS
from jaxfl.experiment.store import files

COLOURS = matplotlib.color_sequences["tab10"]  # of series that are no methods
LABELS = matplotlib.colormaps["turbo"]  # of labels, by their number
MALICIOUS = "crimson"
MANY = 40  # above so many clients they are not named one by one
OTHERS = "0.82"  # grey of runs that are not highlighted
LONG_DASHES = (0, (8, 2))
LONG_DASHES_AND_DOTS = (0, (8, 2, 1, 2))
SPARSE_DOTS = (0, (1, 4))
DASHES_AND_TWO_DOTS = (0, (5, 2, 1, 2, 1, 2))
STYLES = (
    *("-", "--", "-.", ":"),
    *(LONG_DASHES, LONG_DASHES_AND_DOTS, SPARSE_DOTS, DASHES_AND_TWO_DOTS),
)
# The colour of a method is the same in every picture. These are the colours of Okabe and Ito, which
# people with colour blindness can tell apart, for the methods that are used most.
METHODS = {
    "pfedgraph": "#0072B2",
    "fedavg": "#D55E00",
    "fedavg_ft": "#E69F00",
    "local": "#000000",
    "pfedgat": "#009E73",
    "fedcedar": "#CC79A7",
    "gfedmtl": "#56B4E9",
    "pooled": "#777777",
}
# The other methods take Paul Tol's muted colours in turn, by their places in the registry: methods
# of one colour differ in the style of the line.
FURTHER = (
    *("#332288", "#117733", "#882255", "#999933", "#44AA99", "#CC6677", "#AA4499", "#88CCEE"),
    "#DDCC77",
)


def colour_of(algorithm: str) -> str:
    """The colour of a method, the same in every picture."""
    return METHODS.get(algorithm, FURTHER[_place(algorithm) % len(FURTHER)])


def _place(algorithm: str) -> int:
    """The place of a method among those without a colour of their own."""
    others = [name for name in ALGORITHMS if name not in METHODS]
    return others.index(algorithm) if algorithm in others else len(others)


def line_styles(algorithms: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Colour and style of the line of each run.

    Several runs of one method have one hue: the later ones are lighter and have another style.

    Args:
      algorithms: label of a run -> its method.
    """
    styles = {}
    for label, algorithm in algorithms.items():
        runs = [name for name, other in algorithms.items() if other == algorithm]
        number = runs.index(label)
        colour = np.array(colors.to_rgb(colour_of(algorithm)))
        lighter = colour + (1 - colour) * 0.6 * number / len(runs)
        turn = 0 if algorithm in METHODS else _place(algorithm) // len(FURTHER)
        style = STYLES[(number + turn) % len(STYLES)]
        styles[label] = {"color": tuple(lighter.tolist()), "linestyle": style}
    return styles


def render(figure: Figure, format: str = "png", *, cropped: bool = False) -> bytes:
    """The figure as a file: "png", "pdf" or "svg". The same figure gives the same bytes.

    Args:
      figure: to render.
      format: of the file.
      cropped: without the empty margins.
    """
    buffer = io.BytesIO()
    # No date and no random names; text stays text.
    settings: dict[Any, Any] = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "jaxfl"}
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(format, {})
    with matplotlib.rc_context(settings):
        box = "tight" if cropped else None
        figure.savefig(buffer, format=format, dpi=150, metadata=metadata, bbox_inches=box)
    return buffer.getvalue()


def gif(frames: Sequence[Figure], milliseconds: int) -> bytes:
    """Figures of one size as a picture that moves, again and again; the last one stays longer."""
    images = [Image.open(io.BytesIO(render(frame))).convert("RGB") for frame in frames]
    images = [image.resize((image.width // 2, image.height // 2)) for image in images]
    times = [milliseconds] * (len(images) - 1) + [4 * milliseconds]
    buffer = io.BytesIO()
    first, *others = images
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=times, loop=0)
    return buffer.getvalue()


def canvas(
    columns: int, width: float = 5.0, height: float = 4.2, rows: int = 1
) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side, row after row."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, list(panels)


def literal(text: str) -> str:
    """The text as matplotlib draws it letter by letter: a dollar begins no formula."""
    return text.replace("$", r"\$")


def shorten(text: str, length: int) -> str:
    """The text with "..." in its middle if it is longer than `length` letters."""
    if len(text) <= length:
        return text
    return f"{text[: length // 2 - 1]}...{text[-(length - length // 2 - 2) :]}"


def finish_rounds(panel: Axes, rounds: list[int]) -> None:
    """Limits and ticks of an axis of rounds, and a grid."""
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(set(rounds)) > 1:
        panel.set_xlim(min(rounds), max(rounds))
    panel.grid(alpha=0.25)


def label_ends(panel: Axes, ends: dict[str, float], styles: dict[str, dict[str, Any]]) -> None:
    """Writes the label of each line at the right of its end, moved apart where labels would touch.

    Args:
      panel: with its limits set.
      ends: label -> the last value of its line.
      styles: label -> the style of its line.
    """
    low, high = panel.get_ylim()
    height = panel.get_window_extent().height / panel.figure.dpi * 72  # in points
    gap = 11 * (high - low) / max(height, 1)
    labels = sorted((label for label in ends if np.isfinite(ends[label])), key=ends.__getitem__)
    if not labels:
        return
    places = spread_out([min(max(ends[label], low), high) for label in labels], gap, high)
    right = panel.get_xlim()[1]
    for label, place in zip(labels, places, strict=True):
        panel.annotate(
            literal(shorten(label, 26)),
            (right, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=styles[label]["color"],
            annotation_clip=False,
        )


def spread_out(values: Sequence[float], gap: float, high: float) -> list[float]:
    """The sorted values, moved as little as needed so that neighbours differ by at least `gap`.

    Args:
      values: in increasing order.
      gap: the smallest distance.
      high: no value is moved above it.
    """
    groups: list[list[float]] = []  # of neighbours that touch: sum of their values, their number
    for value in values:
        groups.append([float(value), 1.0])
        while len(groups) > 1 and _lowest(groups[-1], gap) < _highest(groups[-2], gap) + gap:
            total, count = groups.pop()
            groups[-1] = [groups[-1][0] + total, groups[-1][1] + count]
    places = [
        _lowest(group, gap) + gap * number for group in groups for number in range(int(group[1]))
    ]
    for number in reversed(range(len(places))):
        places[number] = min(places[number], high - gap * (len(places) - 1 - number))
    return places


def _divisions(panel: Axes) -> tuple[int, int]:
    """The columns and rows of the figure of a panel."""
    place = panel.get_subplotspec()
    if place is None:
        return 1, 1
    grid = place.get_gridspec()
    return grid.ncols, grid.nrows


def _remove(panel: Axes) -> None:
    """Takes a panel out of its figure, with its bar of colours."""
    for image in panel.images:
        if image.colorbar is not None:
            image.colorbar.remove()
    panel.remove()


def _lowest(group: list[float], gap: float) -> float:
    return group[0] / group[1] - gap * (group[1] - 1) / 2


def _highest(group: list[float], gap: float) -> float:
    return group[0] / group[1] + gap * (group[1] - 1) / 2


def alone(figure: Figure, name: str) -> Figure:
    """The figure with the panels of one name alone; it changes the figure.

    Args:
      figure: whose panels have their names for labels.
      name: of the panels that stay.
    """
    width, height = figure.get_size_inches()
    for part in figure.subfigs or [figure]:
        panels = [panel for panel in part.axes if panel.get_label() in files.PANEL_NAMES]
        rest = [panel for panel in panels if panel.get_label() == name]
        if rest:
            columns, rows = _divisions(rest[0])
            size = (width / columns, height * len(rest) / rows)
        for panel in panels:
            if panel not in rest:
                _remove(panel)
        grid = part.add_gridspec(max(1, len(rest)), 1)
        for place, panel in enumerate(rest):
            panel.set_subplotspec(grid[place, 0])
        for legend in part.legends:
            if not any(panel.get_legend_handles_labels()[1] for panel in rest):
                legend.remove()
    figure.set_size_inches(size)
    return figure


def write_panels(
    directory: Path, name: str, draw: Callable[[], Figure], formats: Sequence[str]
) -> None:
    """Writes each panel of a figure as `directory/name-PANEL.FORMAT`.

    Args:
      directory: of the pictures.
      name: of the figure.
      draw: makes the figure, without a title.
      formats: as in `write_picture`.
    """
    names = {panel.get_label() for panel in draw().axes}
    for panel in files.PANELS[name]:
        if panel in names:
            for format in still_formats(formats):
                content = render(alone(draw(), panel), format, cropped=True)
                files.write_file(directory / f"{name}-{panel}.{format}", content)


def write_picture(directory: Path, name: str, figure: Figure, formats: Sequence[str]) -> list[Path]:
    """Writes a figure as `directory/name.FORMAT`, as PNG if no format of still pictures is named.

    Returns:
      The files.
    """
    paths = []
    for format in still_formats(formats):
        file = directory / f"{name}.{format}"
        files.write_file(file, render(figure, format))
        paths.append(file)
    return paths


def still_formats(formats: Sequence[str]) -> list[str]:
    """The formats of pictures that do not move; PNG if there are none."""
    return [format for format in files.PICTURE_FORMATS if format in formats] or ["png"]
