"""A picture of what the mixing weights of a run are judged by, round by round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from jaxfl.experiment.show.drawing import COLOURS, MALICIOUS, finish_rounds, label_ends
from jaxfl.experiment.show.scores import most_mixed

# The measures that lie between 0 and 1, with their names in the picture and their colours.
SHARES = {
    "self_weight": ("own weight", COLOURS[7]),
    "second_singular_value": ("2nd singular value", COLOURS[4]),
    "group_agreement": ("groups found", COLOURS[2]),
    "edge_precision": ("edge precision", COLOURS[9]),
    "edge_recall": ("edge recall", COLOURS[0]),
    "malicious_weight": ("malicious weight", MALICIOUS),
}


def graph_measures(lines: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """The measures of the weights by name [E], of the part of the model that is mixed most.

    Args:
      lines: of `metrics.jsonl`.

    Returns:
      Nothing for a method without weights.
    """
    records = [most_mixed(line.get("graph", {})) for line in lines]
    names = dict.fromkeys(name for record in records for name in record)
    return {name: np.array([record.get(name) for record in records], dtype=float) for name in names}


def draw_graph_measures(
    panels: Sequence[Axes], rounds: list[int], measures: dict[str, np.ndarray]
) -> None:
    """Curves of the measures: the number of collaborators, and those that lie between 0 and 1.

    Args:
      panels: the two in which they are drawn.
      rounds: of the evaluations [E].
      measures: of `graph_measures`.
    """
    mark = {"marker": "o", "markersize": 3} if len(rounds) < 40 else {}
    numbers, shares = panels
    numbers.plot(rounds, measures["collaborators"], color="black", **mark)
    numbers.set(xlabel="round", title="effective number of collaborators, mean over clients")
    numbers.set_ylim(0, 1.05 * max(np.nanmax(measures["collaborators"]), 2.0))
    ends = {}
    styles = {}
    for name, (label, colour) in SHARES.items():
        values = measures.get(name)
        if values is None or not np.isfinite(values).any():
            continue
        shares.plot(rounds, values, color=colour, **mark)
        ends[label] = values[-1]
        styles[label] = {"color": colour}
    low, high = shares.get_ylim()
    shares.set(xlabel="round", title="mixing weights", ylim=(min(low, -0.05), max(high, 1.05)))
    finish_rounds(numbers, rounds)
    finish_rounds(shares, rounds)
    label_ends(shares, ends, styles)
