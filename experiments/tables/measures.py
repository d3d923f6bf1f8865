"""Numbers taken from the mixing weights of a run, for figures that are pictures of weights.

Each is a mean over the benign receivers of the last round, from weights W [M, M] (receiver, sender)
whose rows sum to 1. What a picture claims is a large or a small number:

- `own_group_weight`: the weight of the clients with the receiver's labels, itself included
- `self_weight`: the weight of the receiver's own model
- `malicious_weight`: the weight of the malicious clients
- `same_node_weight`, `linked_weight`, `unlinked_weight`: M times the weight of another client in
  the same node of a known graph, in another node with an edge to it, and in another node without
  an edge; 1 if all clients weigh the same
- `partner_similarity`, `other_similarity`: the weight of another client with the receiver's
  labels, or with other labels, relative to the receiver's own; where similarities are the weights
  (pFedGraph's prior "none"), these are similarities relative to that of a model with itself
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxfl.core.errors import InputError, check
from jaxfl.data import node_of
from jaxfl.data.partition import NODES
from jaxfl.experiment import Config
from jaxfl.experiment.config.hints import value_of
from jaxfl.experiment.session.gather import malicious

Weights = Float[np.ndarray, "m m"]
# Labels of the data sets that are divided by labels.
LABELS = {
    "cifar10": 10,
    "cifar100": 100,
    "digits": 10,
    "fashion_mnist": 10,
    "mnist": 10,
    "yahoo_answers": 10,
}


def groups(config: Config) -> Int[np.ndarray, "c"]:
    """The group of each client [C]: clients of a group have the same distribution of labels.

    Raises:
      InputError: the partition has no groups.
    """
    clients = config.clients or 0
    if config.partition == "iid":
        return np.zeros(clients, int)
    if config.partition == "nodes":
        return node_of(clients, config.topology)
    check(
        config.partition == "pathological" and config.dataset in LABELS,
        f"partition {config.partition} of {config.dataset} has no known groups of clients: show "
        "another measure",
    )
    return np.arange(clients) % (LABELS[config.dataset] // config.classes_per_client)


def own_group_weight(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """The mean weight of the clients with the receiver's labels, itself included."""
    group = groups(config)[ids]
    same = group[:, None] == group[None]
    return _mean((weights * same).sum(axis=1), config, ids)


