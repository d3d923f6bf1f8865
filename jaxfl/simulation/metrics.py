"""What models are scored by: each metric with its direction, and how it is shown.

A score is stored so that higher is better: of a metric whose lower values are better, minus the
value. Selection by validation and ranking therefore need not ask for the direction.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from jaxtyping import Array

from jaxfl.core.errors import InputError, check, check_name
from jaxfl.core.options import checked
from jaxfl.simulation import calibration_scores, score_functions, survival_scores

# (predictions [n, ...], y [n, ...], weight [n]) -> a number, NaN where it is not defined; that of
# one class also takes its number, `label`
Score = Callable[..., Array]


@dataclass(frozen=True)
class Metric:
    """A score and what tables must know of it.

    Attributes:
      title: what columns of tables call it.
      score: (predictions [n, ...], y [n, ...], weight [n]) -> a number, NaN where it is not
        defined. It is traced, and mapped over clients. Rows of weight 0 do not count; there
        predictions and y are 0.
      better: whether the higher or the lower value is better; "neither" where one value is right,
        so that the metric stands beside others and selects nothing.
      targets: what y holds: labels, of which predictions are the logits, numbers, or times to an
        event.
      percent: whether the value is a part of one that is shown in %.
      digits: behind the point.
      highest: that a value can be, if this is known.

    Example:
      >>> cost = Metric("cost", lambda predictions, y, weight: weight.sum(), better="lower")
      >>> cost.stored(2.0), cost.shown(-2.0)
      (-2.0, 2.0)
    """

    title: str
    score: Score
    better: Literal["higher", "lower", "neither"] = "higher"
    targets: Literal["labels", "numbers", "times", "any"] = "any"
    percent: bool = False
    digits: int = 3
    highest: float | None = None

    @property
    def name(self) -> str:
        """The title with the unit: "accuracy in %"."""
        return f"{self.title} in %" if self.percent else self.title

    @property
    def format(self) -> str:
        """The format of a value that is shown."""
        return f".{self.digits}f"

    @property
    def sign(self) -> int:
        """-1 if lower values are better, else 1."""
        return -1 if self.better == "lower" else 1

    def stored(self, value: Array | float) -> Array | float:
        """A value as it is stored: higher is better."""
        return self.sign * value

    def value(self, stored: float) -> float:
        """The value of a stored score."""
        # No -0.0.
        return self.sign * stored + 0.0

    def shown(self, stored: float) -> float:
        """The number that tables show of a stored score."""
        return 100 * self.value(stored) if self.percent else self.value(stored)

    def gain(self, stored: float, other: float) -> float:
        """How far a stored score is better than another one, as scores are shown.

        Example:
          >>> METRICS["rmse"].gain(-2.0, -3.0)
          1.0
        """
        return self.sign * (self.shown(stored) - self.shown(other))


# What stands for a class in the name and the title of a metric of one class, and for a time.
CLASS = "CLASS"
TIME = "TIME"

# Of a share of the examples, or of a mean of such shares.
SHARE: Any = {"targets": "labels", "percent": True, "digits": 1, "highest": 1.0}

# By the name that the command line takes. `METRICS["cost"] = Metric(...)` adds one. The score of a
# metric "NAME:CLASS" is that of one class, and takes its number as `label`.
METRICS: dict[str, Metric] = {
    "accuracy": Metric(
        "accuracy", score_functions.accuracy, targets="labels", percent=True, digits=1, highest=1.0
    ),
    "auc": Metric("AUC", score_functions.auc, targets="labels", highest=1.0),
    "average_precision": Metric(
        "average precision", score_functions.average_precision, targets="labels", highest=1.0
    ),
    "f1": Metric("F1", score_functions.f1, targets="labels", highest=1.0),
    "balanced_accuracy": Metric(
        "balanced accuracy",
        score_functions.balanced_accuracy,
        **SHARE,
    ),
    "log_loss": Metric("log loss", score_functions.log_loss, "lower", "labels"),
    "perplexity": Metric("perplexity", score_functions.perplexity, "lower", "labels"),
    "brier": Metric("Brier score", score_functions.brier, "lower", "labels"),
    "ece": Metric("ECE", score_functions.ece, "lower", "labels"),
    "calibration_slope": Metric(
        "calibration slope", calibration_scores.calibration_slope, "neither", "labels", digits=2
    ),
    "calibration_intercept": Metric(
        "calibration intercept",
        calibration_scores.calibration_intercept,
        "neither",
        "labels",
        digits=2,
    ),
    "rmse": Metric("RMSE", score_functions.rmse, "lower", "numbers"),
    "mae": Metric("MAE", score_functions.mae, "lower", "numbers"),
    "r2": Metric("R2", score_functions.r2, targets="numbers", highest=1.0),
    "concordance": Metric("concordance", survival_scores.concordance, targets="times", highest=1.0),
    "concordance_ipcw": Metric(
        "concordance (IPCW)", survival_scores.concordance_ipcw, targets="times", highest=1.0
    ),
    "integrated_brier": Metric(
        "integrated Brier score", survival_scores.integrated_brier, "lower", "times"
    ),
    "calibration_at:TIME": Metric(
        "calibration at TIME", survival_scores.calibration_at, "neither", "times"
    ),
    "recall:CLASS": Metric(
        "recall of CLASS",
        score_functions.recall,
        **SHARE,
    ),
    "precision:CLASS": Metric(
        "precision of CLASS",
        score_functions.precision,
        **SHARE,
    ),
    "specificity:CLASS": Metric(
        "specificity of CLASS",
        score_functions.specificity,
        **SHARE,
    ),
    "f1:CLASS": Metric("F1 of CLASS", score_functions.f1_of_label, targets="labels", highest=1.0),
    "auc:CLASS": Metric(
        "AUC of CLASS", score_functions.auc_of_label, targets="labels", highest=1.0
    ),
    "average_precision:CLASS": Metric(
        "average precision of CLASS",
        score_functions.average_precision_of_label,
        targets="labels",
        highest=1.0,
    ),
}


def entry_of(name: str) -> str:
    """The key of `METRICS` that a name stands for.

    Example:
      >>> entry_of("auc"), entry_of("recall:died")
      ('auc', 'recall:CLASS')
    """
    kind, colon, _ = name.partition(":")
    entries = [f"{kind}:{what}" for what in (CLASS, TIME) if f"{kind}:{what}" in METRICS]
    return entries[0] if colon and name not in METRICS and entries else name


def label_of(name: str, class_names: Sequence[str]) -> int | None:
    """The label of the class that the name of a metric ends with: its name, else its number.

    Args:
      name: such as "recall:died", or "recall:1".
      class_names: of the labels 0, 1, ...; empty if they have no names.

    Returns:
      None if it is neither the name of a class nor a number.

    Example:
      >>> label_of("recall:died", ["lived", "died"]), label_of("recall:3", [])
      (1, 3)
    """
    _, _, text = name.partition(":")
    if text in class_names:
        return list(class_names).index(text)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def metric_of(name: str, class_names: Sequence[str] = (), ends: Sequence[float] = ()) -> Metric:
    """The metric of a stored score.

    Args:
      name: of the metric.
      class_names: of the labels 0, 1, ...: without them the score of a class that is given by its
        name cannot be computed, and all else is there.
      ends: of the bins of time whose hazards models predict; likewise.

    Raises:
      InputError: it is not known here.

    Example:
      >>> metric_of("auc").title, metric_of("recall:died").title
      ('AUC', 'recall of died')
    """
    entry = entry_of(name)
    if entry not in METRICS or not name.isprintable():
        raise InputError(
            f"the scores are of the metric {name!r:.80}, which is not known here: name the file "
            f"that defines it with --plugin; known are {', '.join(METRICS)}"
        )
    if needs_bins(name):
        return _of_bins(METRICS[entry], name, tuple(ends))
    if not entry.endswith(f":{CLASS}"):
        return METRICS[entry]
    return _of_class(METRICS[entry], name, label_of(name, class_names))


# The same object for the same class: programs are compiled for a metric.
@functools.cache
def _of_class(metric: Metric, name: str, label: int | None) -> Metric:
    """The metric of one class; where the label is not known, its score raises an error."""
    _, _, text = name.partition(":")

    def score(predictions: Array, y: Array, weight: Array) -> Array:
        check(
            label is not None,
            f"the metric {name!r:.80} names a class, and the names of the classes are not known "
            "here: give the number of the class",
        )
        return metric.score(predictions, y, weight, label=label)

    return replace(metric, title=metric.title.replace(CLASS, text), score=score)


def needs_bins(name: str) -> bool:
    """Whether a metric is of hazards in bins of time.

    Example:
      >>> needs_bins("integrated_brier"), needs_bins("concordance")
      (True, False)
    """
    score = METRICS[entry_of(name)].score if entry_of(name) in METRICS else None
    return score in (survival_scores.integrated_brier, survival_scores.calibration_at)


@functools.cache
def _of_bins(metric: Metric, name: str, ends: tuple[float, ...]) -> Metric:
    """The metric of hazards in bins that end at these times, at the time behind its colon."""
    _, colon, text = name.partition(":")
    time = {}
    if colon:
        try:
            time = {"time": float(text)}
        except ValueError as error:
            raise InputError(
                f"the metric {name!r:.80} does not end with a time: expected a number, such as "
                f"{name.partition(':')[0]}:365"
            ) from error

    def score(predictions: Array, y: Array, weight: Array) -> Array:
        return metric.score(predictions, y, weight, ends=ends, **time)

    return replace(metric, title=metric.title.replace(TIME, text), score=score)


def default_metric(classes: int, survival: bool = False) -> str:
    """The metric of data where none is named.

    Args:
      classes: the number of labels; 0 for numbers as targets.
      survival: whether these are times to an event.

    Example:
      >>> default_metric(10), default_metric(0), default_metric(0, survival=True)
      ('accuracy', 'rmse', 'concordance')
    """
    if survival:
        return "concordance"
    return "accuracy" if classes else "rmse"


@checked
def named_metrics(
    metrics: Sequence[str] | Mapping[str, Metric],
    class_names: Sequence[str] = (),
    ends: Sequence[float] = (),
) -> dict[str, Metric]:
    """Metrics by name, in their order.

    Args:
      metrics: names of `METRICS`, or metrics by names of one's own.
      class_names: of the labels 0, 1, ..., see `metric_of`.
      ends: of bins of time, likewise.

    Raises:
      InputError: an unknown name.

    Example:
      >>> list(named_metrics(["auc", "recall:1"]))
      ['auc', 'recall:1']
    """
    if isinstance(metrics, Mapping):
        return dict(metrics)
    check(
        not isinstance(metrics, str),
        f"metrics is {metrics!r:.80}: expected a list of names, such as ['auc']",
    )
    for name in metrics:
        check_name("metric", entry_of(name), METRICS)
    found = {name: metric_of(name, class_names, ends) for name in metrics}
    check_first(list(found))
    return found


def check_first(names: Sequence[str]) -> None:
    """Raises an `InputError` if the first metric, by which models are selected, has no better end.

    Example:
      >>> check_first(["calibration_slope"])
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the first metric selects models and ranks methods, and of ...
    """
    if names and metric_of(names[0]).better == "neither":
        raise InputError(
            f"the first metric selects models and ranks methods, and of {names[0]} neither a "
            f"higher nor a lower value is better: name another one before it, as auc {names[0]}"
        )
