"""How far the predicted probabilities of two labels are from the shares that hold.

Both are those of a logistic model of the labels by the logit of the predicted probability (Cox,
Two further applications of a model for binary regression, Biometrika, 1958, section 3; Van Calster
et al., Calibration: the Achilles heel of predictive analytics, BMC Medicine, 2019,
https://doi.org/10.1186/s12916-019-1466-7). No value is better for being higher or lower: each has
one that is right.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.core.errors import check
from jaxfl.simulation.each_label import each_label
from jaxfl.simulation.score_functions import Labels, Logits, Number, Weight, flat_labels

STEPS = 30  # of Newton's method, each of the best length
HALVINGS = 60  # of the interval of the intercept


@each_label
def calibration_slope(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """The slope of the labels' log odds over those of the predictions; 1 is right.

    Below 1 probabilities are too extreme, as of an overfitted model; above 1 too moderate. NaN if
    all examples have one label, all predictions are the same, or a threshold separates the labels,
    so that the slope is infinite; 0 of a model that predicts NaN.

    Example:
      >>> logits = jnp.array([[0.0, -2.0], [0.0, 2.0]])[jnp.array([0, 0, 0, 0, 1, 1, 1, 1])]
      >>> y = jnp.array([0, 0, 0, 1, 1, 1, 1, 0])
      >>> round(calibration_slope(logits, y, jnp.ones(8)).item(), 4)  # log 3 / 2
      0.5493
    """
    odds, positive, weight, total, is_finite = _odds(predictions, y, weight)
    centre = (weight * odds).sum() / total
    width = jnp.sqrt((weight * (odds - centre) ** 2).sum() / total)
    scaled = (odds - centre) / jnp.where(width > 0, width, 1.0)
    share = weight / total

    def loss(line: Float[Array, "2"]) -> Number:
        z = line[0] + line[1] * scaled
        return (share * (jax.nn.softplus(z) - positive * z)).sum()

    lengths = 0.5 ** jnp.arange(12)

    def step(line: Array, _) -> tuple[Array, None]:
        # The ridge keeps the step finite where probabilities are 0 or 1.
        curvature = jax.hessian(loss)(line) + 1e-9 * jnp.eye(2)
        direction = jnp.linalg.solve(curvature, jax.grad(loss)(line))
        tries = line[None] - jnp.outer(jnp.append(lengths, 0.0), direction)
        return tries[jnp.nanargmin(jax.vmap(loss)(tries))], None

    line, _ = lax.scan(step, jnp.zeros(2), length=STEPS)
    # Labels that a threshold separates.
    ones, zeros = (weight > 0) & (positive > 0), (weight > 0) & (positive == 0)
    low, high = jnp.where(ones, odds, jnp.inf).min(), jnp.where(zeros, odds, -jnp.inf).max()
    lowest, highest = jnp.where(zeros, odds, jnp.inf).min(), jnp.where(ones, odds, -jnp.inf).max()
    defined = (low < high) & (lowest < highest) & (width > 0)
    slope = jnp.where(defined, line[1] / jnp.where(width > 0, width, 1.0), jnp.nan)
    return jnp.where(is_finite, slope, jnp.where(ones.any() & zeros.any(), 0.0, jnp.nan))


@each_label
def calibration_intercept(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """What is missing in the predictions' log odds on the whole; 0 is right.

    Above 0 the label is more frequent than predicted, below 0 rarer: "calibration in the large",
    the intercept where the slope is 1. NaN if all examples have one label; infinite of a model that
    predicts NaN.

    Example:
      >>> y = jnp.array([0, 1, 1, 1])
      >>> round(calibration_intercept(jnp.zeros((4, 2)), y, jnp.ones(4)).item(), 4)  # log 3
      1.0986
    """
    odds, positive, weight, total, is_finite = _odds(predictions, y, weight)
    share = (weight * positive).sum() / total
    # Where all odds are the least or the largest one, the intercept is at an end.
    known = jnp.where(weight > 0, odds, odds[jnp.argmax(weight)])
    wanted = jnp.log(share) - jnp.log1p(-share)

    def halve(ends: tuple[Array, Array], _) -> tuple[tuple[Array, Array], None]:
        low, high = ends
        middle = (low + high) / 2
        enough = (weight * jax.nn.sigmoid(odds + middle)).sum() >= (weight * positive).sum()
        return (jnp.where(enough, low, middle), jnp.where(enough, middle, high)), None

    (low, high), _ = lax.scan(halve, (wanted - known.max(), wanted - known.min()), length=HALVINGS)
    value = jnp.where((share > 0) & (share < 1), (low + high) / 2, jnp.nan)
    return jnp.where(is_finite | jnp.isnan(value), value, jnp.inf)


def _odds(
    predictions: Logits, y: Labels, weight: Weight
) -> tuple[Float[Array, "n"], Float[Array, "n"], Weight, Number, Array]:
    """The log odds of label 1, whether it holds, the weights, their sum, and if all is finite."""
    logits, y, weight = flat_labels(predictions, y, weight)
    check(
        logits.shape[1] == 2,
        f"calibration slope and intercept are those of two labels, and the data have "
        f"{logits.shape[1]}: name another metric, such as ece",
    )
    odds = logits[:, 1] - logits[:, 0]
    is_finite = jnp.isfinite(jnp.where(weight > 0, odds, 0.0)).all()
    odds = jnp.where(jnp.isfinite(odds), odds, 0.0)
    total = jnp.maximum(weight.sum(), jnp.finfo(weight.dtype).tiny)
    return odds, (y == 1).astype(weight.dtype), weight, total, is_finite
