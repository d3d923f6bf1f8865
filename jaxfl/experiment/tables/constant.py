"""What tables say of the constant predictors of clients: a row, and who is no better."""

from typing import NamedTuple

from jaxfl.experiment.store.records import FurtherScores, Runs, Summary
from jaxfl.experiment.tables.scores import gains, measure_of, score_text
from jaxfl.simulation.metrics import metric_of

# The name of the row, and what it means: of labels, of times to an event, and of numbers.
MAJORITY = ("majority", "each client's most frequent training label, for all of its examples")
SAME = ("constant", "the same risk for all of each client's examples")
MEAN = ("mean", "the mean of each client's training targets, for all of its examples")
# The share of the clients with one label predicted that is worth a line.
NEARLY_ALL = 0.9


class Constant(NamedTuple):
    """The constant predictors of the clients that all runs of a table share."""

    name: str
    meaning: str
    scores: dict[str, FurtherScores]  # by metric, those of all runs


def constant_of(runs: Runs) -> Constant | None:
    """The constant predictors; None if no run has any, or the runs have others.

    Runs on the same clients may have others where they were evaluated on other clients: on those
    of their last cohorts, or on those that do not attack.
    """
    summaries = [run.summary for run in runs.values() if "constant" in run.summary]
    measure = measure_of(runs)
    texts = {
        score_text(measure, summary["constant"], "deployed", "mean")
        for summary in summaries
        if "constant" in summary
    }
    if len(texts) != 1:
        return None
    scores = {}
    for summary in summaries:
        scores = _scores(summary) | scores
    return Constant(*_words(summaries[0]), scores)


def _scores(summary: Summary) -> dict[str, FurtherScores]:
    """The scores of the constant predictors of a run, by metric."""
    scores = {summary["measure"]: summary["constant"]} if "constant" in summary else {}
    for metric, further in summary.get("scores", {}).items():
        if "constant" in further:
            scores[metric] = further["constant"]
    return scores


def _words(summary: Summary) -> tuple[str, str]:
    inputs = summary.get("inputs")
    if inputs is not None and inputs.get("survival"):
        return SAME
    return MAJORITY if inputs is None or inputs["classes"] else MEAN


def lines_on_constants(runs: Runs) -> list[str]:
    """Lines on the runs whose models are no better than constants, and on those of one label."""
    worse, constants, labels = [], "", []
    for label, run in runs.items():
        summary = run.summary
        measure = summary["measure"]
        if "constant" in summary:
            difference = gains(measure, summary["final"], summary["constant"])
            if difference and round(difference[0], metric_of(measure).digits) <= 0:
                worse.append(label)
                constants = _words(summary)[0]
        share = summary.get("one_label", 0.0)
        if share >= NEARLY_ALL:
            clients = "each client" if share == 1 else f"{100 * share:.0f} % of the clients"
            labels.append(f"{label} predicts one label for all test examples of {clients}")
    lines = [f"no better than the constant `{constants}`: {', '.join(worse)}"] if worse else []
    return lines + labels
