"""Scores of a client: functions of all its predictions, with a weight for each example.

Each is (predictions [n, ...], y [n, ...], weight [n]) -> a number, NaN where it is not defined.
Rows of weight 0 do not count. Predictions of labels are logits, whose softmax has the
probabilities.

They are the functions of scikit-learn with `sample_weight`, but for what "Differs:" says.

A model that has diverged predicts NaN. It then has the worst value there is, not none, so that its
client is not left out: 0 of AUC, the largest Brier score and calibration error, and otherwise an
infinite error. To scores that count labels NaN is the largest logit.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from jaxfl.core.errors import check
from jaxfl.simulation.each_label import each_label

# Groups of confidence of the calibration error; Guo et al., ICML 2017, section 5.
BINS = 15

Number = Float[Array, ""]
Weight = Float[Array, "n"]
Logits = Float[Array, "n *target classes"]
Labels = Int[Array, "n *target"]


@each_label
def accuracy(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """The share of the examples whose label has the largest logit.

    Example:
      >>> logits = jnp.array([[2.0, 1.0], [1.0, 2.0]])
      >>> accuracy(logits, jnp.array([0, 0]), jnp.array([3.0, 1.0])).item()
      0.75
    """
    logits, y, weight = flat_labels(predictions, y, weight)
    return _mean((logits.argmax(axis=-1) == y).astype(jnp.float32), weight)


@each_label
def auc(predictions: Logits, y: Labels, weight: Weight, label: int | None = None) -> Number:
    """The area under the ROC curve: of label 1 of two, or the mean over labels, each against all.

    It is the probability that an example of the label is ranked above one of another label, where
    ties count half: examples whose odds differ by no more than the rounding of their logits. NaN if
    all examples have one label.

    Differs: scikit-learn refuses examples in which one of several labels does not occur; here the
    mean is over the labels that occur, as clients need not have all labels.

    Args:
      predictions: logits.
      y: labels.
      weight: of the examples.
      label: the only one that is ranked against all others.

    Example:
      >>> logits = jnp.array([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]])
      >>> auc(logits, jnp.array([0, 1, 1]), jnp.ones(3)).item()
      1.0
    """
    return _by_order(_area, predictions, y, weight, label)


def auc_of_label(predictions: Logits, y: Labels, weight: Weight, label: int) -> Number:
    """The area under the ROC curve of a label against all others; NaN without either of them.

    Example:
      >>> logits = jnp.array([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]])
      >>> auc_of_label(logits, jnp.array([0, 1, 1]), jnp.ones(3), label=0).item()
      1.0
    """
    return auc(predictions, y, weight, label=label)


@each_label
def average_precision(
    predictions: Logits, y: Labels, weight: Weight, label: int | None = None
) -> Number:
    """The area under the curve of precision over recall, in steps: of label 1 of two, or the mean.

    It says more than AUC where a label is rare. The mean is over labels, each against all others.
    Ties are those of `auc`, and it is NaN if all examples have one label.

    Differs: scikit-learn gives examples that all have the label 1, and examples without it 0; both
    depend on no model.

    Args:
      predictions: logits.
      y: labels.
      weight: of the examples.
      label: the only one that is ranked against all others.

    Example:
      >>> logits = jnp.array([[0.0, 2.0], [0.0, 3.0], [0.0, 1.0]])
      >>> average_precision(logits, jnp.array([1, 0, 0]), jnp.ones(3)).item()
      0.5
    """
    return _by_order(_average_precision, predictions, y, weight, label)


def average_precision_of_label(
    predictions: Logits, y: Labels, weight: Weight, label: int
) -> Number:
    """The average precision of a label against all others; NaN without either of them.

    Example:
      >>> logits = jnp.array([[0.0, 2.0], [0.0, 3.0], [0.0, 1.0]])
      >>> average_precision_of_label(logits, jnp.array([1, 0, 0]), jnp.ones(3), label=1).item()
      0.5
    """
    return average_precision(predictions, y, weight, label=label)


def _by_order(
    measure: Callable, predictions: Logits, y: Labels, weight: Weight, label: int | None
) -> Number:
    """A measure of the order of examples by the odds of a label, or its mean over the labels."""
    logits, y, weight = flat_labels(predictions, y, weight)
    classes = logits.shape[-1]

    def of_label(label: Array) -> Number:
        # The logarithm of the odds of the label: its order is that of the probability, and it does
        # not become one number for all probabilities near 1.
        others = jnp.where(jnp.arange(classes) == label, -jnp.inf, logits)
        own, against = jnp.take(logits, label, axis=-1), jax.nn.logsumexp(others, axis=-1)
        largest = jnp.maximum(jnp.abs(own), jnp.abs(against))
        rounding = 2 * jnp.finfo(logits.dtype).eps * (1 + largest)
        rounding = jnp.where(jnp.isfinite(rounding), rounding, 0.0)
        ones, zeros, first, last = _in_order(own - against, y == label, weight, rounding)
        value = jnp.clip(measure(ones, zeros, first, last), 0.0, 1.0)
        return jnp.where((ones.sum() > 0) & (zeros.sum() > 0), value, jnp.nan)

    if label is not None:
        _check_label(label, classes)
        return of_label(jnp.array(label))
    if classes == 2:
        return of_label(jnp.array(1))
    # One label after the other: side by side they would take the memory of [n, classes, classes].
    return _mean_of_defined(lax.map(of_label, jnp.arange(classes)))


def _in_order(
    score: Float[Array, "n"], positive: Shaped[Array, "n"], weight: Weight, rounding: Array
) -> tuple[Array, Array, Array, Array]:
    """Examples from the lowest score to the highest.

    Returns:
      The weights of the positive ones and of the others, and the places at which the examples with
      the same score begin and end.
    """
    # What is not a number is ranked where it is wrong.
    score = jnp.where(jnp.isnan(score), jnp.where(positive, -jnp.inf, jnp.inf), score)
    # What has no weight comes last, so that no tie begins with it.
    score = jnp.where(weight > 0, score, jnp.finfo(score.dtype).max)
    order = jnp.argsort(score)
    score, positive, weight, rounding = (x[order] for x in (score, positive, weight, rounding))
    ones = jnp.where(positive, weight, 0.0)
    zeros = jnp.where(positive, 0.0, weight)
    place = jnp.arange(score.size)
    # Equal are neighbours within rounding of each other, and of the first one of them: of many
    # examples each may be that near to the next.
    apart = score[1:] - score[:-1] > rounding[1:] + rounding[:-1]
    heads = jnp.concatenate([jnp.ones(1, bool), apart])
    chain = jnp.cumsum(heads) - 1
    widest = jax.ops.segment_max(rounding, chain, num_segments=score.size)[chain]
    beyond = jnp.searchsorted(score, score + rounding + widest, side="right")
    after = lax.cummin(jnp.where(jnp.append(heads[1:], True), place + 1, score.size), reverse=True)
    begins = _orbit(jnp.minimum(beyond, after))
    ends = jnp.concatenate([begins[1:], jnp.ones(1, bool)])
    first = lax.cummax(jnp.where(begins, place, 0))
    last = lax.cummin(jnp.where(ends, place, score.size - 1), reverse=True)
    return ones, zeros, first, last


def _orbit(following: Int[Array, "n"]) -> Bool[Array, "n"]:
    """Which places one comes to from place 0, from each to the one that follows; n is the end."""
    n = following.size

    def double(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
        # All places after 0, ..., 2^k - 1 steps, and where 2^k steps lead from each place.
        there, jump = state
        return there.at[jump].max(there), jump[jump]

    there = jnp.zeros(n + 1, bool).at[0].set(True)
    jump = jnp.append(following, n)
    return lax.fori_loop(0, n.bit_length(), double, (there, jump))[0][:n]


def _area(ones: Array, zeros: Array, first: Array, last: Array) -> Number:
    """The area under the ROC curve of examples in order."""
    ones, zeros = (part / _or_one(part.sum()) for part in (ones, zeros))
    # The share of the others below an example, and half of those that are equal to it.
    below = jnp.concatenate([jnp.zeros(1), jnp.cumsum(zeros)])
    return jnp.sum(ones * (below[first] + below[last + 1]) / 2)


def _average_precision(ones: Array, zeros: Array, first: Array, last: Array) -> Number:
    """The mean over the positive examples of the precision among all that are not below them."""
    above, others = (jnp.cumsum(part[::-1])[::-1][first] for part in (ones, zeros))
    return jnp.sum(ones * above / _or_one(above + others)) / _or_one(ones.sum())


def _or_one(total: Array) -> Array:
    """The total, or 1 if there is nothing, where a division by it does not count."""
    return jnp.where(total > 0, total, 1.0)


@each_label
def f1(predictions: Logits, y: Labels, weight: Weight, label: int | None = None) -> Number:
    """The harmonic mean of precision and recall: of label 1 of two, or the mean over labels.

    The mean is over the labels that occur or are predicted. That of one label, such as 1 of two, is
    NaN if the label does not occur: whether a client has a score does not depend on its model.

    Differs: scikit-learn gives a label that is predicted and does not occur the score 0.

    Args:
      predictions: logits.
      y: labels.
      weight: of the examples.
      label: the only one that counts.

    Example:
      >>> logits = jnp.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
      >>> round(f1(logits, jnp.array([1, 0, 0]), jnp.ones(3)).item(), 3)
      0.667
    """
    hits, occurring, predicted = _counts(predictions, y, weight)
    total = occurring + predicted
    scores = jnp.where(total > 0, 2 * hits / jnp.where(total > 0, total, 1.0), jnp.nan)
    if label is None and scores.size > 2:
        return _mean_of_defined(scores)
    one = 1 if label is None else label
    _check_label(one, scores.size)
    return jnp.where(occurring[one] > 0, scores[one], jnp.nan)


def f1_of_label(predictions: Logits, y: Labels, weight: Weight, label: int) -> Number:
    """The harmonic mean of the precision and the recall of a label; NaN if it does not occur.

    Example:
      >>> logits = jnp.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
      >>> round(f1_of_label(logits, jnp.array([1, 0, 0]), jnp.ones(3), label=0).item(), 3)
      0.667
    """
    return f1(predictions, y, weight, label=label)


@each_label
def recall(predictions: Logits, y: Labels, weight: Weight, label: int) -> Number:
    """The share of the examples of a label that are recognised; NaN if there are none.

    Example:
      >>> logits = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
      >>> recall(logits, jnp.array([0, 1, 1]), jnp.ones(3), label=1).item()
      0.5
    """
    recalls = _recalls(predictions, y, weight)
    _check_label(label, recalls.size)
    return recalls[label]


@each_label
def precision(predictions: Logits, y: Labels, weight: Weight, label: int) -> Number:
    """The share of the examples predicted as a label that have it; 0 if none is predicted as it.

    NaN if the label does not occur: whether a client has a score does not depend on its model.

    Differs: scikit-learn gives a label that is predicted and does not occur the score 0.

    Example:
      >>> logits = jnp.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
      >>> precision(logits, jnp.array([1, 0, 0, 1]), jnp.ones(4), label=1).item()
      0.3333333432674408
    """
    hits, occurring, predicted = _counts(predictions, y, weight)
    _check_label(label, hits.size)
    share = hits[label] / _at_least_some(predicted[label])
    return jnp.where(occurring[label] > 0, share, jnp.nan)


@each_label
def specificity(predictions: Logits, y: Labels, weight: Weight, label: int) -> Number:
    """The share of the examples of other labels that are not predicted as a label; NaN of none.

    Example:
      >>> logits = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
      >>> specificity(logits, jnp.array([0, 0, 1]), jnp.ones(3), label=1).item()
      0.5
    """
    logits, y, weight = flat_labels(predictions, y, weight)
    _check_label(label, logits.shape[-1])
    right = logits.argmax(axis=-1) != label
    return _mean(right.astype(jnp.float32), jnp.where(y != label, weight, 0.0))


@each_label
def balanced_accuracy(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """The mean over the labels that occur of the share of their examples that are recognised.

    Example:
      >>> logits = jnp.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
      >>> balanced_accuracy(logits, jnp.array([0, 0, 0, 1]), jnp.ones(4)).item()
      0.5
    """
    return _mean_of_defined(_recalls(predictions, y, weight))


def _recalls(predictions: Logits, y: Labels, weight: Weight) -> Float[Array, "k"]:
    """The share of the examples of each label that are recognised; NaN if there are none."""
    hits, occurring, _ = _counts(predictions, y, weight)
    return jnp.where(occurring > 0, hits / jnp.where(occurring > 0, occurring, 1.0), jnp.nan)


def _counts(predictions: Logits, y: Labels, weight: Weight) -> tuple[Array, Array, Array]:
    """The weights of examples by label: those recognised, all of the label, all predicted as it."""
    logits, y, weight = flat_labels(predictions, y, weight)
    classes = logits.shape[-1]
    label = logits.argmax(axis=-1)

    def total(labels: Array, weight: Array) -> Array:
        return jnp.zeros(classes).at[labels].add(weight)

    return total(y, jnp.where(label == y, weight, 0.0)), total(y, weight), total(label, weight)


@each_label
def log_loss(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """The mean of minus the logarithm of the probability of the label, in nats.

    Differs: scikit-learn raises probabilities to the smallest number that is added to 1; here they
    are as the model has them.

    Example:
      >>> logits = jnp.log(jnp.array([[0.5, 0.5]]))
      >>> round(log_loss(logits, jnp.array([1]), jnp.ones(1)).item(), 3)
      0.693
    """
    logits, y, weight = flat_labels(predictions, y, weight)
    losses = -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=-1)[:, 0]
    return _mean(_or_worst(losses), weight)


def perplexity(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """The exponential of the log loss: among so many equally likely labels a model would guess.

    Example:
      >>> round(perplexity(jnp.zeros((1, 8)), jnp.array([3]), jnp.ones(1)).item(), 3)
      8.0
    """
    return jnp.exp(log_loss(predictions, y, weight))


@each_label
def brier(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """Brier's score: the mean squared error of the probabilities.

    Of two labels it is the error of the probability of label 1, in [0, 1]; of several labels the
    errors of all probabilities are summed, in [0, 2].

    Example:
      >>> logits = jnp.log(jnp.array([[0.25, 0.75]]))
      >>> round(brier(logits, jnp.array([1]), jnp.ones(1)).item(), 4)
      0.0625
    """
    logits, y, weight = flat_labels(predictions, y, weight)
    errors = jnp.square(jax.nn.softmax(logits) - jax.nn.one_hot(y, logits.shape[-1]))
    if logits.shape[-1] == 2:
        return _mean(_or_worst(errors[:, 1], 1.0), weight)
    return _mean(_or_worst(errors.sum(axis=-1), 2.0), weight)


@each_label
def ece(predictions: Logits, y: Labels, weight: Weight) -> Number:
    """The expected calibration error: how far confidence is from accuracy.

    The confidence of an example is the largest probability. Examples are grouped by it into
    `BINS` equal parts of (0, 1], and the differences of mean confidence and accuracy are averaged
    by the weights of the groups. Source: Guo et al., On Calibration of Modern Neural Networks, ICML
    2017, equation 3.

    Example:
      >>> logits = jnp.log(jnp.array([[0.25, 0.75], [0.25, 0.75]]))
      >>> round(ece(logits, jnp.array([1, 0]), jnp.ones(2)).item(), 3)
      0.25
    """
    logits, y, weight = flat_labels(predictions, y, weight)
    confidence = jax.nn.softmax(logits).max(axis=-1)
    right = ((logits.argmax(axis=-1) == y) & ~jnp.isnan(confidence)).astype(jnp.float32)
    confidence = _or_worst(confidence, 1.0)
    edges = jnp.linspace(0.0, 1.0, BINS + 1)
    place = jnp.searchsorted(edges[1:-1], confidence)
    # The difference of a group, times the weight of the group.
    gaps = jnp.zeros(BINS).at[place].add(weight * (confidence - right))
    return jnp.where(weight.sum() > 0, jnp.abs(gaps).sum() / _at_least_some(weight.sum()), jnp.nan)


def rmse(
    predictions: Float[Array, "n *k"], y: Shaped[Array, "n *target"], weight: Weight
) -> Number:
    """The root of the mean squared error, over examples and over the k numbers of an example.

    A mean over clients is the mean of their roots.

    Example:
      >>> rmse(jnp.array([[1.0], [2.0]]), jnp.array([3.0, 4.0]), jnp.ones(2)).item()
      2.0
    """
    predictions, y = _numbers(predictions, y)
    return jnp.sqrt(_mean(_or_worst(jnp.square(predictions - y).mean(axis=-1)), weight))


def mae(predictions: Float[Array, "n *k"], y: Shaped[Array, "n *target"], weight: Weight) -> Number:
    """The mean absolute error, over examples and over the k numbers of an example.

    Example:
      >>> mae(jnp.array([[1.0], [2.0]]), jnp.array([1.0, 4.0]), jnp.ones(2)).item()
      1.0
    """
    predictions, y = _numbers(predictions, y)
    return _mean(_or_worst(jnp.abs(predictions - y).mean(axis=-1)), weight)


def r2(predictions: Float[Array, "n *k"], y: Shaped[Array, "n *target"], weight: Weight) -> Number:
    """The share of the targets' variance that is predicted, mean over the k numbers of an example.

    It is 1 at best, 0 for the mean of the targets, and negative for what is worse than the mean.
    Numbers whose targets are all equal have no share and are left out; NaN if all are.

    Differs: scikit-learn gives targets that are all equal the score 1 or 0.

    Example:
      >>> r2(jnp.array([[1.0], [3.0]]), jnp.array([1.0, 3.0]), jnp.ones(2)).item()
      1.0
    """
    predictions, y = _numbers(predictions, y)
    each = weight[:, None]
    mean = (y * each).sum(axis=0, keepdims=True) / _at_least_some(weight.sum())
    errors = jnp.where(each > 0, _or_worst(jnp.square(predictions - y)) * each, 0.0)
    error = errors.sum(axis=0)
    variance = (jnp.square(y - mean) * each).sum(axis=0)
    # Equal targets have a mean that is rounded, and then a variance that is not 0.
    highest = jnp.where(each > 0, y, -jnp.inf).max(axis=0)
    lowest = jnp.where(each > 0, y, jnp.inf).min(axis=0)
    return _mean_of_defined(
        jnp.where(highest > lowest, 1 - error / jnp.where(variance > 0, variance, 1.0), jnp.nan)
    )


def flat_labels(predictions: Logits, y: Labels, weight: Weight) -> tuple[Array, Array, Array]:
    """Logits [n, classes], labels [n] and weights [n], of examples or of all their positions.

    Example:
      >>> logits, y, weight = flat_labels(jnp.zeros((1, 2, 3)), jnp.array([[2, -1]]), jnp.ones(1))
      >>> logits.shape, y.tolist(), weight.tolist()
      ((2, 3), [2, 0], [1.0, 0.0])
    """
    check(
        predictions.ndim == y.ndim + 1 and predictions.shape[-1] > 1,
        f"the predictions have shape {predictions.shape} and the targets {y.shape}: expected a "
        "logit for each label, two or more, and one label for each row of them",
    )
    weight = jnp.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape)
    logits = predictions.reshape(-1, predictions.shape[-1])
    if y.ndim > 1:
        # Positions without a label do not count.
        weight = jnp.where(y >= 0, weight, 0.0)
        y = jnp.maximum(y, 0)
    return logits, y.reshape(-1).astype(int), weight.reshape(-1)


def _check_label(label: int, classes: int) -> None:
    check(0 <= label < classes, f"label is {label}: expected one from 0 to {classes - 1}")


def _numbers(predictions: Array, y: Array) -> tuple[Array, Array]:
    """Predictions and targets [n, k]."""
    check(
        predictions.size == y.size,
        f"the predictions have shape {predictions.shape} and the targets {y.shape}: expected as "
        "many numbers",
    )
    predictions = predictions.reshape(len(predictions), -1)
    return predictions, y.reshape(predictions.shape).astype(predictions.dtype)


def _or_worst(errors: Array, worst: float = jnp.inf) -> Array:
    """The errors, of predictions that are no numbers the worst one."""
    return jnp.where(jnp.isnan(errors), worst, errors)


def _mean(values: Float[Array, "n"], weight: Weight) -> Number:
    """The weighted mean; NaN without weight."""
    mean = jnp.where(weight > 0, values * weight, 0.0).sum() / _at_least_some(weight.sum())
    return jnp.where(weight.sum() > 0, mean, jnp.nan)


def _mean_of_defined(values: Float[Array, "k"]) -> Number:
    """The mean of the values that are not NaN; NaN if all are."""
    defined = ~jnp.isnan(values)
    mean = jnp.where(defined, values, 0.0).sum() / jnp.maximum(defined.sum(), 1)
    return jnp.where(defined.any(), mean, jnp.nan)


def _at_least_some(total: Number) -> Number:
    """A total by which one may divide."""
    return jnp.where(total > 0, total, 1.0)
