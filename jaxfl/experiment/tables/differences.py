"""Differences of runs from one of them, pair by pair, with a confidence interval and a test."""

from typing import NamedTuple

import numpy as np

from jaxfl.core.errors import check
from jaxfl.experiment.store.records import RunRecord, Runs
from jaxfl.experiment.tables.scores import by_seed, measure_of, ranked
from jaxfl.experiment.tables.tables import Cells, Meaning
from jaxfl.simulation.metrics import metric_of

LEVEL = 0.95  # of the confidence interval


class Difference(NamedTuple):
    """A mean difference of scores, as scores are shown; positive is better."""

    mean: float
    low: float  # of the confidence interval; NaN for a single pair
    high: float
    p: float  # of the two-sided paired t-test; NaN if all differences are equal
    pairs: str  # "3 seeds" or "10 clients"


def difference(run: RunRecord, other: RunRecord) -> Difference | None:
    """How far the deployed models of a run are better than those of another on the same clients.

    The pairs are the seeds; with one seed they are its clients.

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
        noun = "seeds"
    elif run.client_scores is not None and other.client_scores is not None:
        if run.client_scores.shape != other.client_scores.shape:
            return None
        scores = np.stack([run.client_scores, other.client_scores])
        scores = scores[:, np.isfinite(scores).all(axis=0)]
        pairs = np.array([[metric.shown(score) for score in row] for row in scores.tolist()])
        noun = "clients"
    else:
        return None
    if not pairs.size:
        return None
    # Higher is better.
    pairs = metric.sign * pairs
    return paired(pairs[0], pairs[1], noun)


def paired(scores: np.ndarray, others: np.ndarray, noun: str) -> Difference:
    """The mean of scores - others [N] with the interval of the paired t-test.

    Args:
      scores: [N].
      others: [N], the same seeds or clients in the same order.
      noun: what the pairs are.
    """
    differences = scores - others
    mean = float(differences.mean())
    pairs = f"{len(differences)} {noun}"
    if len(differences) < 2:
        return Difference(mean, np.nan, np.nan, np.nan, pairs)
    if np.ptp(differences) == 0:
        return Difference(mean, mean, mean, np.nan, pairs)
    from scipy import stats  # importing it takes a quarter of the command line's start

    test = stats.ttest_rel(scores, others)
    low, high = test.confidence_interval(LEVEL)
    return Difference(mean, float(low), float(high), float(test.pvalue), pairs)


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


def meaning_of_differences(runs: Runs) -> Meaning:
    """What the columns of `difference_cells` mean, for runs of one measure."""
    return [
        ("difference", f"{_score_name(runs)}, mean over the pairs"),
        ("interval", "95 % confidence interval of the paired t-test"),
        ("p", "of the same test, two-sided, not corrected for the number of runs"),
        ("", PAIRS),
    ]


def meaning_of_pivoted_differences(runs: Runs) -> Meaning:
    """What a table of `short_difference` means, for runs of one measure."""
    interval = "95 % confidence interval of the paired t-test"
    return [("", f"difference of the {_score_name(runs)} [{interval}]"), ("", PAIRS)]


def _score_name(runs: Runs) -> str:
    metric = metric_of(measure_of(runs))
    direction = "" if metric.better == "higher" else ", positive where it is lower"
    return f"{metric.name} of the deployed models{direction}"
