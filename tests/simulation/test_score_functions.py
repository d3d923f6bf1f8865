"""Each score against scikit-learn's, on random predictions with ties and weights."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import gmean
from sklearn import calibration
from sklearn import metrics as sklearn
from sklearn.linear_model import LogisticRegression

from jaxfl.core.errors import InputError
from jaxfl.simulation import label_range, score_functions
from jaxfl.simulation.metrics import METRICS

N = 48  # of all cases, so that each function is compiled once for each number of labels


def labelled(seed, classes, kind):
    """Logits with ties, between examples and between labels, labels and weights."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(9, classes)).astype(np.float32)
    rows[0] = 0.0
    logits = rows[rng.integers(0, len(rows), N)]
    y = rng.integers(0, classes, N)
    weight = np.ones(N, np.float32)
    if kind == "weighted":
        # Weights of 0 are those of padding.
        weight = rng.integers(0, 4, N).astype(np.float32) / 2
    elif kind == "all tied":
        logits[:] = logits[:1]
    elif kind == "imbalanced":
        y = np.where(rng.random(N) < 0.9, 0, y)
    elif kind == "labels missing":
        y = y % (classes - 1) if classes > 2 else y
    return logits, y, weight


def probabilities(logits):
    exponentials = np.exp(logits.astype(np.float64))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def mean_over_labels(function):
    """The mean of scikit-learn's function over the labels that occur, each against all others."""

    def score(logits, y, weight):
        p = probabilities(logits)
        labels = np.unique(y[weight > 0])
        return np.mean([function(y == k, p[:, k], sample_weight=weight) for k in labels])

    return score


def by_order(function):
    return lambda classes: binary(function) if classes == 2 else mean_over_labels(function)


def binary(function):
    """A function of scikit-learn of the probability of label 1."""
    return lambda logits, y, weight: function(y, probabilities(logits)[:, 1], sample_weight=weight)


def of_label(function, **options):
    """A function of scikit-learn of the label that is predicted."""

    def score(logits, y, weight):
        # It takes a label that occurs with weight 0 for one that occurs.
        counts = weight > 0
        label = logits.argmax(axis=1)[counts]
        return function(y[counts], label, sample_weight=weight[counts], **options)

    return score


def log_loss(logits, y, weight):
    labels = range(logits.shape[1])
    return sklearn.log_loss(y, probabilities(logits), sample_weight=weight, labels=labels)


def brier(logits, y, weight):
    if logits.shape[1] == 2:
        return binary(sklearn.brier_score_loss)(logits, y, weight)
    return sklearn.brier_score_loss(
        y, probabilities(logits), sample_weight=weight, labels=range(logits.shape[1])
    )


def calibration_error(logits, y, weight):
    """From scikit-learn's calibration curve, which knows no weights: rows are repeated for them."""
    rows = np.repeat(np.arange(N), (2 * weight).astype(int))
    p = probabilities(logits)[rows]
    right = p.argmax(axis=1) == y[rows]
    confidence = p.max(axis=1)
    bins = score_functions.BINS
    shares, means = calibration.calibration_curve(right, confidence, n_bins=bins)
    counts = np.histogram(confidence, np.linspace(0, 1, bins + 1))[0]
    return np.sum(counts[counts > 0] * np.abs(shares - means)) / len(rows)


REFERENCES = {
    "accuracy": lambda classes: of_label(sklearn.accuracy_score),
    "auc": by_order(sklearn.roc_auc_score),
    "average_precision": by_order(sklearn.average_precision_score),
    "f1": lambda classes: of_label(
        sklearn.f1_score, average="binary" if classes == 2 else "macro", zero_division=np.nan
    ),
    "balanced_accuracy": lambda classes: of_label(sklearn.balanced_accuracy_score),
    "log_loss": lambda classes: log_loss,
    "perplexity": lambda classes: lambda *arguments: np.exp(log_loss(*arguments)),
    "brier": lambda classes: brier,
    "ece": lambda classes: calibration_error,
}


