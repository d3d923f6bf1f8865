"""Differences of runs from one of them, pair by pair, with a confidence interval and a test."""

from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import check
from jaxfl.experiment.config import Config
from jaxfl.experiment.store.records import RunRecord, Runs
from jaxfl.experiment.tables.scores import by_seed, measure_of, members_text, ranked
from jaxfl.experiment.tables.tables import Cells, Meaning
from jaxfl.simulation.metrics import metric_of

LEVEL = 0.95  # of the confidence interval


class Difference(NamedTuple):
    """A mean difference of scores, as scores are shown; positive is better."""

    mean: float
    low: float  # of the confidence interval; NaN for a single pair
    high: float
    p: float  # of the two-sided paired t-test; NaN if all differences are equal
    pairs: str  # "3 seeds", "5 folds" or "10 clients"


def difference(run: RunRecord, other: RunRecord) -> Difference | None:
    """How far the deployed models of a run are better than those of another on the same clients.

    The pairs are the seeds, or the folds of the seeds; with one seed and one fold they are its
    clients.

    Args:
      run: with one seed it has the scores of its clients.
      other: likewise.

    Returns:
      The difference, or None if there is no pair of scores.
    """
    metric = metric_of(run.summary["measure"])
    seeds = [by_seed(one.summary["final"], "deployed", "mean") for one in (run, other)]
    if len(seeds[0]) == len(seeds[1]) > 1:
        pairs = np.array([[metric.shown(score) for score in scores] for scores in seeds])
        noun = members_text(pairs.shape[1], run.folds)
    elif run.client_scores is not None and other.client_scores is not None:
        if run.client_scores.shape != other.client_scores.shape:
            return None
        scores = np.stack([run.client_scores, other.client_scores])
        scores = scores[:, np.isfinite(scores).all(axis=0)]
        pairs = np.array([[metric.shown(score) for score in row] for row in scores.tolist()])
        noun = f"{pairs.shape[1]} clients"
    else:
        return None
    if not pairs.size:
        return None
    # Higher is better.
    pairs = metric.sign * pairs
    shared = 0.0 if run.config is None else overlap(run.config)
    return paired(pairs[0], pairs[1], noun, overlap=shared)


def overlap(config: Config) -> float:
    """Test examples over training examples of a fold; 0 without folds.

    Example:
      >>> overlap(Config(folds=5, val=0.0)), overlap(Config())
      (0.25, 0.0)
    """
    return 1 / ((config.folds - 1) * (1 - config.val)) if config.folds > 1 else 0.0


def paired(
    scores: np.ndarray, others: np.ndarray, pairs: str, *, overlap: float = 0.0
) -> Difference:
    """The mean of scores - others [N] with the interval of the paired t-test.

    The models of two folds have most of their training examples in common, so that the differences
    of folds vary less than those of new examples would. For folds it is the corrected resampled
    t-test of Nadeau and Bengio, Inference for the generalization error, Machine Learning 52, 2003:
    the variance of the mean is (1 / N + n_test / n_train) times that of the differences. With
    several seeds it is the test of repeated cross-validation of Bouckaert and Frank, PAKDD 2004.

    Args:
      scores: [N].
      others: [N], the same seeds, folds or clients in the same order.
      pairs: what the pairs are, in words.
      overlap: n_test / n_train where the pairs are folds; 0 for independent pairs.

    Example:
      >>> scores = np.array([0.7, 0.8, 0.9])
      >>> round(paired(scores, np.full(3, 0.6), "3 folds", overlap=0.5).p, 3)
      0.16
    """
    differences = scores - others
    mean = float(differences.mean())
    if len(differences) < 2:
        return Difference(mean, np.nan, np.nan, np.nan, pairs)
    if np.ptp(differences) == 0:
        return Difference(mean, mean, mean, np.nan, pairs)
    from scipy import stats  # importing it takes a quarter of the command line's start

    count = len(differences)
    error = float(np.sqrt(differences.var(ddof=1) * (1 / count + overlap)))
    half = float(stats.t.ppf((1 + LEVEL) / 2, count - 1)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, count - 1))
    return Difference(mean, mean - half, mean + half, p, pairs)


def reference_of(runs: Runs, against: str, setting: str = "") -> str:
    """The label of the run to which the others are compared.

    Args:
      runs: with the same clients.
      against: the name of a run or a method.
      setting: of these runs, for the message.

    Raises:
      InputError: there is no such run, or several.
    """
    matches = [label for label in runs if label == against]
    matches = matches or [n for n, run in runs.items() if run.summary["algorithm"] == against]
    where = f" with {setting}" if setting else ""
    check(bool(matches), f"--against {against}: no such run{where}, choose from {', '.join(runs)}")
    check(
        len(matches) == 1,
        f"--against {against}: there are several{where}, choose from {', '.join(matches)}",
    )
    return matches[0]


def difference_cells(runs: Runs, against: str, setting: str = "") -> Cells:
    """A table of the differences of all runs from one of them, the best first.

    Args:
      runs: with the same clients.
      against: the name of a run or a method among them.
      setting: of these runs, for messages.

    Raises:
      InputError: as `reference_of`.
    """
    reference = reference_of(runs, against, setting)
    digits = metric_of(runs[reference].summary["measure"]).format
    rows = []
    for label in ranked(runs):
        if label == reference:
            continue
        value = difference(runs[label], runs[reference])
        rows.append((label, ["-"] * 4 if value is None else _texts(value, digits)))
    return Cells(["difference", "interval", "p", "pairs"], rows)


def short_difference(value: Difference | None, digits: str) -> str:
    """A difference with its interval, in one cell."""
    if value is None:
        return "-"
    mean, interval, _, _ = _texts(value, digits)
    return mean if interval == "-" else f"{mean} [{interval}]"


def _texts(value: Difference, digits: str) -> list[str]:
    mean, low, high = (f"{x + 0.0:+{digits}}" for x in (value.mean, value.low, value.high))
    interval = "-" if np.isnan(value.low) else f"{low} to {high}"
    p = "-" if np.isnan(value.p) else ("<0.001" if value.p < 0.001 else f"{value.p:.3f}")
    return [mean, interval, p, value.pairs]


PAIRS = "pairs are seeds, or the clients of one seed, which say nothing about other seeds"
FOLDS = "pairs are folds; the test allows for the training examples that they share"


def _pairs(runs: Runs) -> str:
    """What the pairs are."""
    return FOLDS if any(run.folds > 1 for run in runs.values()) else PAIRS


def meaning_of_differences(runs: Runs) -> Meaning:
    """What the columns of `difference_cells` mean, for runs of one measure."""
    return [
        ("difference", f"{_score_name(runs)}, mean over the pairs"),
        ("interval", "95 % confidence interval of the paired t-test"),
        ("p", "of the same test, two-sided, not corrected for the number of runs"),
        ("", _pairs(runs)),
    ]


def meaning_of_pivoted_differences(runs: Runs) -> Meaning:
    """What a table of `short_difference` means, for runs of one measure."""
    interval = "95 % confidence interval of the paired t-test"
    return [("", f"difference of the {_score_name(runs)} [{interval}]"), ("", _pairs(runs))]


def _score_name(runs: Runs) -> str:
    metric = metric_of(measure_of(runs))
    direction = "" if metric.better == "higher" else ", positive where it is lower"
    return f"{metric.name} of the deployed models{direction}"
