"""Scores of times to an event, of which some are censored.

Each is (predictions [n, k], y [n, 2], weight [n]) -> a number, NaN where it is not defined. y are
pairs of a time, and 1 where the event happened then, or 0 where it had not happened until then.
Predictions are log risks [n, 1], as of Cox's model, or the logits of hazards [n, K] in K bins of
time. Rows of weight 0 do not count. A model that predicts NaN has the worst value there is.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.core.errors import check

Number = Float[Array, ""]
Weight = Float[Array, "n"]
Pairs = Float[Array, "n 2"]
Outputs = Float[Array, "n k"]

# Rows of a matrix of pairs that are computed side by side.
ROWS = 64
# Risks that differ by less are tied.
TIED = 1e-8


def concordance(predictions: Outputs, y: Pairs, weight: Weight) -> Number:
    """The share of comparable pairs whose first event has the higher risk; tied risks count half.

    A pair is comparable if the one with the shorter time has the event then; of equal times, if one
    alone has it. NaN without such a pair. Harrell et al., Evaluating the yield of medical tests,
    JAMA, 1982.

    Example:
      >>> y = jnp.array([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
      >>> concordance(jnp.array([[2.0], [1.0], [2.0]]), y, jnp.ones(3)).item()
      0.75
    """
    return _concordance(predictions, y, weight, weight)


def concordance_ipcw(predictions: Outputs, y: Pairs, weight: Weight) -> Number:
    """The concordance in which an event weighs by how unlikely it was to be seen so late.

    An event at time t weighs 1 / G(t)^2, where G is the Kaplan-Meier estimate of the probability
    that a time is not yet censored. So the value does not depend on how long patients were
    followed. Uno et al., On the C-statistics for evaluating overall adequacy of risk prediction
    procedures with censored survival data, Statistics in Medicine, 2011, equation 6.

    Differs: G is that of the scored examples; the paper's is that of the training examples, which
    scores do not see.

    Example:
      >>> y = jnp.array([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0], [4.0, 0.0]])
      >>> risk = jnp.array([[2.0], [1.0], [1.5], [1.7]])
      >>> round(concordance_ipcw(risk, y, jnp.ones(4)).item(), 4)
      0.5714
    """
    weight = jnp.where(weight > 0, weight, 0.0)
    free = still_free(y, weight, of_censoring=True)
    inverse = jnp.where(free > 0, 1 / jnp.where(free > 0, free, 1.0) ** 2, 0.0)
    return _concordance(predictions, y, weight * inverse, weight)


def _concordance(predictions: Outputs, y: Pairs, early: Weight, late: Weight) -> Number:
    """The share of comparable pairs that are in order, by the weights of the two of a pair."""
    _check_pairs(predictions, y)
    counts = (early > 0) | (late > 0)
    risk = jnp.where(counts, risks(predictions), 0.0)
    time, event = jnp.where(counts, y[:, 0], 0.0), counts & (y[:, 1] > 0)
    is_number = ~jnp.isnan(risk)

    def row(place: Array) -> tuple[Array, Array]:
        after = (time > time[place]) | ((time == time[place]) & ~event)
        pairs = jnp.where(after & event[place], early[place] * late, 0.0)
        apart = risk[place] - risk
        ordered = jnp.where(jnp.abs(apart) <= TIED, 0.5, jnp.where(apart > 0, 1.0, 0.0))
        right = jnp.where(is_number & is_number[place], ordered, 0.0)
        return jnp.sum(pairs * right), jnp.sum(pairs)

    rights, totals = lax.map(row, jnp.arange(len(y)), batch_size=ROWS)
    total = totals.sum()
    return jnp.where(total > 0, rights.sum() / jnp.where(total > 0, total, 1.0), jnp.nan)


def risks(predictions: Outputs) -> Float[Array, "n"]:
    """One number an example, higher where the event is expected earlier.

    Of hazards it is minus the sum of the probabilities to be free of the event after each bin.

    Example:
      >>> risks(jnp.array([[0.0, 0.0]])).tolist()  # -(.5 + .25)
      [-0.75]
    """
    if predictions.shape[1] == 1:
        return predictions[:, 0]
    return -survived(predictions).sum(axis=1)


def survived(logits: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """The probability to be free of the event after each bin: the product of what hazards leave.

    Example:
      >>> survived(jnp.array([[0.0, 0.0]])).tolist()
      [[0.5, 0.25]]
    """
    return jnp.exp(jnp.cumsum(-jax.nn.softplus(logits), axis=1))


def still_free(y: Pairs, weight: Weight, *, of_censoring: bool = False) -> Float[Array, "n"]:
    """The Kaplan-Meier estimate at each example's own time: 1 - the share with an event by then.

    Kaplan and Meier, Nonparametric estimation from incomplete observations, JASA, 1958.

    Args:
      y: times and events.
      weight: of the examples.
      of_censoring: estimate who is not censored by then; of one time events come before censoring.

    Example:
      >>> still_free(jnp.array([[1.0, 1.0], [2.0, 0.0]]), jnp.ones(2)).tolist()
      [0.5, 0.5]
    """
    counts = weight > 0
    weight = jnp.where(counts, weight, 0.0)
    time, event = jnp.where(counts, y[:, 0], jnp.inf), counts & (y[:, 1] > 0)
    order = jnp.argsort(time)
    time, event, weight = time[order], event[order], weight[order]
    begins = jnp.append(True, time[1:] != time[:-1])
    group = jnp.cumsum(begins) - 1

    def of_time(values: Array) -> Array:
        return jax.ops.segment_sum(values, group, num_segments=len(time))

    everyone, events = of_time(weight), of_time(jnp.where(event, weight, 0.0))
    # Those who have not left before a time.
    at_risk = jnp.cumsum(everyone[::-1])[::-1]
    happened = events
    if of_censoring:
        at_risk, happened = at_risk - events, everyone - events
    stay = jnp.where(at_risk > 0, 1 - happened / jnp.where(at_risk > 0, at_risk, 1.0), 1.0)
    free = jnp.cumprod(stay)[group]
    return jnp.zeros(len(time)).at[order].set(free)


def _check_pairs(predictions: Array, y: Array) -> None:
    check(
        y.ndim == 2 and y.shape[1] == 2 and predictions.ndim == 2 and len(predictions) == len(y),
        f"the predictions have shape {predictions.shape} and the targets {y.shape}: expected pairs "
        "(time, event), and a log risk or hazards for each",
    )


def integrated_brier(
    predictions: Outputs, y: Pairs, weight: Weight, *, ends: Sequence[float]
) -> Number:
    """The mean over time of the Brier score of who is free of the event; lower is better.

    A score at a time weighs those who are not censored before it by the inverse probability of
    that. The mean is over the ends of the bins within the times of the examples, by the trapezoidal
    rule. Graf et al., Assessment and comparison of prognostic classification schemes for survival
    data, Statistics in Medicine, 1999, section 4.

    Differs: the probability is that of the scored examples, as in `concordance_ipcw`.

    Args:
      predictions: logits of hazards.
      y: times and events.
      weight: of the examples.
      ends: of the bins [K].

    Example:
      >>> y = jnp.array([[1.0, 1.0], [2.5, 0.0], [3.0, 1.0]])
      >>> logits = jnp.zeros((3, 3))  # free of the event: .5, .25 and .125
      >>> round(integrated_brier(logits, y, jnp.ones(3), ends=(1.0, 2.0, 4.0)).item(), 4)
      0.3229
    """
    _check_bins(predictions, y, ends)
    counts = weight > 0
    weight = jnp.where(counts, weight, 0.0)
    time, event = jnp.where(counts, y[:, 0], 0.0), counts & (y[:, 1] > 0)
    grid = jnp.asarray(ends)
    free = survived(jnp.where(counts[:, None], predictions, 0.0))
    own = still_free(y, weight, of_censoring=True)
    # The estimate is a step at each time.
    known = jnp.where(counts[:, None] & (time[:, None] <= grid[None]), own[:, None], 1.0)
    at_grid = known.min(axis=0)
    happened = event[:, None] & (time[:, None] <= grid[None])
    later = counts[:, None] & (time[:, None] > grid[None])
    errors = jnp.where(happened, free**2 / _positive(own)[:, None], 0.0)
    errors += jnp.where(later, (1 - free) ** 2 / _positive(at_grid)[None], 0.0)
    scores = jnp.sum(weight[:, None] * errors, axis=0) / _positive(weight.sum())
    first, last = jnp.where(counts, time, jnp.inf).min(), time.max()
    inside = (grid >= first) & (grid < last)
    both = inside[1:] & inside[:-1]
    widths = jnp.where(both, jnp.diff(grid), 0.0)
    area = jnp.sum(widths * jnp.where(both, (scores[1:] + scores[:-1]) / 2, 0.0))
    value = jnp.where(widths.sum() > 0, area / _positive(widths.sum()), jnp.nan)
    return jnp.where(jnp.isnan(value) & (widths.sum() > 0), jnp.inf, value)


def calibration_at(
    predictions: Outputs, y: Pairs, weight: Weight, *, ends: Sequence[float], time: float
) -> Number:
    """The mean predicted probability of the event by a time, less the share with it; 0 is right.

    The share is one less the Kaplan-Meier estimate. Above 0 the model expects too many events. NaN
    where nobody is followed so long.

    Args:
      predictions: logits of hazards.
      y: times and events.
      weight: of the examples.
      ends: of the bins [K].
      time: within the bins; in a bin the hazard is constant.

    Example:
      >>> y = jnp.array([[1.0, 1.0], [3.0, 0.0]])
      >>> logits = jnp.zeros((2, 2))
      >>> calibration_at(logits, y, jnp.ones(2), ends=(1.0, 2.0), time=2.0).item()  # .75 and .5
      0.25
    """
    _check_bins(predictions, y, ends)
    check(
        0 < time <= ends[-1],
        f"the time is {time:g}: expected one above 0 and up to {ends[-1]:g}, the longest one",
    )
    counts = weight > 0
    weight = jnp.where(counts, weight, 0.0)
    own = still_free(y, weight)
    times = jnp.where(counts, y[:, 0], jnp.inf)
    observed = jnp.where(times <= time, own, 1.0).min()
    free = free_at(jnp.where(counts[:, None], predictions, 0.0), ends, time)
    expected = jnp.sum(weight * free) / _positive(weight.sum())
    followed = jnp.where(counts, y[:, 0], 0.0).max() >= time
    value = observed - expected
    value = jnp.where(jnp.isnan(value), jnp.inf, value)
    return jnp.where(followed & counts.any(), value, jnp.nan)


def free_at(logits: Float[Array, "n k"], ends: Sequence[float], time: float) -> Float[Array, "n"]:
    """The probability to be free of the event at a time; in a bin the hazard is constant.

    Example:
      >>> round(free_at(jnp.zeros((1, 2)), (1.0, 3.0), 2.0).item(), 4)  # half of a halving
      0.3536
    """
    logs = jnp.cumsum(-jax.nn.softplus(logits), axis=1)
    logs = jnp.concatenate([jnp.zeros((len(logits), 1)), logs], axis=1)
    starts = jnp.array([0.0, *ends])
    return jnp.exp(jax.vmap(lambda row: jnp.interp(time, starts, row))(logs))


def _check_bins(predictions: Array, y: Array, ends: Sequence[float]) -> None:
    _check_pairs(predictions, y)
    check(
        predictions.shape[1] == len(ends) > 1,
        f"the predictions have shape {predictions.shape}, and there are {len(ends)} bins of time: "
        "expected the hazard of each, two or more; a log risk says nothing of probabilities "
        "(--loss hazards)",
    )


def _positive(values: Array) -> Array:
    """Values by which one may divide."""
    return jnp.where(values > 0, values, 1.0)
