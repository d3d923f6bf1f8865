"""Pictures of mixing weights: one run, and several side by side."""

import textwrap
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from jaxfl.data import Source
from jaxfl.data.federate import group_order, label_counts
from jaxfl.data.partition import Parts
from jaxfl.experiment.config import Config
from jaxfl.experiment.show.drawing import LABELS, MALICIOUS, MANY, literal, png


@dataclass(frozen=True)
class Graph:
    """Mixing weights of one round."""

    weights: dict[str, np.ndarray]  # as in graph.npz: "weights", or "weights_PART", each [M, M]
    ids: np.ndarray  # the clients of the rows and columns [M]

    @property
    def by_part(self) -> dict[str, np.ndarray]:
        """The weights of each part of the model; "" where one matrix is for the whole."""
        return {name.removeprefix("weights").lstrip("_"): w for name, w in self.weights.items()}


def draw_graph(
    graph: Graph, source: Source, parts: Parts, config: Config, malicious: np.ndarray
) -> bytes:
    """Mixing weights as heat map and network, clients with the same labels side by side.

    Each part of the model that has its own weights is a row.

    Args:
      graph: of a round.
      source: the data set.
      parts: rows of each of the C clients.
      config: for the title.
      malicious: which clients attack [C]; they stand last, in red.
    """
    counts = label_counts(source, parts)
    order = group_order(counts)
    benign_first = np.concatenate([order[~malicious[order]], order[malicious[order]]])
    place = np.argsort(benign_first)  # of each client
    order = np.argsort(place[graph.ids])
    ids = graph.ids[order]
    colours = LABELS(0.05 + 0.9 * _mean_label(counts)[ids] / max(source.classes - 1, 1))

    figure = Figure(figsize=(10.4, 4.8 * len(graph.weights)), layout="constrained")
    rows = figure.subplots(len(graph.weights), 2, squeeze=False)
    for (heat, network), (part, weights) in zip(rows, graph.by_part.items(), strict=True):
        sorted_weights = weights[np.ix_(order, order)]
        title = f"mixing weights of {part}" if part else "mixing weights"
        _draw_heat_map(heat, sorted_weights, ids, malicious, title)
        _draw_network(network, sorted_weights, ids, malicious, colours)
    figure.suptitle(
        f"{literal(config.name)} on {config.dataset}, {config.partition}, round {config.rounds}"
    )
    return png(figure)


def _draw_heat_map(
    panel: Axes, weights: np.ndarray, ids: np.ndarray, malicious: np.ndarray, title: str
) -> None:
    image = panel.imshow(weights, cmap="Blues", vmin=0)
    panel.figure.colorbar(image, ax=panel, shrink=0.8, label="weight")
    panel.set(xlabel="sender", ylabel="receiver", title=title)
    if len(ids) <= MANY:
        panel.set_xticks(range(len(ids)), ids, fontsize=8, rotation=90 if len(ids) > 20 else 0)
        panel.set_yticks(range(len(ids)), ids, fontsize=8)
        for label in (*panel.get_xticklabels(), *panel.get_yticklabels()):
            label.set_color(MALICIOUS if malicious[int(label.get_text())] else "black")
    panel.spines[:].set_visible(False)


def _draw_network(
    panel: Axes, weights: np.ndarray, ids: np.ndarray, malicious: np.ndarray, colours: np.ndarray
) -> None:
    angles = np.pi / 2 - 2 * np.pi * np.arange(len(ids)) / len(ids)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    mutual = (weights + weights.T) / 2
    strongest = max((mutual - np.diag(np.diag(mutual))).max(), 1e-9)
    pairs = [(i, j) for i in range(len(ids)) for j in range(i) if mutual[i, j] > 0.01 * strongest]
    strength = np.array([mutual[i, j] for i, j in pairs]) / strongest
    segments = [points[[i, j]] for i, j in pairs]
    lines = LineCollection(segments, linewidths=4 * strength, color="0.25")
    lines.set_alpha(0.15 + 0.75 * strength if len(pairs) else None)
    panel.add_collection(lines)
    large = len(ids) <= MANY
    rims = [MALICIOUS if malicious[client] else "white" for client in ids]
    widths = np.where(malicious[ids], 3.5, 1.5)
    panel.scatter(
        *points.T, s=380 if large else 40, c=colours, edgecolors=rims, linewidths=widths, zorder=2
    )
    if large:
        name = {"ha": "center", "va": "center", "fontsize": 8, "color": "white", "weight": "bold"}
        for client, point in zip(ids, points, strict=True):
            panel.text(*point, str(client), **name)
    rim = "; red rim: malicious" if malicious.any() else ""
    panel.set(
        title=f"who learns from whom\n(colour: labels held{rim})",
        xlim=(-1.2, 1.2),
        ylim=(-1.2, 1.2),
        aspect="equal",
    )
    panel.axis("off")


def draw_graphs(graphs: dict[str, Graph], source: Source, parts: Parts) -> bytes:
    """Mixing weights of several algorithms side by side.

    Clients with the same labels stand next to each other. Algorithms, or parts of their models,
    whose weights are equal share a panel; "fedbn (norms)" is the part "norms" of the model.

    Args:
      graphs: of a round, by algorithm.
      source: the data set.
      parts: rows of each of the C clients.
    """
    place = np.argsort(group_order(label_counts(source, parts)))  # of each client
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
        order = np.argsort(place[ids])
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
    return png(figure)


def _are_equal(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether two graphs have the same clients and, to three digits, the same weights."""
    return np.array_equal(one[1], other[1]) and np.allclose(one[0], other[0], atol=5e-4)


def _mean_label(counts: np.ndarray) -> np.ndarray:
    return counts @ np.arange(counts.shape[1]) / np.maximum(counts.sum(axis=1), 1)
