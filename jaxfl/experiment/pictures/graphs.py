"""Pictures of mixing weights: one run, its rounds, and several runs side by side."""

import textwrap
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jaxfl.experiment.pictures.client_colours import Clients
from jaxfl.experiment.pictures.client_network import CROWD, draw_network, draw_network_of_groups
from jaxfl.experiment.pictures.drawing import MALICIOUS, MANY, literal
from jaxfl.experiment.pictures.neighbour_means import bin_edges, mean_weights

# Clients at most that have a row and a column of their own in the matrix, whose side has some 600
# pixels, and in those of a comparison.
CELLS = 500
SMALL_CELLS = 250
# Letters of the name of a client beside its row.
LONGEST = 20
# Parts of a model at most whose weights are drawn one below or beside the other.
PARTS = 6
# The side of the smallest group with an outline, as a part of the matrix.
OUTLINED = 0.01


@dataclass(frozen=True)
class Graph:
    """Mixing weights of one round."""

    weights: dict[str, np.ndarray]  # as in graph.npz: "weights", or "weights_PART", each [M, M]
    ids: np.ndarray  # the clients of the rows and columns [M]

    @property
    def by_part(self) -> dict[str, np.ndarray]:
        """The weights of each part of the model; "" where one matrix is for the whole."""
        return {name.removeprefix("weights").lstrip("_"): w for name, w in self.weights.items()}

    def some_parts(self, most: int) -> dict[str, np.ndarray]:
        """The weights of at most so many parts, evenly spaced, with the first and the last one."""
        by_part = self.by_part
        places = evenly_spaced(len(by_part), most)
        return {part: by_part[part] for part in np.array(list(by_part))[places].tolist()}


def evenly_spaced(rounds: int, most: int) -> list[int]:
    """The places of at most so many of the rounds, with the first and the last one.

    A single one is the last.
    """
    if most == 1:
        return [rounds - 1]
    return np.unique(np.linspace(0, rounds - 1, min(most, rounds)).round().astype(int)).tolist()


def draw_graph(graph: Graph, clients: Clients, title: str) -> Figure:
    """Mixing weights as a matrix and as a network, groups of clients side by side.

    Each part of the model that has its own weights is a row; of more than `PARTS` these are some,
    evenly spaced. Of more than `CELLS` clients the matrix has the means of neighbours, without the
    clients' weights for themselves; of more than `CROWD` the network is one of groups.

    Args:
      graph: of a round.
      clients: of `client_colours.clients_of`.
      title: of the picture, see `tables.heading.graph_title`; none if empty.
    """
    order = clients.sort(graph.ids)
    ids = graph.ids[order]
    by_part = graph.some_parts(PARTS)
    figure = Figure(figsize=(10.8, 0.3 + 4.7 * len(by_part)), layout="constrained")
    rows = figure.subplots(len(by_part), 2, squeeze=False)
    for (matrix, network), (part, weights) in zip(rows, by_part.items(), strict=True):
        matrix.set_label("matrix")
        network.set_label("network")
        name = f"mixing weights of {part}" if part else "mixing weights"
        _draw_matrix(matrix, weights, order, graph.ids, clients, name)
        if len(ids) <= CROWD:
            draw_network(network, weights[np.ix_(order, order)], ids, clients)
        else:
            draw_network_of_groups(network, weights, order, graph.ids, clients)
    if title:
        figure.suptitle(literal(title), fontsize=9)
    return figure