def self_weight(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """The mean weight of the receiver's own model."""
    return _mean(np.diagonal(weights), config, ids)


def malicious_weight(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """The mean weight of the malicious clients.

    Raises:
      InputError: there is no attack.
    """
    check(
        config.attack is not None, "malicious_weight of a run without an attack: give an attack too"
    )
    return _mean(
        (weights * malicious(config, value_of(config.clients))[ids]).sum(axis=1), config, ids
    )


def same_node_weight(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """M times the mean weight of another client in the receiver's node."""
    return _relative_to_equal(weights, _pairs("same_node_weight", config, ids))


def linked_weight(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """M times the mean weight of a client of a node that has an edge to the receiver's node."""
    return _relative_to_equal(weights, _pairs("linked_weight", config, ids))


def unlinked_weight(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """M times the mean weight of a client of another node without an edge to the receiver's."""
    return _relative_to_equal(weights, _pairs("unlinked_weight", config, ids))


def partner_similarity(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """The mean weight of another client with the receiver's labels, relative to its own."""
    return _relative_weight(weights, config, ids, same=True)


def other_similarity(weights: Weights, config: Config, ids: np.ndarray) -> float:
    """The mean weight of a client with other labels, relative to the receiver's own."""
    return _relative_weight(weights, config, ids, same=False)


OF_WEIGHTS: dict[str, Callable[[Weights, Config, np.ndarray], float]] = {
    f.__name__: f
    for f in (
        own_group_weight,
        self_weight,
        malicious_weight,
        same_node_weight,
        linked_weight,
        unlinked_weight,
        partner_similarity,
        other_similarity,
    )
}
# "score" is the score of the table's rule and stage, "loss" is minus that.
MEASURES = ("score", "loss", *OF_WEIGHTS)


def of_weights(measure: str, config: Config, result: dict[str, Any]) -> float | None:
    """A number of the mixing weights that a result has kept; None if it has none.

    Args:
      measure: a name of `OF_WEIGHTS`.
      config: of the run.
      result: `weights` by name in `graph.npz`, and `ids`, the clients of the last round, unless
        all clients took part.
    """
    known = _known(result)
    if known is None:
        return None
    number = OF_WEIGHTS[measure](known[0], config, known[1])
    return number if np.isfinite(number) else None


def of_receivers(
    measure: str, config: Config, result: dict[str, Any]
) -> Float[np.ndarray, "m"] | None:
    """The same of each receiver of the last round, NaN without a pair; None if there is no such.

    Args:
      measure: see `of_weights`.
      config: of the run.
      result: of the run.
    """
    known = _known(result)
    if known is None or measure not in DISTANCES:
        return None
    pairs = _pairs(measure, config, known[1])
    sums = (known[0] * pairs).sum(axis=1)
    count = pairs.sum(axis=1)
    return len(sums) * np.divide(sums, count, out=np.full(len(sums), np.nan), where=count > 0)


def _known(result: dict[str, Any]) -> tuple[Weights, np.ndarray] | None:
    """The weights of the last round and the ids of its clients, if a result has them."""
    record = result["weights"].get("weights")
    if record is None:
        return None
    weights = np.array(record, float)
    return weights, np.array(result.get("ids") or range(len(weights)), int)


# How far apart the nodes of two clients are of which a measure is the weight.
DISTANCES = {"same_node_weight": 0, "linked_weight": 1, "unlinked_weight": 2}


def _pairs(measure: str, config: Config, ids: np.ndarray) -> Bool[np.ndarray, "m m"]:
    """The pairs of two clients of which a measure is the mean weight."""
    apart = _distances(config)[ids][:, ids] == DISTANCES[measure]
    return apart & ~np.eye(len(ids), dtype=bool)


def _mean(values: np.ndarray, config: Config, ids: np.ndarray) -> float:
    """The mean over benign receivers; NaN without one."""
    numbers = values[~malicious(config, value_of(config.clients))[ids]]
    return float(np.mean(numbers)) if numbers.size else float("nan")


def _distances(config: Config) -> Int[np.ndarray, "c c"]:
    """0 for two clients in a node, 1 in nodes with an edge, 2 in nodes without one [C, C].

    Raises:
      InputError: the partition has no known graph of nodes.
    """
    if config.partition != "nodes":
        raise InputError(
            f"partition {config.partition} has no known graph of nodes: choose partition nodes"
        )
    labels = NODES[: config.topology]
    # Nodes with a common label have an edge.
    apart = np.array([[1 if one & other else 2 for other in labels] for one in labels])
    np.fill_diagonal(apart, 0)
    node = groups(config)
    return apart[node][:, node]


def _relative_to_equal(weights: Weights, pairs: Bool[np.ndarray, "m m"]) -> float:
    """The mean weight of the pairs, in units of the weight of each if all weigh the same."""
    return len(weights) * float(np.mean(weights[pairs])) if pairs.any() else float("nan")


def _relative_weight(weights: Weights, config: Config, ids: np.ndarray, *, same: bool) -> float:
    group = groups(config)[ids]
    diagonal = np.diagonal(weights)[:, None]
    relative = np.divide(weights, diagonal, out=np.full(weights.shape, np.nan), where=diagonal > 0)
    pairs = ((group[:, None] == group[None]) == same) & ~np.eye(len(ids), dtype=bool)
    pairs &= np.isfinite(relative)
    return float(np.mean(relative[pairs])) if pairs.any() else float("nan")
