"""The picture of a partition: who holds what."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxfl.data import Source
from jaxfl.data.federate import group_order, label_counts
from jaxfl.data.skews import Parts
from jaxfl.experiment.pictures.drawing import LABELS, MANY, canvas, literal


def draw_partition(source: Source, parts: Parts, title: str) -> Figure:
    """Who holds what: a disc for each client and label, its area the number of examples.

    Args:
      source: the data set.
      parts: rows of its training set for each client.
      title: of the picture, see `tables.heading.data_line`.
    """
    counts = label_counts(source, parts)
    order = group_order(counts)
    counts = counts[order]
    clients, classes = counts.shape
    figure, (panel, bars) = canvas(2, width=5.5, height=4.4)
    client, label = np.nonzero(counts)
    area = 260 * min(1.0, 20 / max(clients, classes)) ** 2 * counts[client, label] / counts.max()
    panel.scatter(
        client, label, s=area, c=LABELS(0.05 + 0.9 * label / max(classes - 1, 1)), linewidths=0
    )
    panel.set(
        xlabel="client",
        ylabel="label",
        title="examples of each label (area)",
        ylim=(-0.7, classes - 0.3),
    )
    panel.yaxis.set_major_locator(MaxNLocator(nbins=20, integer=True))
    panel.grid(alpha=0.2)
    bars.bar(range(clients), counts.sum(axis=1), color="0.6")
    bars.set(xlabel="client", title="examples")
    for axis in (panel, bars):
        axis.set_xlim(-0.7, clients - 0.3)
        if clients <= MANY:
            axis.set_xticks(range(clients), order, fontsize=8, rotation=90 if clients > 20 else 0)
    figure.suptitle(literal(title), fontsize=9)
    return figure