@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.parametrize("kind", ["plain", "weighted", "all tied", "imbalanced", "labels missing"])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("name", REFERENCES)
def test_scores_of_labels_are_those_of_scikit_learn(name, classes, kind):
    function = jax.jit(METRICS[name].score)
    reference = REFERENCES[name](classes)
    for seed in range(4):
        logits, y, weight = labelled(seed, classes, kind)
        expected = reference(logits, y, weight)
        np.testing.assert_allclose(function(logits, y, weight), expected, rtol=2e-5, atol=1e-6)


def of_one(function, **options):
    """A function of scikit-learn of whether label 3 is predicted."""

    def score(logits, y, weight):
        counts = weight > 0
        guess = logits.argmax(axis=1) == 3
        return function((y == 3)[counts], guess[counts], sample_weight=weight[counts], **options)

    return score


OF_ONE_LABEL = {
    "auc:CLASS": lambda logits, y, weight: sklearn.roc_auc_score(
        y == 3, probabilities(logits)[:, 3], sample_weight=weight
    ),
    "average_precision:CLASS": lambda logits, y, weight: sklearn.average_precision_score(
        y == 3, probabilities(logits)[:, 3], sample_weight=weight
    ),
    "f1:CLASS": of_one(sklearn.f1_score),
    "recall:CLASS": of_one(sklearn.recall_score),
    "precision:CLASS": of_one(sklearn.precision_score, zero_division=0),
    "specificity:CLASS": of_one(sklearn.recall_score, pos_label=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "weighted", "all tied"])
@pytest.mark.parametrize("name", OF_ONE_LABEL)
def test_scores_of_one_label_are_those_of_scikit_learn(name, kind):
    score = METRICS[name].score
    expected = OF_ONE_LABEL[name](*labelled(2, 4, kind))
    arguments = [jnp.asarray(part) for part in labelled(2, 4, kind)]
    assert score(*arguments, label=3) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(InputError, match="label is 4: expected one from 0 to 3"):
        score(*arguments, label=4)


@pytest.mark.parametrize("name", OF_ONE_LABEL)
def test_examples_without_the_label_have_no_score_of_it(name):
    logits, y, weight = map(jnp.asarray, labelled(2, 4, "labels missing"))
    score = METRICS[name].score
    if name == "specificity:CLASS":
        # Nobody has another label.
        y = jnp.full(N, 3)
    for predictions in (logits, jnp.eye(4)[jnp.full(N, 3)], jnp.eye(4)[jnp.full(N, 0)]):
        assert np.isnan(score(predictions, y, weight, label=3))
    assert np.isnan(score(logits, y, 0 * weight, label=3))


def slope(odds, y, weight):
    """From scikit-learn's logistic regression."""
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000)
    return model.fit(odds[:, None], y, sample_weight=weight).coef_.item()


def intercept(odds, y, weight):
    """Where as many examples have the label as are predicted to."""
    return brentq(lambda a: np.sum(weight * (y - 1 / (1 + np.exp(-odds - a)))), -500, 500)


OF_TWO_LABELS = {"calibration_slope": slope, "calibration_intercept": intercept}


@pytest.mark.parametrize("kind", ["plain", "weighted", "imbalanced"])
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("name", OF_TWO_LABELS)
def test_calibration_is_that_of_a_logistic_model(name, scale, kind):
    function = jax.jit(METRICS[name].score)
    for seed in range(3):
        logits, y, weight = labelled(seed, 2, kind)
        logits = np.float32(scale) * logits
        odds = (logits[:, 1] - logits[:, 0]).astype(np.float64)
        expected = OF_TWO_LABELS[name](odds, y, weight)
        assert function(logits, y, weight) == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_calibration_that_is_not_defined_has_no_value():
    slope, intercept = (jax.jit(METRICS[name].score) for name in OF_TWO_LABELS)
    y, weight = np.arange(N) % 2, np.ones(N, np.float32)
    apart = np.stack([np.zeros(N), 2.0 * y - 1], axis=1).astype(np.float32)
    assert np.isnan(slope(apart, y, weight))
    assert np.isnan(slope(-apart, y, weight))
    assert np.isnan(slope(0 * apart, y, weight))
    assert abs(intercept(apart, y, weight)) < 1e-5
    for function in (slope, intercept):
        assert np.isnan(function(apart, 0 * y, weight))
        assert np.isnan(function(apart, y, 0 * weight))
    # A model that has diverged is not left out.
    assert slope(np.nan * apart, y, weight) == 0
    assert intercept(np.nan * apart, y, weight) == np.inf
    with pytest.raises(InputError, match="those of two labels, and the data have 3"):
        slope(np.zeros((N, 3), np.float32), y, weight)


