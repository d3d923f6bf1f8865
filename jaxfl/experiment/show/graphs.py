"""Pictures of mixing weights: one run, its rounds, and several runs side by side."""

import textwrap
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from jaxfl.data import Source
from jaxfl.data.federate import group_order, label_counts
from jaxfl.data.partition import Parts
from jaxfl.experiment.config import Config
from jaxfl.experiment.show.drawing import LABELS, MALICIOUS, MANY, literal
from jaxfl.experiment.show.heading import setting_line

FEW = 12  # of more clients, the network shows only the strongest senders of each receiver
STRONGEST = 3


@dataclass(frozen=True)
class Graph:
    """Mixing weights of one round."""

    weights: dict[str, np.ndarray]  # as in graph.npz: "weights", or "weights_PART", each [M, M]
    ids: np.ndarray  # the clients of the rows and columns [M]

    @property
    def by_part(self) -> dict[str, np.ndarray]:
        """The weights of each part of the model; "" where one matrix is for the whole."""
        return {name.removeprefix("weights").lstrip("_"): w for name, w in self.weights.items()}


@dataclass(frozen=True)
class Clients:
    """What the pictures of graphs show of the clients."""

    order: np.ndarray  # ids as they are drawn [C]: groups side by side, malicious clients last
    colours: np.ndarray  # [C, 4], of each id
    meaning: str  # of the colours
    groups: np.ndarray | None  # the true group of each id [C]; None where there are no groups
    malicious: np.ndarray  # [C], of each id

    def sort(self, ids: np.ndarray) -> np.ndarray:
        """The places in `ids` in the order in which the clients are drawn."""
        place = np.argsort(self.order)
        return np.argsort(place[ids])


def clients_of(
    source: Source,
    parts: Parts,
    groups: np.ndarray | None = None,
    malicious: np.ndarray | None = None,
) -> Clients:
    """The order and the colours of the clients.

    Args:
      source: the data set.
      parts: rows of each of the C clients.
      groups: of `session.clients.true_groups` [C].
      malicious: which clients attack [C].
    """
    malicious = np.zeros(len(parts), bool) if malicious is None else malicious
    counts = label_counts(source, parts)
    place = np.argsort(group_order(counts))
    if groups is None:
        shade = counts @ np.arange(counts.shape[1]) / np.maximum(counts.sum(axis=1), 1)
        shade = shade / max(counts.shape[1] - 1, 1)
        order = np.lexsort((place, malicious))
        return Clients(order, LABELS(0.05 + 0.9 * shade), "labels held", None, malicious)
    # A group stands where the first of its clients stands.
    first = np.array([place[groups == group].min() for group in range(groups.max() + 1)])
    rank = np.argsort(np.argsort(first))[groups]
    order = np.lexsort((place, rank, malicious))
    colours = LABELS(0.08 + 0.84 * rank / max(rank.max(), 1))
    return Clients(order, colours, "group of clients", groups, malicious)


def draw_graph(graph: Graph, clients: Clients, config: Config, number: int | None = None) -> Figure:
    """Mixing weights as a matrix and as a network, groups of clients side by side.

    Each part of the model that has its own weights is a row.

    Args:
      graph: of a round.
      clients: of `clients_of`.
      config: for the title.
      number: of the round; None: the last one.
    """
    order = clients.sort(graph.ids)
    ids = graph.ids[order]
    figure = Figure(figsize=(10.8, 0.3 + 5.0 * len(graph.weights)), layout="constrained")
    rows = figure.subplots(len(graph.weights), 2, squeeze=False)
    for (matrix, network), (part, weights) in zip(rows, graph.by_part.items(), strict=True):
        ordered = weights[np.ix_(order, order)]
        title = f"mixing weights of {part}" if part else "mixing weights"
        _draw_matrix(matrix, ordered, ids, clients, title)
        _draw_network(network, ordered, ids, clients)
    number = config.rounds if number is None else number
    title = f"{config.name}, round {number}: {setting_line([config])}"
    figure.suptitle(literal(title), fontsize=9)
    return figure


def _draw_matrix(
    panel: Axes, weights: np.ndarray, ids: np.ndarray, clients: Clients, title: str
) -> None:
    """The weights [M, M] as colours, with an outline around each group of clients."""
    image = panel.imshow(weights, cmap="Blues", vmin=0, vmax=max(weights.max(), 1e-9))
    panel.figure.colorbar(image, ax=panel, shrink=0.8, label="weight")
    panel.set(xlabel="sender", ylabel="receiver", title=title)
    if len(ids) <= MANY:
        size = 8 if len(ids) <= 20 else 6
        panel.set_xticks(range(len(ids)), ids, fontsize=size, rotation=90 if len(ids) > 20 else 0)
        panel.set_yticks(range(len(ids)), ids, fontsize=size)
        for label in (*panel.get_xticklabels(), *panel.get_yticklabels()):
            label.set_color(MALICIOUS if clients.malicious[int(label.get_text())] else "black")
    else:
        panel.set(xlabel="sender (clients ordered by group)", ylabel="receiver")
        panel.set_xticks([])
        panel.set_yticks([])
    for start, end in _blocks(ids, clients):
        corner = (start - 0.5, start - 0.5)
        panel.add_patch(
            Rectangle(
                corner, end - start, end - start, fill=False, edgecolor="darkorange", linewidth=1.2
            )
        )
    panel.spines[:].set_visible(False)


