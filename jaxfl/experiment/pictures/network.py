"""Mixing weights as a network: who learns from whom."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from jaxfl.experiment.pictures.clients import Clients
from jaxfl.experiment.pictures.drawing import MALICIOUS, MANY

FEW = 12  # of more clients, the network shows only the strongest senders of each receiver
STRONGEST = 3


def edges(weights: np.ndarray) -> list[tuple[int, int]]:
    """The edges (receiver, sender) of the network of weights [M, M], the weakest first.

    Of more than `FEW` clients these are the strongest senders of each receiver. Weights below a
    hundredth of the largest weight of an edge are left out.
    """
    others = weights - np.diag(np.diag(weights))
    enough = max(0.01 * others.max(), 1e-12)
    senders = len(weights) if len(weights) <= FEW else STRONGEST
    pairs = [
        (receiver, sender)
        for receiver, row in enumerate(others)
        for sender in np.argsort(-row, kind="stable")[:senders].tolist()
        if row[sender] > enough
    ]
    return sorted(pairs, key=lambda edge: others[edge])


def draw_network(panel: Axes, weights: np.ndarray, ids: np.ndarray, clients: Clients) -> None:
    """The clients, each group on a circle, and an arrow from each sender to its receiver."""
    count = len(ids)
    points, radius = places(None if clients.groups is None else clients.groups[ids], count)
    few = count <= FEW
    pairs = edges(weights)
    largest = max((weights[edge] for edge in pairs), default=1.0)
    for receiver, sender in pairs:
        strength = weights[receiver, sender] / largest
        shrink = radius * 150
        panel.add_patch(
            FancyArrowPatch(
                points[sender],
                points[receiver],
                connectionstyle="arc3,rad=0.12",
                arrowstyle="-|>,head_length=0.35,head_width=0.18",
                mutation_scale=(14 if few else 7) * (0.5 + 0.5 * strength),
                linewidth=(2.2 if few else 0.9) * strength + 0.1,
                color=clients.colours[ids[sender]] if not few else "0.25",
                alpha=0.2 + 0.6 * strength,
                shrinkA=shrink,
                shrinkB=shrink,
                zorder=1,
                in_layout=False,
            )
        )
    rims = [MALICIOUS if clients.malicious[client] else "white" for client in ids]
    widths = np.where(clients.malicious[ids], 2.5, 1.0) * (1 if count <= MANY else 0.5)
    area = (2 * radius * 130) ** 2
    panel.scatter(
        *points.T,
        s=area,
        c=clients.colours[ids],
        edgecolors=rims,
        linewidths=widths.tolist(),
        zorder=2,
    )
    if count <= MANY:
        for client, point in zip(ids, points, strict=True):
            panel.text(
                point[0],
                point[1],
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
        xlim=(-1.1, 1.1),
        ylim=(-1.1, 1.1),
        aspect="equal",
    )
    panel.title.set_fontsize(10)
    panel.axis("off")


def places(groups: np.ndarray | None, count: int) -> tuple[np.ndarray, float]:
    """Where the clients of a network stand.

    Args:
      groups: the group of each client [M], or None.
      count: M.

    Returns:
      Places [M, 2] in [-1, 1], and the radius of a node. The clients stand on a circle, or each
      group on a circle of its own, if there are two to twelve groups.
    """
    names = [] if groups is None else list(dict.fromkeys(groups.tolist()))
    if not 2 <= len(names) <= 12:
        return _circle(count), min(0.11, 2.1 / count)
    spacing = np.sin(np.pi / len(names))  # half of the distance of neighbouring centres
    room = spacing / (1 + spacing)  # circles touch each other and the edge of the picture
    centres = (1 - room) * _circle(len(names), np.pi if len(names) == 2 else np.pi / 2)
    points = np.zeros((count, 2))
    largest = 1
    for name, centre in zip(names, centres, strict=True):
        members = np.flatnonzero(groups == name)
        largest = max(largest, members.size)
        points[members] = centre
        if members.size > 1:
            points[members] += 0.76 * room * _circle(members.size)
    return points, min(0.11, 0.17 * room, 1.6 * room / largest)


def _circle(count: int, start: float = np.pi / 2) -> np.ndarray:
    """Points [count, 2] on the circle of radius 1, clockwise."""
    angles = start - 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _readable(colour: np.ndarray) -> str:
    """Black or white, whichever can be read on the colour."""
    luminance = colour[:3] @ np.array([0.299, 0.587, 0.114])
    return "black" if luminance > 0.5 else "white"
