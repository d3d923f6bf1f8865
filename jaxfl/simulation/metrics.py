"""What models are scored by: each metric with its direction, and how it is shown.

A score is stored so that higher is better: of a metric whose lower values are better, minus the
value. Selection by validation and ranking therefore need not ask for the direction.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Array

from jaxfl.core.errors import InputError, check, check_name
from jaxfl.core.options import checked
from jaxfl.simulation import score_functions

# (predictions [n, ...], y [n, ...], weight [n]) -> a number, NaN where it is not defined
Score = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class Metric:
    """A score and what tables must know of it.

    Attributes:
      title: what columns of tables call it.
      score: (predictions [n, ...], y [n, ...], weight [n]) -> a number, NaN where it is not
        defined. It is traced, and mapped over clients. Rows of weight 0 do not count; there
        predictions and y are 0.
      better: whether the higher or the lower value is better.
      targets: what y holds: labels, of which predictions are the logits, or numbers.
      percent: whether the value is a part of one that is shown in %.
      digits: behind the point.
      highest: that a value can be, if this is known.
      root: whether the value is a mean square, of which the root is shown: of a mean over clients
        the root of the mean.

    Example:
      >>> cost = Metric("cost", lambda predictions, y, weight: weight.sum(), better="lower")
      >>> cost.stored(2.0), cost.shown(-2.0)
      (-2.0, 2.0)
    """

    title: str
    score: Score
    better: Literal["higher", "lower"] = "higher"
    targets: Literal["labels", "numbers", "any"] = "any"
    percent: bool = False
    digits: int = 3
    highest: float | None = None
    root: bool = False

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
        """1 if higher values are better, else -1."""
        return 1 if self.better == "higher" else -1

    def stored(self, value: Array | float) -> Array | float:
        """A value as it is stored: higher is better."""
        return self.sign * value

    def value(self, stored: float) -> float:
        """The value of a stored score, of a mean square the root."""
        # No -0.0.
        value = self.sign * stored + 0.0
        return max(value, 0.0) ** 0.5 if self.root else value

    def shown(self, stored: float) -> float:
        """The number that tables show of a stored score."""
        return 100 * self.value(stored) if self.percent else self.value(stored)

    def gain(self, stored: float, other: float) -> float:
        """How far a stored score is better than another one, as scores are shown.

        Example:
          >>> METRICS["rmse"].gain(-4.0, -9.0)
          1.0
        """
        return self.sign * (self.shown(stored) - self.shown(other))


# By the name that the command line takes. `METRICS["cost"] = Metric(...)` adds one.
METRICS: dict[str, Metric] = {
    "accuracy": Metric(
        "accuracy", score_functions.accuracy, targets="labels", percent=True, digits=1, highest=1.0
    ),
    "auc": Metric("AUC", score_functions.auc, targets="labels", highest=1.0),
    "f1": Metric("F1", score_functions.f1, targets="labels", highest=1.0),
    "balanced_accuracy": Metric(
        "balanced accuracy",
        score_functions.balanced_accuracy,
        targets="labels",
        percent=True,
        digits=1,
        highest=1.0,
    ),
    "log_loss": Metric("log loss", score_functions.log_loss, "lower", "labels"),
    "brier": Metric("Brier score", score_functions.brier, "lower", "labels"),
    "ece": Metric("ECE", score_functions.ece, "lower", "labels"),
    # Stored as minus the mean squared error.
    "rmse": Metric("RMSE", score_functions.mean_squared_error, "lower", "numbers", root=True),
    "mae": Metric("MAE", score_functions.mae, "lower", "numbers"),
    "r2": Metric("R2", score_functions.r2, targets="numbers", highest=1.0),
}


def metric_of(name: str) -> Metric:
    """The metric of a stored score.

    Raises:
      InputError: it is not known here.

    Example:
      >>> metric_of("auc").title
      'AUC'
    """
    if name not in METRICS:
        raise InputError(
            f"the scores are of the metric {name!r:.80}, which is not known here: name the file "
            f"that defines it with --plugin; known are {', '.join(METRICS)}"
        )
    return METRICS[name]


def default_metric(classes: int) -> str:
    """The metric of data with so many labels, 0 for numbers as targets, where none is named.

    Example:
      >>> default_metric(10), default_metric(0)
      ('accuracy', 'rmse')
    """
    return "accuracy" if classes else "rmse"


@checked
def named_metrics(metrics: Sequence[str] | Mapping[str, Metric]) -> dict[str, Metric]:
    """Metrics by name, in their order.

    Args:
      metrics: names of `METRICS`, or metrics by names of one's own.

    Raises:
      InputError: an unknown name.

    Example:
      >>> list(named_metrics(["auc", "accuracy"]))
      ['auc', 'accuracy']
    """
    if isinstance(metrics, Mapping):
        return dict(metrics)
    check(
        not isinstance(metrics, str),
        f"metrics is {metrics!r:.80}: expected a list of names, such as ['auc']",
    )
    for name in metrics:
        check_name("metric", name, METRICS)
    return {name: METRICS[name] for name in metrics}
