"""The mixing weights of a record by name, and numbers that say how they mix."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.experiment.store.graph_file import WEIGHTS
from jaxfl.experiment.store.records import GraphMeasures
from jaxfl.graphs.measures import measure_graph


def weights_by_name(weights: PyTree, layers: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Mixing weights by name in `graph.npz`: one matrix, or one for each part of the model.

    A part within a part has its path: `weights_params/Dense_0`. NumPy has no bfloat16, so that
    such weights are float32 here.

    Args:
      weights: of `Info`.
      layers: of the model, in the order in which an example passes them: that of parts that are
        layers.

    Example:
      >>> list(weights_by_name({"body": np.eye(2), "head": np.eye(2)}))
      ['weights_body', 'weights_head']
      >>> by_layer = {"block10/up": np.eye(2), "block2/up": np.eye(2)}
      >>> list(weights_by_name(by_layer, ["block2", "block2/up", "block10", "block10/up"]))
      ['weights_block2/up', 'weights_block10/up']
    """
    by_path = {
        tree.path(keys): x if x.dtype.kind == "f" else x.astype(np.float32)
        for keys, x in jax.tree_util.tree_leaves_with_path(weights)
    }
    parts = sorted(by_path, key=lambda part: _depth(part, layers) or 0)
    return {f"{WEIGHTS}_{part}" if part else WEIGHTS: by_path[part] for part in parts}


def _depth(part: str, layers: Sequence[str]) -> int | None:
    """The place of a part of the model among its layers; None of a part that is no layer."""
    # Of a part of the whole tree of parameters the first name is their collection.
    collection, _, rest = part.partition("/")
    for path in (part, rest):
        if path in layers:
            return layers.index(path)
    # A parameter of the model itself, in no layer, stands before all layers.
    return -1 if collection == "params" and rest and "/" not in rest else None


def are_layers(names: Sequence[str], layers: Sequence[str]) -> bool:
    """Whether all weights are those of layers.

    Args:
      names: of `weights_by_name`.
      layers: of the model.

    Example:
      >>> are_layers(["weights_Dense_0", "weights_Dense_1"], ["Dense_0", "Dense_1"])
      True
      >>> are_layers(["weights_body", "weights_head"], ["body", "out"])
      False
    """
    return all(_depth(_part(name), layers) is not None for name in names)


def _part(name: str) -> str:
    """The part of the model whose weights have a name; "" if there is one matrix."""
    return name.removeprefix(WEIGHTS).lstrip("_")


def graph_measures(
    by_name: Mapping[str, np.ndarray],
    ids: np.ndarray,
    groups_of: Sequence[np.ndarray | None],
    malicious: np.ndarray,
) -> GraphMeasures:
    """Numbers of the last round's weights, means over the seeds; none without weights.

    Args:
      by_name: the weights of some rounds [S, L, M, M], as `weights_by_name` names them.
      ids: the clients of these rounds [S, L, M].
      groups_of: the true groups of the clients [C] in each seed; None where all differ.
      malicious: which clients attack [C].
    """
    measures: GraphMeasures = {}
    for name, weights in by_name.items():
        part = _part(name)
        seeds = []
        for seed, groups in enumerate(groups_of):
            last = ids[seed, -1]
            labels = None if groups is None else groups[last]
            seeds.append(measure_graph(weights[seed, -1], labels, malicious[last]))
        numbers = _mean_of_known(seeds)
        if part:
            measures[part] = numbers
        else:
            measures |= numbers
    return measures


def _mean_of_known(records: list[dict[str, float | None]]) -> dict[str, float | None]:
    """The mean of each number over the records that know it; None if no record does."""
    means = {}
    for name in dict.fromkeys(name for record in records for name in record):
        values = [record.get(name) for record in records]
        numbers = [value for value in values if value is not None]
        means[name] = float(np.mean(numbers)) if numbers else None
    return means
