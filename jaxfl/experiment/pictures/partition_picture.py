"""The picture of a partition: who holds what."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxfl.data import Source
from jaxfl.data.federate import group_order, label_counts
from jaxfl.data.skews import Parts
from jaxfl.data.source import client_names
from jaxfl.experiment.pictures.drawing import LABELS, MANY, canvas, literal, shorten
from jaxfl.experiment.pictures.neighbour_means import bin_edges, mean_counts

DISCS = 300  # clients at most whose discs can be seen
LONGEST = 20  # letters of a name
NAMED = 20  # labels at most that have names
CELLS = 500  # columns at most, of more clients


def draw_partition(source: Source, parts: Parts, title: str) -> Figure:
    """Who holds what: a disc for each client and label, its area the number of examples.

    Of more than `DISCS` clients, whose discs would be too small to see, there are the mean numbers
    of neighbours as colours.

    Args:
      source: the data set.
      parts: rows of its training set for each client.
      title: of the picture, see `tables.heading.data_line`; none if empty.
    """
    counts = label_counts(source, parts)
    order = group_order(counts)
    counts = counts[order]
    # An example may count for several labels.
    sizes = np.array([len(parts[one]) for one in order])
    clients, classes = counts.shape
    given = client_names(source, parts)
    names = [literal(shorten(given[one], LONGEST)) if given else str(one) for one in order]
    figure, (panel, bars) = canvas(2, width=5.5, height=4.4)
    panel.set_label("labels")
    bars.set_label("examples")
    if clients <= DISCS:
        _draw_discs(panel, counts)
        bars.bar(range(clients), sizes, color="0.6")
        bars.set(xlabel="client", title="examples")
    else:
        edges = bin_edges(clients, CELLS)
        means = mean_counts(counts, edges)
        of = f"means of {edges[1]} clients"
        image = panel.imshow(
            means.T,
            cmap="Blues",
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            vmin=0,
            # As if the last bin, too, were full.
            extent=(-0.5, len(means) * edges[1] - 0.5, -0.5, classes - 0.5),
        )
        figure.colorbar(image, ax=panel, label="examples of a client")
        panel.set(title=f"examples of each label ({of})")
        bars.stairs(mean_counts(sizes[:, None], edges)[:, 0], edges - 0.5, fill=True, color="0.6")
        bars.set(xlabel="client, ordered by labels", title=f"examples ({of})")
    panel.set(xlabel=bars.get_xlabel(), ylabel="label", ylim=(-0.7, classes - 0.3))
    panel.yaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
    if source.class_names and classes <= NAMED:
        labels = [literal(shorten(name, LONGEST)) for name in source.class_names]
        panel.set_yticks(range(classes), labels, fontsize=8)
    for axis in (panel, bars):
        axis.set_xlim(-0.7, clients - 0.3)
        if clients <= MANY:
            upright = clients > 20 or any(len(name) > 4 for name in names)
            axis.set_xticks(range(clients), names, fontsize=8, rotation=90 if upright else 0)
    if title:
        figure.suptitle(literal(title), fontsize=9)
    return figure


def _draw_discs(panel: Axes, counts: np.ndarray) -> None:
    """A disc for each client and label that it holds."""
    clients, classes = counts.shape
    client, label = np.nonzero(counts)
    area = 260 * min(1.0, 20 / max(clients, classes)) ** 2 * counts[client, label] / counts.max()
    panel.scatter(
        client, label, s=area, c=LABELS(0.05 + 0.9 * label / max(classes - 1, 1)), linewidths=0
    )
    panel.set(title="examples of each label (area)")
    panel.grid(alpha=0.2)
