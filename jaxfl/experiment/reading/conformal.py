"""Sets that hold the truth for a share of a client's patients: conformal prediction.

A set is calibrated by scores of examples that were not trained on: how badly the truth fits the
prediction. Clients calibrate on their own validation examples, on those of all clients, or on those
of all clients by the weights that the collaboration graph gives them. Only scores leave a client,
each by the client's own model.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.experiment.reading.load import FinishedRun
from jaxfl.experiment.store.graph_file import WEIGHTS, open_graph

Calibration = Literal["own", "all", "graph"]
CALIBRATIONS: tuple[Calibration, ...] = get_args(Calibration)
INSTANTS = 41  # at which a curve is read


class Coverage(NamedTuple):
    """What the sets of a client are worth on its test examples."""

    calibrated: int  # examples whose scores have a weight
    threshold: float  # infinite where these are too few for the level
    covered: float  # the share of the test examples whose set holds the truth
    # the mean number of labels in a set, the width of an interval, or the bound of a time
    size: float


@checked
def misfits(outputs: np.ndarray) -> np.ndarray:
    """How badly each label would fit the prediction of each example [n, classes].

    It is one less the label's probability (Sadinle, Lei and Wasserman, Least ambiguous set-valued
    classifiers, JASA, 2019).

    Args:
      outputs: logits [n, classes].

    Example:
      >>> misfits(np.log([[0.6, 0.3, 0.1]])).round(1).tolist()
      [[0.4, 0.7, 0.9]]
    """
    shifted = np.asarray(outputs, float) - np.max(outputs, axis=1, keepdims=True)
    chances = np.exp(shifted)
    return 1 - chances / chances.sum(axis=1, keepdims=True)


def threshold(scores: np.ndarray, weights: np.ndarray, alpha: float) -> float:
    """The largest misfit of a set: the quantile of the scores, and of a new one that is infinite.

    With equal weights a set up to it holds the truth of a new example with a probability of at
    least 1 - alpha, if all examples are exchangeable (Vovk, Gammerman and Shafer, 2005). With
    weights from 0 to 1 the probability may be smaller by the weighted mean of how far, in total
    variation, an exchange with each example changes the distribution (Barber, Candès, Ramdas and
    Tibshirani, Conformal prediction beyond exchangeability, Annals of Statistics, 2023, theorem 2).

    Args:
      scores: of the examples that calibrate [n].
      weights: of these [n], from 0 to 1; that of the new example is 1.
      alpha: the share of sets that may miss the truth.

    Returns:
      Infinite if the scores are too few for the level: n < 1 / alpha - 1 of equal weight.

    Example:
      >>> scores = np.arange(1.0, 20.0)
      >>> threshold(scores, np.ones(19), 0.1), threshold(scores[:8], np.ones(8), 0.1)
      (18.0, inf)
    """
    check(0 < alpha < 1, f"alpha is {alpha}: expected a share between 0 and 1, such as 0.1")
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(np.asarray(weights, float)[order])
    wanted = (1 - alpha) * (np.sum(weights) + 1)
    # A sum of many weights that should be whole is not, by its rounding.
    place = int(np.searchsorted(reached, wanted * (1 - 1e-12)))
    return float(np.asarray(scores, float)[order][place]) if place < len(scores) else math.inf


def weights_of_clients(row: np.ndarray, counts: np.ndarray, client: int) -> np.ndarray:
    """What an example of each client weighs for one of them [C], from 0 to 1.

    Its own weigh 1; those of another client as much as the graph weighs one of its training
    examples, beside one of the client's own, and at most 1. So a row of FedAvg, which is the
    shares of the examples, gives all examples the same weight, and a row of local training gives
    the others none.

    Args:
      row: the weights of the clients' models in the client's own [C].
      counts: how many training examples each has [C].
      client: its id.

    Example:
      >>> weights_of_clients(np.array([0.5, 0.25, 0.25]), np.array([100, 25, 200]), 0).tolist()
      [1.0, 1.0, 0.25]
    """
    each = np.asarray(row, float) / np.maximum(counts, 1)
    own = each[client] if each[client] > 0 else max(float(each.max()), 1e-30)
    weights = np.minimum(each / own, 1.0)
    weights[client] = 1.0
    return weights


class Calibrated(NamedTuple):
    """The scores of the validation examples of all clients of a run, by their own models."""

    run: FinishedRun
    classes: int  # 0 for numbers and times
    scores: list[np.ndarray]  # of each client [C][n]
    graph: np.ndarray | None  # what an example of each client weighs for each one [C, C]
    seed: int | None = None  # of the run; the first if None

    def threshold(self, client: int, by: Calibration, alpha: float) -> tuple[float, int]:
        """The largest misfit in the sets of a client, and how many examples it comes from."""
        weights = np.zeros(len(self.scores))
        weights[client] = 1.0
        if by == "all":
            weights[:] = 1.0
        elif by == "graph" and self.graph is not None:
            weights = self.graph[client]
        each = [np.full(len(one), weight) for one, weight in zip(self.scores, weights, strict=True)]
        given = np.concatenate(each)
        return threshold(np.concatenate(self.scores), given, alpha), int((given > 0).sum())

    def sets(self, client: int, x: PyTree, by: Calibration, alpha: float) -> np.ndarray:
        """Which labels are in the set of each example [n, classes], or the intervals' ends [n, 2].

        The interval of a time to an event has no upper end.

        Args:
          client: its id.
          x: inputs [n, ...].
          by: what calibrates.
          alpha: the share of sets that may miss the truth.
        """
        limit, _ = self.threshold(client, by, alpha)
        expected = expectations(self.run, client, x, self.seed)
        if self.classes:
            return misfits(expected) <= limit
        if is_survival(self.run):
            return np.stack([np.exp(expected - limit), np.full_like(expected, np.inf)], axis=1)
        return np.stack([expected - limit, expected + limit], axis=1)

    def coverage(self, client: int, by: Calibration, alpha: float) -> Coverage:
        """What the sets of a client are worth on its test examples; NaN without any."""
        limit, count = self.threshold(client, by, alpha)
        x, y, _ = self.run.test(client, seed=self.seed)
        if not len(y):
            return Coverage(count, limit, math.nan, math.nan)
        found = self.sets(client, x, by, alpha)
        if self.classes:
            covered = found[np.arange(len(y)), y]
            return Coverage(count, limit, float(covered.mean()), float(found.sum(axis=1).mean()))
        survival = is_survival(self.run)
        low, high = found.T
        truth = y[:, 0] if survival else y.reshape(-1)
        inside = (low <= truth) & (truth <= high)
        size = low if survival else high - low
        return Coverage(count, limit, float(inside.mean()), float(size.mean()))


@checked
def calibrate(run: FinishedRun, *, seed: int | None = None) -> Calibrated:
    """The scores of all clients' validation examples.

    That of a class is its misfit, see `misfits`, that of a number its distance from the prediction.
    That of a time to an event is the log of the expected time over the observed one, so that sets
    are lower bounds of the observed time, and of that of the event, which is never earlier (Candès,
    Lei and Ren, Conformalized survival analysis, JRSS B, 2023, section 2.1).

    Args:
      run: with its models, whose data set is at hand.
      seed: of the run, if it has several; the first if None.

    Raises:
      InputError: targets are not one label, number or time, clients were validated on the test set,
        or the models or the data set are not there.

    Example:
      >>> found = calibrate(load("runs/digits"))
      >>> found.coverage(3, "all", 0.1).covered > 0.5
      True
    """
    inputs: Any = run.summary.get("inputs", {})
    survival = is_survival(run)
    check(
        survival or "target" not in inputs,
        f"the targets of {run.directory} are several an example: sets are of one label or number",
    )
    check(
        run.config.val > 0,
        f"the run of {run.directory} has no validation examples, by which sets are calibrated: run "
        "with --val above 0",
    )
    clients = range(run.config.clients or 0)
    classes = 0 if survival else int(inputs.get("classes", 0))
    scores = []
    for client in clients:
        x, y, _ = run.val(client, seed=seed)
        if not len(y):
            scores.append(np.zeros(0))
            continue
        expected = expectations(run, client, x, seed)
        if classes:
            scores.append(misfits(expected)[np.arange(len(y)), y])
        elif survival:
            with np.errstate(divide="ignore"):
                scores.append(expected - np.log(y[:, 0].astype(float)))
        else:
            scores.append(np.abs(expected - y.reshape(-1)))
    return Calibrated(run, classes, scores, _graph(run, clients, seed), seed)


def is_survival(run: FinishedRun) -> bool:
    """Whether the targets of a run are times to an event."""
    inputs: Any = run.summary.get("inputs", {})
    return bool(inputs.get("survival"))


@checked
def expectations(run: FinishedRun, client: int, x: PyTree, seed: int | None = None) -> np.ndarray:
    """What a client's model expects: logits [n, classes], or numbers [n].

    That of a time is the log of the mean time free of the event up to the last known one, the
    area under the curve.

    Args:
      run: with its models.
      client: its id.
      x: inputs [n, ...].
      seed: as in `calibrate`.
    """
    if is_survival(run):
        train = run.train(client, seed=seed)
        times, events = train.y.astype(float).T
        last = run.ends[-1] if run.ends else times.max()
        instants = np.linspace(0, last, INSTANTS)
        if run.ends or events.any():
            curves = run.survival(client, x, instants.tolist(), seed=seed)
            area = np.trapezoid(curves, instants, axis=1)
        else:
            area = np.full(tree.rows(x), last)
        return np.log(area)
    outputs = run.scores(client, x, seed=seed)
    inputs: Any = run.summary.get("inputs", {})
    return outputs if inputs.get("classes", 0) else outputs.reshape(-1).astype(float)


def _graph(run: FinishedRun, clients: Sequence[int], seed: int | None) -> np.ndarray | None:
    """What an example of each client weighs for each one, when that last took part [C, C]."""
    mixtures = last_mixtures(run)
    if mixtures is None:
        return None
    rows = mixtures[run.seeds.place(seed, None)]
    counts = np.array([len(run.train(client, seed=seed).y) for client in clients])
    return np.stack([weights_of_clients(rows[client], counts, client) for client in clients])


def last_mixtures(run: FinishedRun) -> np.ndarray | None:
    """The weights of the clients' models in those of each, when that last took part [S, C, C].

    Where parts of the model have their own weights, they are those of the first part. A client that
    never took part has its own model.

    Args:
      run: with S seeds and folds.

    Returns:
      None if the method has no weights.
    """
    if open_graph(run.directory) is None:
        return None
    arrays = run.graph
    name = next(one for one in arrays if one.startswith(WEIGHTS))
    several = (run.seeds.with_axis(arrays["ids"]), run.seeds.with_axis(arrays[name]))
    mixtures = []
    for ids, weights in zip(*several, strict=True):
        rows = np.eye(run.config.clients or 0)
        for members, one in zip(ids, weights, strict=True):
            rows[members] = 0.0
            rows[np.ix_(members, members)] = one
        mixtures.append(rows)
    return np.stack(mixtures)