def _draw_matrix(
    panel: Axes,
    weights: np.ndarray,
    order: np.ndarray,
    ids: np.ndarray,
    clients: Clients,
    title: str,
) -> None:
    """The weights [M, M] of the clients `ids` as colours, with an outline around each group."""
    ids = ids[order]
    values = weights_as_drawn(weights, order, CELLS)
    size = -(-len(ids) // len(values))
    if size > 1:
        title = (
            f"{title}, means of {size} x {size} clients\n"
            f"without their own weights, whose mean is {np.diag(weights).mean():.2f}"
        )
    side = len(ids) - 0.5
    image = panel.imshow(
        values,
        cmap="Blues",
        vmin=0,
        vmax=max(values.max(), 1e-9),
        extent=(-0.5, side, side, -0.5),
    )
    panel.figure.colorbar(image, ax=panel, shrink=0.8, label="weight")
    panel.set(xlabel="sender", ylabel="receiver", title=title)
    panel.title.set_fontsize(12 if size == 1 else 10)
    if len(ids) <= MANY:
        size = 8 if len(ids) <= 20 else 6
        names = [literal(clients.name(client, LONGEST)) for client in ids.tolist()]
        upright = len(ids) > 20 or any(len(name) > 4 for name in names)
        panel.set_xticks(range(len(ids)), names, fontsize=size, rotation=90 if upright else 0)
        panel.set_yticks(range(len(ids)), names, fontsize=size)
        for labels in (panel.get_xticklabels(), panel.get_yticklabels()):
            for label, client in zip(labels, ids, strict=True):
                label.set_color(MALICIOUS if clients.malicious[client] else "black")
    else:
        panel.set(xlabel="sender (clients ordered by group)", ylabel="receiver")
        panel.set_xticks([])
        panel.set_yticks([])
    for start, end in blocks(ids, clients):
        if end - start < OUTLINED * len(ids):
            continue
        corner = (start - 0.5, start - 0.5)
        panel.add_patch(
            Rectangle(
                corner,
                end - start,
                end - start,
                fill=False,
                edgecolor="darkorange",
                linewidth=1.4,
                clip_on=False,
            )
        )
    panel.spines[:].set_visible(False)


def weights_as_drawn(weights: np.ndarray, order: np.ndarray, most: int) -> np.ndarray:
    """The weights in the order of the picture, or means of neighbours if there are too many.

    Args:
      weights: [M, M].
      order: the places of the clients as they are drawn [M].
      most: clients at most that have a row of their own.
    """
    if len(order) <= most:
        return weights[np.ix_(order, order)]
    return mean_weights(weights, order, bin_edges(len(order), most))


def blocks(ids: np.ndarray, clients: Clients) -> list[tuple[int, int]]:
    """The (first, last + 1) places of each group of two clients or more, malicious ones apart."""
    if clients.groups is None:
        return []
    key = np.stack([clients.groups[ids], clients.malicious[ids]])
    starts = np.flatnonzero(np.any(key[:, 1:] != key[:, :-1], axis=0)) + 1
    bounds = [0, *starts.tolist(), len(ids)]
    ranges = [(a, b) for a, b in pairwise(bounds) if b - a > 1]
    return ranges if len(bounds) > 2 else []


def draw_graphs(graphs: dict[str, Graph], clients: Clients) -> Figure:
    """Mixing weights of several algorithms side by side.

    Groups of clients stand next to each other. Algorithms, or parts of their models, whose weights
    are equal share a panel; "fedbn (norms)" is the part "norms" of the model. Of more than `PARTS`
    parts there are some, evenly spaced. Of more than `SMALL_CELLS` clients there are the means of
    neighbours, without their weights for themselves.

    Args:
      graphs: of a round, by algorithm.
      clients: of `client_colours.clients_of`.
    """
    matrices = {
        literal(f"{label} ({part})" if part else label): (weights, graph.ids)
        for label, graph in graphs.items()
        for part, weights in graph.some_parts(PARTS).items()
    }
    groups: list[list[str]] = []
    for label, one in matrices.items():
        equal = [group for group in groups if _are_equal(matrices[group[0]], one)]
        equal[0].append(label) if equal else groups.append([label])
    columns = min(6, len(groups))
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(2.1 * columns, 2.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.axis("off")
    for panel, group in zip(panels, groups, strict=False):
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        draw_small_matrix(panel, *matrices[group[0]], clients, f"{group[0]}{others}")
    lines = [f"{group[0]}: also {', '.join(group[1:])}" for group in groups if len(group) > 1]
    lines += [
        f"{literal(label)}: {PARTS} of {len(graph.weights)} parts"
        for label, graph in graphs.items()
        if len(graph.weights) > PARTS
    ]
    figure.supylabel("receiver", fontsize=9)
    if any(len(ids) > SMALL_CELLS for _, ids in matrices.values()):
        lines.append(f"more than {SMALL_CELLS} clients: means of neighbours without own weights")
    figure.supxlabel(
        "\n".join(["sender", *(textwrap.fill(line, 22 * columns) for line in lines)]), fontsize=9
    )
    return figure


def draw_small_matrix(
    panel: Axes, weights: np.ndarray, ids: np.ndarray, clients: Clients, title: str
) -> None:
    """Mixing weights as colours, without names of clients; the title says the largest one.

    Args:
      panel: to draw on.
      weights: [M, M].
      ids: the clients of the rows and columns [M].
      clients: of `client_colours.clients_of`.
      title: of the panel.
    """
    values = weights_as_drawn(weights, clients.sort(ids), SMALL_CELLS)
    panel.imshow(values, cmap="Blues", vmin=0, vmax=max(values.max(), 1 / len(ids)))
    panel.set_title(f"{title}\nlargest {weights.max():.2f}", fontsize=8)
    panel.set_xticks([])
    panel.set_yticks([])


def _are_equal(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether two graphs have the same clients and, to three digits, the same weights."""
    if not np.array_equal(one[1], other[1]):
        return False
    # Row by row, since large matrices mostly differ in the first one.
    rows = zip(one[0], other[0], strict=True)
    return all(np.allclose(row, other_row, atol=5e-4) for row, other_row in rows)