def test_every_metric_of_labels_has_a_reference():
    names = {n for n, metric in METRICS.items() if metric.targets == "labels"}
    assert {*REFERENCES, *OF_ONE_LABEL, *OF_TWO_LABELS} == names


@pytest.mark.parametrize("shift", [0, 50])
def test_equal_odds_are_ties_whatever_their_rounding(shift):
    """Logits are whole multiples of log 2, so that the odds are fractions, and a number each."""
    rng = np.random.default_rng(0)
    y = np.arange(N) % 4
    powers = np.rint(rng.normal(size=(N, 4)) + 1.2 * np.eye(4)[y]).astype(int)
    moved = powers + shift * rng.integers(0, 2, (N, 1))
    logits = jnp.asarray(moved * np.log(2), jnp.float32)
    for label in range(4):
        odds = [
            Fraction(2) ** int(row[label])
            / sum(Fraction(2) ** int(x) for x in np.delete(row, label))
            for row in powers
        ]
        own, others = (
            [one for one, is_own in zip(odds, y == label, strict=True) if is_own == kind]
            for kind in (True, False)
        )
        expected = np.mean([(a > b) + (a == b) / 2 for a in own for b in others])
        found = score_functions.auc_of_label(logits, jnp.asarray(y), jnp.ones(N), label)
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
def test_scores_of_numbers_are_those_of_scikit_learn(outputs):
    rng = np.random.default_rng(0)
    for weight in (np.ones(N), rng.integers(0, 4, N)):
        # Variances on both sides of 1.
        y = rng.normal(size=(N, outputs)).astype(np.float32) * np.linspace(0.3, 2, outputs)
        y = y.astype(np.float32)
        predictions = y + rng.normal(size=y.shape).astype(np.float32)
        arguments = (jnp.asarray(predictions), jnp.asarray(y), jnp.asarray(weight, jnp.float32))
        scores = {n: float(METRICS[n].score(*arguments)) for n in ("rmse", "mae", "r2")}
        options = {"sample_weight": weight}
        root = np.sqrt(sklearn.mean_squared_error(y, predictions, **options))
        assert scores["rmse"] == pytest.approx(root, rel=1e-5)
        expected = sklearn.mean_absolute_error(y, predictions, **options)
        assert scores["mae"] == pytest.approx(expected, rel=1e-5)
        assert scores["r2"] == pytest.approx(sklearn.r2_score(y, predictions, **options), rel=1e-4)


@pytest.mark.slow
def test_what_is_not_defined_is_nan_and_not_a_number():
    logits, y, weight = map(jnp.asarray, labelled(0, 2, "plain"))
    for label in (0, 1):
        same = jnp.full_like(y, label)
        assert np.isnan(METRICS["auc"].score(logits, same, weight))
    for name, metric in METRICS.items():
        if name in REFERENCES:
            assert np.isnan(metric.score(logits, y, 0 * weight))
    # Nobody has label 1, whether it is predicted for nobody or for somebody.
    nobody = jnp.stack([jnp.ones(N), jnp.zeros(N)], axis=1)
    for predictions in (nobody, nobody.at[0].set(jnp.array([0.0, 1.0]))):
        assert np.isnan(METRICS["f1"].score(predictions, jnp.zeros(N, int), weight))
        assert np.isnan(score_functions.f1(predictions, jnp.zeros(N, int), weight, label=1))
    assert METRICS["f1"].score(nobody, jnp.arange(N) % 2, weight) == 0
    # The mean of equal numbers is rounded, so that their variance is not 0.
    tenths = jnp.full(N, 0.1)
    assert np.isnan(METRICS["r2"].score(logits[:, :1], tenths, weight))


