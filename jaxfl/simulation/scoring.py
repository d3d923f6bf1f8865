"""How published tables make one number of all evaluations of a run."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxfl.core.options import checked
from jaxfl.simulation.evaluation import STAGES, Stage
from jaxfl.simulation.statistics import select_on_val

# Which scores of an evaluation a table takes: those of one stage, or for each client the better of
# two by validation.
TableStage = Stage | Literal["both"]
# Of equal validation scores the first one counts: clients train, then the server answers.
TABLE_STAGES: dict[TableStage, tuple[Stage, ...]] = {
    **{stage: (stage,) for stage in STAGES},
    "both": ("trained", "deployed"),
}


class Scored(NamedTuple):
    """The scores of one stage of E evaluations of C clients, NaN where there is none."""

    # [E, C]
    val: Float[np.ndarray, "e c"]
    # [E, C]
    test: Float[np.ndarray, "e c"]


def selected_on_val(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """Each client's test score at its best validation score over all evaluations and stages [C].

    pFedGraph's protocol: each client keeps the model that was best on its validation data.

    Example:
      >>> stage = Scored(val=np.array([[0.5], [0.9], [0.7]]), test=np.array([[0.4], [0.6], [0.8]]))
      >>> selected_on_val([stage], np.array([10])).tolist()
      [0.6]
    """
    # [E, stages, C]: the first of equal validation scores counts.
    val, test = (np.stack(parts, axis=1) for parts in zip(*stages, strict=True))
    clients = val.shape[-1]
    return select_on_val(val.reshape(-1, clients), test.reshape(-1, clients))


def last_ten(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """The mean over clients of each of the last ten evaluations [10]; FedCedar's protocol.

    Example:
      >>> scores = np.arange(12.0)[:, None] + np.array([0.0, 1.0])
      >>> last_ten([Scored(scores, scores)], np.array([10, 30])).tolist()
      [2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5, 10.5, 11.5]
    """
    return _row_means(stages[-1].test[-10:], np.ones_like(sizes))


def best_round(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """The mean over clients, weighted by size, of the evaluation in which it is highest [1].

    The protocol of PFLlib and NIID-Bench. The evaluation is chosen by its test score, so the score
    is too high to stand for unseen data.

    Example:
      >>> scores = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.5]])
      >>> best_round([Scored(scores, scores)], np.array([10, 30])).tolist()
      [0.375]
    """
    means = _row_means(stages[-1].test, sizes)
    return np.max(means, where=np.isfinite(means), initial=-np.inf, keepdims=True)


def last(stages: list[Scored], sizes: np.ndarray) -> np.ndarray:
    """Each client's test score at the last evaluation [C].

    Example:
      >>> scores = np.array([[0.5, 0.5], [0.75, 0.25]])
      >>> last([Scored(scores, scores)], np.array([10, 30])).tolist()
      [0.75, 0.25]
    """
    return stages[-1].test[-1]


def _row_means(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weighted mean of each row's scores that are there [E], NaN for a row without one."""
    mask = ~np.isnan(scores)
    totals = (mask * weights).sum(axis=1)
    sums = (np.where(mask, scores, 0.0) * weights).sum(axis=1)
    return np.where(totals > 0, sums / np.maximum(totals, 1e-9), np.nan)


# ([stages' scores], sizes [C]) -> numbers whose mean is the score
RULES: dict[str, Callable[[list[Scored], np.ndarray], np.ndarray]] = {
    "selected_on_val": selected_on_val,
    "last_ten": last_ten,
    "best_round": best_round,
    "last": last,
}


@checked
def numbers(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> np.ndarray:
    """The numbers whose mean is the score of a run by the rule of a table.

    Clients that take part in no round (`unseen`) do not count.

    Args:
      clients: arrays of `clients.npz` of a run of one seed: scores [E, C], sizes [C] and, in files
        that have it, unseen [C].
      rule: a name of `RULES`.
      stage: a name of `TABLE_STAGES`.

    Example:
      >>> scores = np.array([[0.5, 0.5], [0.75, 0.25]])
      >>> arrays = {"sizes": np.array([10, 30]), "deployed_val": scores, "deployed_test": scores}
      >>> numbers(arrays, "last", "deployed").tolist()
      [0.75, 0.25]
    """
    return RULES[rule](*_seen(clients, stage))


@checked
def by_client(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> np.ndarray:
    """Each client's test score in the evaluations that a rule takes [C], NaN if it has none.

    They are the last ten for `last_ten`, of which this is the mean, and that of the highest mean
    over clients for `best_round`. Clients that take part in no round (`unseen`) are left out.

    Args:
      clients: arrays of `clients.npz` of a run of one seed, as for `numbers`.
      rule: a name of `RULES`.
      stage: a name of `TABLE_STAGES`.

    Example:
      >>> each = np.array([[0.25, 0.5], [0.75, np.nan]])
      >>> arrays = {"sizes": np.array([10, 30]), "deployed_val": each, "deployed_test": each}
      >>> by_client(arrays, "last_ten", "deployed").tolist()
      [0.5, 0.5]
    """
    stages, sizes = _seen(clients, stage)
    test = stages[-1].test
    if rule == "last_ten":
        return _row_means(test[-10:].T, np.ones(len(test[-10:])))
    if rule == "best_round":
        means = _row_means(test, sizes)
        return test[np.argmax(np.where(np.isfinite(means), means, -np.inf))]
    return RULES[rule](stages, sizes)


def _seen(clients: dict[str, np.ndarray], stage: TableStage) -> tuple[list[Scored], np.ndarray]:
    """The scores of a stage and the sizes, of the clients that take part in rounds."""
    sizes = clients["sizes"]
    seen = ~clients.get("unseen", np.zeros(sizes.shape, bool))
    stages = [
        Scored(clients[f"{name}_val"][:, seen], clients[f"{name}_test"][:, seen])
        for name in TABLE_STAGES[stage]
    ]
    return stages, sizes[seen]


@checked
def scores(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> list[float]:
    """The score of each seed of a run, see `score`.

    Args:
      clients: arrays of `clients.npz` of a run, with several seeds [S, E, C].
      rule: a name of `RULES`.
      stage: a name of `TABLE_STAGES`.

    Example:
      >>> each = np.array([[[0.5, 0.5]], [[0.75, 0.25]], [[1.0, 0.5]]])  # of 3 seeds and 2 clients
      >>> arrays = {"sizes": np.full((3, 2), 10), "deployed_val": each, "deployed_test": each}
      >>> scores(arrays, "last", "deployed")
      [0.5, 0.5, 0.75]
    """
    if clients["deployed_test"].ndim == 2:
        return [score(clients, rule, stage)]
    # Behind the name of a set may stand that of a metric.
    sets = tuple(f"{stage}_{part}" for stage in STAGES for part in ("val", "test"))
    seeded = {name for name in clients if name == "sizes" or name.startswith(sets)}
    each = range(len(clients["deployed_test"]))
    split = [{k: v[s] if k in seeded else v for k, v in clients.items()} for s in each]
    return [score(one, rule, stage) for one in split]


@checked
def score(clients: dict[str, np.ndarray], rule: str, stage: TableStage) -> float:
    """The score of a run by the rule of a table, the mean of `numbers`; NaN if there is none.

    Example:
      >>> each = np.array([[0.5, 0.5], [0.75, 0.5]])
      >>> arrays = {"sizes": np.array([10, 30]), "deployed_val": each, "deployed_test": each}
      >>> score(arrays, "last", "deployed")
      0.625
    """
    values = numbers(clients, rule, stage)
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else float("nan")
