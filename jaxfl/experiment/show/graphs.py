"""Pictures of mixing weights: one run, and several side by side."""

import textwrap

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from jaxfl.data import Source
from jaxfl.data.federate import group_order, label_counts
from jaxfl.data.partition import Parts
from jaxfl.experiment.config import Config
from jaxfl.experiment.show.drawing import LABELS, MALICIOUS, MANY, canvas, png


def draw_graph(
    weights: np.ndarray,
    ids: np.ndarray,
    source: Source,
    parts: Parts,
    config: Config,
    malicious: np.ndarray,
) -> bytes:
    """Mixing weights of a round as heat map and network, clients with the same labels side by side.

    Args:
      weights: [M, M] (receiver, sender).
      ids: the clients of the rows [M].
      source: the data set.
      parts: rows of each of the C clients.
      config: for the title.
      malicious: which clients attack [C]; they stand last, in red.
    """
    counts = label_counts(source, parts)
    order = group_order(counts)
    place = np.argsort(
        np.concatenate([order[~malicious[order]], order[malicious[order]]])
    )  # of each client
    order = np.argsort(place[ids])
    weights, ids = weights[np.ix_(order, order)], ids[order]

    figure, (heat, network) = canvas(2, width=5.2, height=4.8)
    image = heat.imshow(weights, cmap="Blues", vmin=0)
    figure.colorbar(image, ax=heat, shrink=0.8, label="weight")
    heat.set(xlabel="sender", ylabel="receiver", title="mixing weights")
    if len(ids) <= MANY:
        heat.set_xticks(range(len(ids)), ids, fontsize=8, rotation=90 if len(ids) > 20 else 0)
        heat.set_yticks(range(len(ids)), ids, fontsize=8)
        for label in (*heat.get_xticklabels(), *heat.get_yticklabels()):
            label.set_color(MALICIOUS if malicious[int(label.get_text())] else "black")
    heat.spines[:].set_visible(False)

    angles = np.pi / 2 - 2 * np.pi * np.arange(len(ids)) / len(ids)
    points = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    mutual = (weights + weights.T) / 2
    strongest = max((mutual - np.diag(np.diag(mutual))).max(), 1e-9)
    pairs = [(i, j) for i in range(len(ids)) for j in range(i) if mutual[i, j] > 0.01 * strongest]
    strength = np.array([mutual[i, j] for i, j in pairs]) / strongest
    lines = LineCollection(
        [points[[i, j]] for i, j in pairs], linewidths=4 * strength, color="0.25"
    )
    lines.set_alpha(0.15 + 0.75 * strength if len(pairs) else None)
    network.add_collection(lines)
    colours = LABELS(0.05 + 0.9 * _mean_label(counts)[ids] / max(source.classes - 1, 1))
    large = len(ids) <= MANY
    rims = [MALICIOUS if malicious[client] else "white" for client in ids]
    widths = np.where(malicious[ids], 3.5, 1.5)
    network.scatter(
        *points.T, s=380 if large else 40, c=colours, edgecolors=rims, linewidths=widths, zorder=2
    )
    for client, point in zip(ids, points, strict=True):
        if large:
            network.text(
                *point,
                str(client),
                ha="center",
                va="center",
                fontsize=8,
                color="white",
                weight="bold",
            )
    meaning = (
        "colour: labels held; red rim: malicious" if malicious.any() else "colour: labels held"
    )
    network.set(
        title=f"who learns from whom\n({meaning})",
        xlim=(-1.2, 1.2),
        ylim=(-1.2, 1.2),
        aspect="equal",
    )
    network.axis("off")
    figure.suptitle(
        f"{config.algorithm} on {config.dataset}, {config.partition}, round {config.rounds}"
    )
    return png(figure)


def draw_graphs(
    found: dict[str, tuple[np.ndarray, np.ndarray]], source: Source, parts: Parts
) -> bytes:
    """Mixing weights of several algorithms side by side.

    Clients with the same labels stand next to each other. Algorithms whose weights are equal share
    a panel.

    Args:
      found: label -> weights [M, M] (receiver, sender) and the clients of its rows [M].
      source: the data set.
      parts: rows of each of the C clients.
    """
    place = np.argsort(group_order(label_counts(source, parts)))  # of each client
    groups: list[list[str]] = []
    for label, (weights, ids) in found.items():
        alike = [g for g in groups if _alike(found[g[0]], (weights, ids))]
        alike[0].append(label) if alike else groups.append([label])
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


def _alike(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> bool:
    """Whether two graphs have the same clients and, to three digits, the same weights."""
    return np.array_equal(one[1], other[1]) and np.allclose(one[0], other[0], atol=5e-4)


def _mean_label(counts: np.ndarray) -> np.ndarray:
    return counts @ np.arange(counts.shape[1]) / np.maximum(counts.sum(axis=1), 1)
