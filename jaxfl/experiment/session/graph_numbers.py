"""The mixing weights of a record by name, and numbers that say how they mix."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.experiment.session.program import Record
from jaxfl.experiment.store.graph_file import WEIGHTS
from jaxfl.experiment.store.records import GraphMeasures
from jaxfl.graphs.measures import measure_graph


def weights_by_name(weights: PyTree) -> dict[str, np.ndarray]:
    """Mixing weights by name in `graph.npz`: one matrix, or one for each part of the model.

    A part within a part has its path: `weights_params/Dense_0`. NumPy has no bfloat16, so that
    such weights are float32 here.

    Example:
      >>> sorted(weights_by_name({"body": np.eye(2), "head": np.eye(2)}))
      ['weights_body', 'weights_head']
    """
    by_path = {
        tree.path(keys): x if x.dtype.kind == "f" else x.astype(np.float32)
        for keys, x in jax.tree_util.tree_leaves_with_path(weights)
    }
    return {f"{WEIGHTS}_{part}" if part else WEIGHTS: matrix for part, matrix in by_path.items()}


def graph_measures(
    record: Record, groups_of: Sequence[np.ndarray | None], malicious: np.ndarray
) -> GraphMeasures:
    """Numbers of the last round's weights, means over the seeds; none without weights.

    Args:
      record: of these rounds.
      groups_of: the true groups of the clients [C] in each seed; None where all differ.
      malicious: which clients attack [C].
    """
    measures: GraphMeasures = {}
    for name, weights in weights_by_name(record.info.weights).items():
        part = name.removeprefix(WEIGHTS).lstrip("_")
        seeds = []
        for seed, groups in enumerate(groups_of):
            ids = record.ids[seed, -1]
            labels = None if groups is None else groups[ids]
            seeds.append(measure_graph(weights[seed, -1], labels, malicious[ids]))
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