@pytest.mark.long(every=4)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("fault", [np.nan, np.inf])
def test_models_that_have_diverged_have_the_worst_value_there_is(classes, fault):
    _, y, weight = map(jnp.asarray, labelled(0, classes, "weighted"))
    diverged = jnp.full((N, classes), fault)
    worst = {
        "log_loss": np.inf,
        "perplexity": np.inf,
        "brier": 1 if classes == 2 else 2,
        "ece": 1,
        "auc": 0,
    }
    for name, value in worst.items():
        assert METRICS[name].score(diverged, y, weight) == pytest.approx(value, rel=1e-6)
    numbers = jnp.full((N, 1), np.nan)
    for name, value in {"rmse": np.inf, "mae": np.inf, "r2": -np.inf}.items():
        assert METRICS[name].score(numbers, y, weight) == value


@pytest.mark.parametrize("name", ["auc", "average_precision", "log_loss", "brier", "ece"])
def test_a_prediction_that_is_no_number_counts_as_wrong(name):
    logits, y, weight = labelled(1, 2, "plain")
    metric = METRICS[name]
    one = int(np.argmax(y == 1))
    # What is as wrong as can be, in place of it.
    wrong = np.array(logits)
    wrong[one] = [200.0, -200.0]
    expected = np.inf if name == "log_loss" else metric.score(*map(jnp.asarray, (wrong, y, weight)))
    logits[one] = np.nan
    score = metric.score(*map(jnp.asarray, (logits, y, weight)))
    assert score == pytest.approx(expected, rel=1e-5)


def test_rows_without_weight_do_not_count_whatever_is_predicted():
    logits, y, weight = labelled(2, 4, "weighted")
    broken = np.where(weight[:, None] == 0, np.nan, logits)
    for name in ("auc", "average_precision", "log_loss", "brier", "ece"):
        scores = [
            METRICS[name].score(*map(jnp.asarray, (each, y, weight))) for each in (logits, broken)
        ]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_one_label_is_said_of_what_is_predicted_and_counts():
    one_label = label_range.one_label
    logits, y, weight = labelled(0, 4, "weighted")
    assert one_label(*map(jnp.asarray, (logits, y, weight))) == 0
    same = np.where(weight[:, None] > 0, np.eye(4)[2], logits)
    assert one_label(*map(jnp.asarray, (same, y, weight))) == 1
    # With one label among the examples nothing else can be predicted.
    assert np.isnan(one_label(jnp.asarray(same), jnp.full(N, 2), jnp.asarray(weight)))
    assert np.isnan(one_label(jnp.asarray(logits[:, :1]), jnp.asarray(y), jnp.asarray(weight)))


@pytest.mark.slow
def test_probabilities_near_1_are_still_in_order():
    logits = jnp.array([[0.0, 40.0], [0.0, 41.0], [0.0, 42.0], [0.0, 43.0]])
    y = jnp.array([0, 0, 1, 1])
    assert METRICS["auc"].score(logits, y, jnp.ones(4)) == 1.0
    three = jnp.concatenate([logits, jnp.full((4, 1), -50.0)], axis=1)
    assert METRICS["auc"].score(three, y, jnp.ones(4)) == 1.0


