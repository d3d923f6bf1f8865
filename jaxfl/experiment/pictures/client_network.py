"""Mixing weights as a network: who learns from whom."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch

from jaxfl.experiment.pictures.client_colours import Clients
from jaxfl.experiment.pictures.drawing import MALICIOUS, MANY, literal
from jaxfl.experiment.pictures.neighbour_means import bin_edges, mean_weights

FEW = 12  # of more clients, the network shows only the strongest senders of each receiver
STRONGEST = 3
CROWD = 200  # of more clients, the network has a node for each group
LONGEST = 12  # letters of a name on a node
NODES = 60  # groups at most that have nodes
PARTS = 40  # nodes where there are more groups, or none


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
    colours = clients.colours[ids]
    largest = float((weights - np.diag(np.diag(weights))).max())
    _draw_arrows(panel, weights, points, radius, colours, largest)
    rims = [MALICIOUS if clients.malicious[client] else "white" for client in ids]
    widths = np.where(clients.malicious[ids], 2.5, 1.0) * (1 if count <= MANY else 0.5)
    _draw_nodes(panel, points, radius, colours, rims, widths)
    if count <= MANY:
        names = [literal(clients.name(client, LONGEST)) for client in ids.tolist()]
        size = 9.0 if few else 6.5
        if clients.names:
            # A name is wider than its node.
            size *= min(1.0, 5 / max(map(len, names)))
        _write_names(panel, points, names, colours, size)
    rim = ", red rim: malicious" if clients.malicious.any() else ""
    what = "arrows: sender to receiver" if few else f"the {STRONGEST} strongest senders of each"
    _finish(panel, f"who learns from whom ({what})\ncolour: {clients.meaning}{rim}")


def draw_network_of_groups(
    panel: Axes, weights: np.ndarray, order: np.ndarray, ids: np.ndarray, clients: Clients
) -> None:
    """Groups of clients on a circle, and an arrow from each group to one that learns from it.

    The width of an arrow is the weight that all clients of a group have together, in the mean of
    its receivers; the weights of clients for themselves are left out. Malicious clients are groups
    of their own. If there are no groups, or more than `NODES`, each node is an equal part of the
    clients, in the order of the matrix.

    Args:
      panel: to draw on.
      weights: [M, M].
      order: the places of the clients as they are drawn [M].
      ids: the clients of the rows [M].
      clients: their groups and colours.
    """
    ids = ids[order]
    bounds, what = _nodes(ids, clients)
    sizes = np.diff(bounds)
    # A client has one other client fewer in its own group.
    shares = mean_weights(weights, order, bounds) * (sizes - np.eye(len(sizes)))
    middle = ids[(bounds[:-1] + bounds[1:]) // 2]
    colours = clients.colours[middle]
    points, radius = places(None, len(sizes))
    few = len(sizes) <= FEW
    # Beside what clients take from their own group, little is a thin arrow.
    _draw_arrows(panel, shares, points, radius, colours, float(shares.max()))
    malicious = clients.malicious[middle]
    rims = [MALICIOUS if one else "white" for one in malicious]
    _draw_nodes(panel, points, radius, colours, rims, np.where(malicious, 2.5, 1.0))
    _write_names(panel, points, [str(size) for size in sizes], colours, 9.0 if few else 5.0)
    rim = ", red rim: malicious" if malicious.any() else ""
    senders = "sender to receiver" if few else f"{STRONGEST} strongest senders"
    inside = sizes @ np.diag(shares) / sizes.sum()
    _finish(
        panel,
        f"who learns from whom ({what})\n"
        f"arrows: {senders}, weight of others inside a circle: {inside:.0%}\n"
        f"number: clients, colour: {clients.meaning}{rim}",
    )


def _nodes(ids: np.ndarray, clients: Clients) -> tuple[np.ndarray, str]:
    """The first places of the nodes and the number of clients [K + 1], and what a node is."""
    if clients.groups is not None:
        key = np.stack([clients.groups[ids], clients.malicious[ids]])
        inside = np.flatnonzero(np.any(key[:, 1:] != key[:, :-1], axis=0)) + 1
        if 0 < inside.size < NODES:
            return np.array([0, *inside, len(ids)]), "groups of clients"
    return bin_edges(len(ids), PARTS), "neighbours of the matrix"


def _draw_arrows(
    panel: Axes,
    weights: np.ndarray,
    points: np.ndarray,
    radius: float,
    colours: np.ndarray,
    largest: float,
) -> None:
    """An arrow for each edge of the weights [K, K] of the nodes at `points`."""
    few = len(points) <= FEW
    for receiver, sender in edges(weights):
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
                color=colours[sender] if not few else "0.25",
                alpha=0.2 + 0.6 * strength,
                shrinkA=shrink,
                shrinkB=shrink,
                zorder=1,
                in_layout=False,
            )
        )


def _draw_nodes(
    panel: Axes,
    points: np.ndarray,
    radius: float,
    colours: np.ndarray,
    rims: list[str],
    widths: np.ndarray,
) -> None:
    """The nodes of a network."""
    panel.scatter(
        *points.T,
        s=(2 * radius * 130) ** 2,
        c=colours,
        edgecolors=rims,
        linewidths=widths.tolist(),
        zorder=2,
    )


def _write_names(
    panel: Axes, points: np.ndarray, names: list[str], colours: np.ndarray, size: float
) -> None:
    """A text on each node."""
    for name, point, colour in zip(names, points, colours, strict=True):
        panel.text(
            point[0],
            point[1],
            name,
            ha="center",
            va="center",
            fontsize=size,
            color=_readable(colour),
            weight="bold",
        )


def _finish(panel: Axes, title: str) -> None:
    """The title and the limits of a network."""
    panel.set(title=title, xlim=(-1.2, 1.2), ylim=(-1.2, 1.2), aspect="equal")
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