def _blocks(ids: np.ndarray, clients: Clients) -> list[tuple[int, int]]:
    """The (first, last + 1) places of each group of two clients or more, malicious ones apart."""
    if clients.groups is None:
        return []
    key = np.stack([clients.groups[ids], clients.malicious[ids]])
    starts = np.flatnonzero(np.any(key[:, 1:] != key[:, :-1], axis=0)) + 1
    edges = [0, *starts.tolist(), len(ids)]
    blocks = [(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True) if b - a > 1]
    return blocks if len(edges) > 2 else []


def edges(weights: np.ndarray) -> list[tuple[int, int]]:
    """The edges (receiver, sender) of the network of weights [M, M], the weakest first.

    Of more than `FEW` clients these are the strongest senders of each receiver. Weights below a
    hundredth of the largest weight of an edge are left out.
    """
    others = weights - np.diag(np.diag(weights))
    enough = max(0.01 * others.max(), 1e-12)
    senders = len(weights) if len(weights) <= FEW else STRONGEST
    found = [
        (receiver, sender)
        for receiver, row in enumerate(others)
        for sender in np.argsort(-row, kind="stable")[:senders].tolist()
        if row[sender] > enough
    ]
    return sorted(found, key=lambda edge: others[edge])


def _draw_network(panel: Axes, weights: np.ndarray, ids: np.ndarray, clients: Clients) -> None:
    """The clients on a circle, and an arrow from each sender to its receiver."""
    count = len(ids)
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    few = count <= FEW
    radius = min(0.11, 2.1 / count)  # of a node
    found = edges(weights)
    largest = max((weights[edge] for edge in found), default=1.0)
    for receiver, sender in found:
        strength = weights[receiver, sender] / largest
        shrink = radius * 150
        panel.add_patch(
            FancyArrowPatch(
                points[sender],
                points[receiver],
                connectionstyle="arc3,rad=0.12",
                arrowstyle="-|>,head_length=0.35,head_width=0.18",
                mutation_scale=(14 if few else 7) * (0.5 + 0.5 * strength),
                linewidth=(3.0 if few else 0.9) * strength + 0.1,
                color=clients.colours[ids[sender]] if not few else "0.25",
                alpha=0.2 + 0.6 * strength,
                shrinkA=shrink,
                shrinkB=shrink,
                zorder=1,
            )
        )
    rims = [MALICIOUS if clients.malicious[client] else "white" for client in ids]
    widths = np.where(clients.malicious[ids], 2.5, 1.0) * (1 if count <= MANY else 0.5)
    area = (2 * radius * 130) ** 2
    panel.scatter(
        *points.T, s=area, c=clients.colours[ids], edgecolors=rims, linewidths=widths, zorder=2
    )
    if count <= MANY:
        for client, point in zip(ids, points, strict=True):
            panel.text(
                *point,
                str(client),
                ha="center",
                va="center",
                fontsize=9 if few else 6.5,
                color=_readable(clients.colours[client]),
                weight="bold",
            )
    rim = ", red rim: malicious" if clients.malicious.any() else ""
    what = "arrows: sender to receiver" if few else f"the {STRONGEST} strongest senders of each"
    panel.set(
        title=f"who learns from whom ({what})\ncolour: {clients.meaning}{rim}",
        xlim=(-1.2, 1.2),
        ylim=(-1.2, 1.2),
        aspect="equal",
    )
    panel.title.set_fontsize(10)
    panel.axis("off")


def _readable(colour: np.ndarray) -> str:
    """Black or white, whichever can be read on the colour."""
    luminance = colour[:3] @ np.array([0.299, 0.587, 0.114])
    return "black" if luminance > 0.5 else "white"


def draw_graphs(graphs: dict[str, Graph], clients: Clients) -> Figure:
    """Mixing weights of several algorithms side by side.

    Groups of clients stand next to each other. Algorithms, or parts of their models, whose weights
    are equal share a panel; "fedbn (norms)" is the part "norms" of the model.

    Args:
      graphs: of a round, by algorithm.
      clients: of `clients_of`.
    """
    found = {
        literal(f"{label} ({part})" if part else label): (weights, graph.ids)
        for label, graph in graphs.items()
        for part, weights in graph.by_part.items()
    }
    groups: list[list[str]] = []
    for label, one in found.items():
        equal = [group for group in groups if _are_equal(found[group[0]], one)]
        equal[0].append(label) if equal else groups.append([label])
    columns = min(6, len(groups))
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(2.1 * columns, 2.3 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.axis("off")
    for panel, group in zip(panels, groups, strict=False):
        weights, ids = found[group[0]]
        order = clients.sort(ids)
        panel.imshow(
            weights[np.ix_(order, order)],
            cmap="Blues",
            vmin=0,
            vmax=max(weights.max(), 1 / len(ids)),
        )
        others = f" and {len(group) - 1} more" if len(group) > 1 else ""
        panel.set_title(f"{group[0]}{others}\nlargest {weights.max():.2f}", fontsize=8)
        panel.set_xticks([])
        panel.set_yticks([])
    figure.supylabel("receiver", fontsize=9)
    shared = [f"{group[0]}: also {', '.join(group[1:])}" for group in groups if len(group) > 1]
    figure.supxlabel(
        "\n".join(["sender", *(textwrap.fill(line, 22 * columns) for line in shared)]), fontsize=9
    )
    return figure


def _are_equal(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether two graphs have the same clients and, to three digits, the same weights."""
    return np.array_equal(one[1], other[1]) and np.allclose(one[0], other[0], atol=5e-4)
