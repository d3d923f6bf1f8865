"""A picture of how the mixing weights change from the first layer of the model to the last."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxfl.experiment.pictures.client_colours import Clients
from jaxfl.experiment.pictures.drawing import literal, shorten
from jaxfl.experiment.pictures.graphs import Graph, draw_small_matrix
from jaxfl.graphs.measures import effective_collaborators, weight_within_groups

# Matrices at most below the curves, and in a row.
MATRICES = 12
ROW = 6
# Layers up to which names are written large, and letters of a name.
FEW = 15
LONGEST = 24


def draw_depth(graph: Graph, clients: Clients, title: str) -> Figure:
    """How clients mix each layer: curves over the depth, and the weights of some layers.

    The curves are means over the benign clients: the weight that a client gives to itself and to
    its true group, and the effective number of clients to whom it listens. Of more than `MATRICES`
    layers the matrices are those of some, evenly spaced.

    Args:
      graph: of a round, whose parts are layers in the order of their depth.
      clients: of `client_colours.clients_of`.
      title: of the picture, see `tables.heading.graph_title`; none if empty.
    """
    layers = [literal(shorten(part, LONGEST)) for part in graph.by_part]
    some = graph.some_parts(MATRICES)
    rows = -(-len(some) // ROW)
    figure = Figure(figsize=(2.1 * ROW, 4.4 + 2.3 * rows), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False, height_ratios=(4.4, 2.3 * rows))[:, 0]
    shares, numbers = above.subplots(1, 2)
    places = range(len(layers))
    for label, values in measures_by_layer(graph, clients).items():
        panel = numbers if label == COLLABORATORS else shares
        panel.plot(places, values, marker="o", markersize=4, label=label)
    most = len(graph.ids)
    shares.set(title="mixing weights, mean over clients", ylim=(-0.05, 1.05))
    numbers.set(title=COLLABORATORS, ylim=(0, 1.05 * max(most, 2)))
    shares.legend(frameon=False, fontsize=8)
    for panel in (shares, numbers):
        _name_layers(panel, layers)
    panels = below.subplots(rows, ROW, squeeze=False).ravel()
    for panel in panels[len(some) :]:
        panel.axis("off")
    for panel, (part, weights) in zip(panels, some.items(), strict=False):
        name = literal(shorten(part, LONGEST))
        draw_small_matrix(panel, weights, graph.ids, clients, name)
    below.supylabel("receiver", fontsize=9)
    left_out = f" ({len(some)} of {len(layers)} layers)" if len(some) < len(layers) else ""
    below.supxlabel(f"sender{left_out}", fontsize=9)
    if title:
        figure.suptitle(literal(title), fontsize=9)
    return figure


COLLABORATORS = "effective number of collaborators, mean over clients"


def measures_by_layer(graph: Graph, clients: Clients) -> dict[str, np.ndarray]:
    """The curves of the picture by their names, a number for each layer [L].

    Malicious clients do not count as receivers, and there is no weight on the true group where
    the benign clients of the round are of one group.

    Args:
      graph: of a round.
      clients: of `client_colours.clients_of`.
    """
    benign = ~clients.malicious[graph.ids]
    groups = None if clients.groups is None else clients.groups[graph.ids]
    curves: dict[str, list[float]] = {"on itself": []}
    if groups is not None and np.unique(groups[benign]).size > 1:
        curves["on its true group, with itself"] = []
    curves[COLLABORATORS] = []
    for weights in graph.weights.values():
        curves["on itself"].append(float(np.diagonal(weights)[benign].mean()))
        curves[COLLABORATORS].append(float(effective_collaborators(weights)[benign].mean()))
        if groups is not None and len(curves) > 2:
            within = weights[np.ix_(benign, benign)]
            share = weight_within_groups(within, groups[benign])
            curves["on its true group, with itself"].append(share)
    return {label: np.array(values) for label, values in curves.items()}


def _name_layers(panel: Axes, layers: list[str]) -> None:
    """Writes the names of the layers below a panel, and draws a grid."""
    size = 8 if len(layers) <= FEW else 5
    panel.set_xticks(range(len(layers)), layers, rotation=90, fontsize=size)
    panel.set_xlabel("layer, from the input to the output", fontsize=9)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)