def test_an_example_may_have_a_label_for_each_position():
    logits, y, weight = map(jnp.asarray, labelled(1, 4, "weighted"))
    folded = (logits.reshape(N // 2, 2, 4), y.reshape(N // 2, 2), weight[: N // 2])
    flat = (logits, y, weight[: N // 2].repeat(2))
    for name in ("accuracy", "auc", "log_loss"):
        score = METRICS[name].score
        np.testing.assert_allclose(score(*folded), score(*flat), rtol=1e-6)
    with pytest.raises(InputError, match="expected a logit for each label"):
        METRICS["auc"].score(logits[:, :1], y, weight)


@pytest.mark.parametrize("classes", [2, 3])
def test_positions_without_a_label_do_not_count(classes):
    logits, y, weight = labelled(2, classes, "weighted")
    y = np.where(np.arange(N) % 5 == 0, -1, y)
    folded = (logits.reshape(N // 4, 2, 2, classes), y.reshape(N // 4, 2, 2), weight[: N // 4])
    has = y >= 0
    flat = (logits[has], y[has], weight[: N // 4].repeat(4)[has])
    options = {"sample_weight": flat[2]}
    labels = flat[0].argmax(axis=-1)
    chances = probabilities(flat[0])
    average = "binary" if classes == 2 else "macro"
    expected = {
        "accuracy": sklearn.accuracy_score(flat[1], labels, **options),
        "f1": sklearn.f1_score(flat[1], labels, average=average, **options),
        "balanced_accuracy": sklearn.balanced_accuracy_score(flat[1], labels, **options),
        "log_loss": sklearn.log_loss(flat[1], chances, **options),
        # The geometric mean of one over the probability of the label, by weights.
        "perplexity": gmean(1 / chances[np.arange(len(flat[1])), flat[1]], weights=flat[2]),
    }
    for name, value in expected.items():
        score = METRICS[name].score(*map(jnp.asarray, folded))
        assert score == pytest.approx(value, rel=1e-5)


def test_scores_of_several_labels_are_means_over_labels():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(N, 3)).astype(np.float32).round(1)
    y = rng.random((N, 3)) < 0.4
    weight = rng.integers(0, 4, N).astype(np.float32)
    options = {"sample_weight": weight}
    chances = 1 / (1 + np.exp(-logits.astype(np.float64)))
    labels = logits > 0
    pairs = list(zip(y.T, labels.T, chances.T, strict=True))
    expected = {
        "accuracy": 1 - sklearn.hamming_loss(y, labels, **options),
        "auc": sklearn.roc_auc_score(y, chances, average="macro", **options),
        "f1": sklearn.f1_score(y, labels, average="macro", **options),
        "balanced_accuracy": np.mean(
            [sklearn.balanced_accuracy_score(a, b, **options) for a, b, _ in pairs]
        ),
        "log_loss": np.mean([sklearn.log_loss(a, c, **options) for a, _, c in pairs]),
        "brier": np.mean([sklearn.brier_score_loss(a, c, **options) for a, _, c in pairs]),
    }
    arguments = tuple(map(jnp.asarray, (logits, y, weight)))
    for name, value in expected.items():
        assert METRICS[name].score(*arguments) == pytest.approx(value, rel=1e-5)
    one = score_functions.f1(*arguments, label=2)
    assert one == pytest.approx(sklearn.f1_score(y[:, 2], labels[:, 2], **options), rel=1e-5)
    # A label that all examples have has no AUC and is left out of the mean.
    full = jnp.asarray(y).at[:, 0].set(True)
    rest = sklearn.roc_auc_score(y[:, 1:], chances[:, 1:], average="macro", **options)
    assert METRICS["auc"].score(arguments[0], full, arguments[2]) == pytest.approx(rest, rel=1e-5)
    with pytest.raises(InputError, match="a logit for each label"):
        METRICS["auc"].score(arguments[0][:, :2], *arguments[1:])


@pytest.mark.parametrize(
    ("offset", "masked"), [(1000.0, False), (0.0, True)], ids=["large logits", "masked class"]
)
def test_ties_are_no_wider_than_the_rounding_of_the_logits_that_count(offset, masked):
    """Many near ties in a row are no tie, and a class that cannot be has no part in one."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 20_000)
    score = 2.0 * y + rng.normal(size=y.size)
    columns = [np.full(y.size, offset), score + offset]
    logits = np.stack(columns + [np.full(y.size, -1e9)] * masked, axis=1).astype(np.float32)
    found = score_functions.auc_of_label(jnp.asarray(logits), jnp.asarray(y), jnp.ones(y.size), 1)
    expected = sklearn.roc_auc_score(y, logits[:, 1] - logits[:, 0])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_row_without_weight_makes_no_tie():
    logits = jnp.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0 - 3e-7]])
    weight = jnp.array([1.0, 1.0, 0.0])
    found = score_functions.auc_of_label(logits, jnp.array([0, 1, 0]), weight, 1)
    assert found == 0.5
