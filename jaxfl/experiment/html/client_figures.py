"""Interactive figures of the clients of a run: who learns from whom, who holds what, scores."""

from collections.abc import Collection
from typing import Any

import numpy as np

from jaxfl.experiment.html.curve_views import (
    View,
    distinct,
    listed,
    make_figure,
    make_view,
    plain,
    styles_of,
)
from jaxfl.experiment.pictures.client_colours import Clients
from jaxfl.experiment.pictures.drawing import MALICIOUS, MANY
from jaxfl.experiment.pictures.graphs import OUTLINED, Graph, blocks, weights_as_drawn
from jaxfl.experiment.pictures.neighbour_means import bin_edges, mean_counts
from jaxfl.experiment.store.records import Runs
from jaxfl.simulation.metrics import metric_of

GREY = "#7f8c9b"  # of amounts


def graph_view(name: str, part: str, rounds: dict[int, Graph], clients: Clients, most: int) -> View:
    """Mixing weights by round as a matrix, groups of clients side by side.

    Args:
      name: of the view.
      part: of the model; "" where one matrix is for the whole.
      rounds: number of a round -> its graph.
      clients: the order and the groups of the clients.
      most: rows at most; of more clients, a row is the mean of neighbours.
    """
    frames = []
    count = len(next(iter(rounds.values())).ids)
    edges = bin_edges(count, most)
    size = int(edges[1])
    # Equal weights, of 1 / M, have three digits or more.
    digits = max(4, len(str(count)) + 1)
    for number, graph in rounds.items():
        order = clients.sort(graph.ids)
        ids = graph.ids[order]
        weights = graph.by_part[part]
        matrix = weights_as_drawn(weights, order, most)
        outlines = [
            _outline(start / size, end / size)
            for start, end in blocks(ids, clients)
            if end - start >= OUTLINED * count
        ]
        frames.append(
            {
                "round": number,
                "clients": _bin_names(ids, edges, clients),
                "z": [listed(row) for row in np.round(matrix.astype(float), digits)],
                "shapes": outlines,
            }
        )
    # One scale for all rounds, so that colours can be compared; equal weights are in its middle.
    links = [weight for frame in frames for row in frame["z"] for weight in row if weight]
    gap = 1 if len(frames[0]["z"]) <= MANY else 0
    figure = make_figure("receiver", "sender")
    figure.add_heatmap(
        zmin=0,
        zmax=max([2 / count, *links]),
        colorbar={"title": {"text": "weight", "side": "right"}, "thickness": 12},
        xgap=gap,
        ygap=gap,
        hovertemplate=(
            f"receiver %{{y}}<br>sender %{{x}}<br>weight %{{z:.{digits}f}}<extra></extra>"
        ),
    )
    figure.update_xaxes(type="category", showgrid=False, constrain="domain")
    figure.update_yaxes(
        type="category",
        showgrid=False,
        autorange="reversed",
        scaleanchor="x",
        constrain="domain",
    )
    return make_view(name, figure) | {"frames": frames, "rounds": max(rounds)}


def _outline(start: float, end: float) -> dict[str, Any]:
    """The outline around a group of clients."""
    low, high = start - 0.5, end - 0.5
    line = {"color": "darkorange", "width": 2}
    return {"type": "rect", "x0": low, "y0": low, "x1": high, "y1": high, "line": line}


def holding_view(
    name: str, counts: np.ndarray, titles: list[str], clients: Clients, most: int
) -> View:
    """The number of examples of each label at each client, and in all.

    Args:
      name: of the view.
      counts: examples of each label at each client [C, L].
      titles: names of the labels [L].
      clients: the order of the clients.
      most: columns at most; of more clients, a column is the mean of neighbours.
    """
    order = clients.order
    edges = bin_edges(len(order), most)
    names = _bin_names(order, edges, clients)
    counts = counts[order]
    if len(names) < len(order):
        counts = np.round(mean_counts(counts, edges), 2)
    labels = distinct([plain(title) for title in titles], range(len(titles)))
    figure = make_figure("", "client")
    figure.add_heatmap(
        x=names,
        y=labels,
        z=counts.T.tolist(),
        zmin=0,
        xgap=1 if len(order) <= MANY else 0,
        ygap=1 if len(labels) <= MANY else 0,
        colorbar={
            "title": {"text": "examples", "side": "right"},
            "thickness": 12,
            "len": 0.72,
            "y": 0.35,
        },
        hovertemplate="client %{x}<br>label %{y}<br>%{z} examples<extra></extra>",
    )
    figure.add_bar(
        x=names,
        y=counts.sum(axis=1).tolist(),
        yaxis="y2",
        marker={"color": GREY},
        hovertemplate="client %{x}<br>%{y} examples<extra></extra>",
        showlegend=False,
    )
    figure.update_layout(
        xaxis={"type": "category", "showgrid": False},
        yaxis={"type": "category", "domain": [0, 0.7], "title": "label", "showgrid": False},
        yaxis2={"domain": [0.76, 1], "title": {"text": "examples"}, "nticks": 4},
    )
    return make_view(name, figure)


def score_view(
    name: str,
    runs: Runs,
    scores: dict[str, np.ndarray],
    clients: Clients,
    highlight: Collection[str] = (),
    *,
    measure: str,
    most: int,
) -> View:
    """The score of each client's deployed model.

    Args:
      name: of the view.
      runs: of clients that are the same.
      scores: label -> stored score of each client [C], NaN where it has none.
      clients: the order of the clients.
      highlight: as in `curve_views`.
      measure: the metric of the scores.
      most: clients at most; of more, some that stand at equal distances in the order are shown.
    """
    metric = metric_of(measure)
    figure = make_figure(f"test {metric.name}", "client")
    shown = clients.order[bin_edges(len(clients.order), most)[:-1]]
    names = _client_names(shown, clients)
    for label, style in styles_of(runs, highlight).items():
        if label in scores:
            row = scores[label][shown]
            values = [metric.shown(float(score)) if np.isfinite(score) else None for score in row]
            figure.add_scatter(
                x=names,
                y=values,
                name=plain(label),
                mode="markers",
                marker={"color": style["color"], "size": 8 if len(names) <= MANY else 5},
                hovertemplate=f"client %{{x}}: %{{y:{metric.format}}}",
                showlegend=style["in_colour"],
            )
    figure.update_layout(hovermode="closest", xaxis={"type": "category"})
    return make_view(name, figure)


def _client_names(ids: np.ndarray, clients: Clients) -> list[str]:
    """The names of clients as the axes show them, malicious ones in red."""
    names = distinct([plain(clients.name(client)) for client in ids.tolist()], ids.tolist())
    return [
        f'<span style="color:{MALICIOUS}">{name}</span>' if clients.malicious[client] else name
        for client, name in zip(ids.tolist(), names, strict=True)
    ]


def _bin_names(ids: np.ndarray, edges: np.ndarray, clients: Clients) -> list[str]:
    """The names of bins of clients: that of the first client, and how many follow it."""
    names = _client_names(ids[edges[:-1]], clients)
    sizes = np.diff(edges).tolist()
    return [
        name if size == 1 else f"{name} and {size - 1} more"
        for name, size in zip(names, sizes, strict=True)
    ]
