"""Calibration after training: one temperature, by which a client's logits are divided."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from jaxfl.core.errors import check, warn
from jaxfl.core.options import checked
from jaxfl.experiment.config import Config
from jaxfl.experiment.store.records import Inputs

FEWEST = 20  # validation examples of a client, to which one number can be fitted


class NoTemperature(ValueError):
    """Why there is no temperature, in words."""


def probabilities(logits: np.ndarray) -> np.ndarray:
    """The softmax of logits [B, L]."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def check_calibration(config: Config, inputs: Inputs, directory: Path) -> None:
    """Raises an `InputError` if the models of a run cannot be calibrated at all."""
    check(
        inputs["classes"] > 0,
        f"the targets of {directory} are numbers, which have no probabilities to calibrate: leave "
        "out calibrate (--calibrate)",
    )
    check(
        "target" not in inputs,
        f"the examples of {directory} have several labels or one for each position, and one alone "
        "is calibrated: leave out calibrate (--calibrate)",
    )
    check(
        config.feedback == "val",
        f"the clients of {directory} validated on their test examples (--feedback test-leaking): "
        "there is nothing else to calibrate on",
    )


def temperature_of(labels: np.ndarray, logits: Callable[[], np.ndarray], client: str) -> float:
    """The temperature of a client; 1 where there is none, and a warning says why.

    Args:
      labels: of its validation examples [n].
      logits: computes the logits of its model [n, L].
      client: what it is called.
    """
    try:
        check_examples(labels)
        return fit_temperature(logits(), labels)
    except NoTemperature as reason:
        warn(f"the probabilities of {client} are not calibrated: {reason}")
        return 1.0


def check_examples(labels: np.ndarray) -> None:
    """Raises `NoTemperature` if the labels are too few, or all the same."""
    if len(labels) < FEWEST:
        raise NoTemperature(f"it has {len(labels)} validation examples, fewer than {FEWEST}")
    if len(np.unique(labels)) < 2:
        raise NoTemperature("all its validation examples have one label")


@checked
def fit_temperature(logits: Float[np.ndarray, "n l"], labels: Int[np.ndarray, " n"]) -> float:
    """The temperature T > 0 at which softmax(logits / T) has the smallest log loss on the labels.

    Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, section
    4.2. The loss is convex in 1 / T, so that its derivative has one zero, which Brent's method
    finds. No label changes, since the order of logits does not.

    Args:
      logits: of examples on which the model was not trained.
      labels: of these examples, from 0 to L - 1.

    Raises:
      NoTemperature: there are fewer than `FEWEST` examples or one label alone; the model is right
        on all examples, so that T = 0 would be best; or it is not better than chance, so that no
        finite T would be.

    Example:
      >>> rng = np.random.default_rng(0)
      >>> labels = rng.integers(0, 2, 400)
      >>> right = rng.random(400) < 0.8  # and yet it is sure: its odds are exp(5) to 1
      >>> logits = 5.0 * np.eye(2)[np.where(right, labels, 1 - labels)]
      >>> 3 < fit_temperature(logits, labels) < 4  # 5 / log(4) = 3.6 for 80 %
      True
    """
    # SciPy takes a while to load, and only calibration needs this part of it.
    from scipy.optimize import root_scalar

    check(len(logits) == len(labels), "there is not one label for each row of logits")
    check_examples(labels)
    # What a row has in common changes no probability.
    scores = logits.astype(float) - logits.max(axis=1, keepdims=True)
    if not np.isfinite(scores).all():
        raise NoTemperature("its model has outputs that are not finite")
    own = scores[np.arange(len(labels)), labels]

    def slope(inverse: float) -> float:
        """The derivative of the mean log loss by 1 / T: expected less own logit."""
        powers = np.exp(inverse * scores)
        expected = (powers * scores).sum(axis=1) / powers.sum(axis=1)
        return float((expected - own).mean())

    if not own.any():
        raise NoTemperature("its model is right on all its validation examples")
    if slope(0.0) >= 0:
        raise NoTemperature("its model is not better than chance on the validation examples")
    high = 1.0
    while slope(high) <= 0:
        high *= 2
    root = root_scalar(slope, bracket=(0.0, high), method="brentq", xtol=1e-12, rtol=1e-12).root
    return 1 / float(root)
