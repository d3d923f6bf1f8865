"""Sets with coverage beside MAPIE, and their guarantee by simulation."""

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from jaxfl.core.errors import InputError
from jaxfl.experiment.reading.conformal import misfits, threshold, weights_of_clients


class OfLogits(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are its logits."""

    def fit(self, x, y):
        self.classes_ = np.arange(x.shape[1])
        self.fitted_ = True
        return self

    def predict_proba(self, x):
        exponentials = np.exp(x)
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def predict(self, x):
        return x.argmax(axis=1)


class OfNumbers(RegressorMixin, BaseEstimator):
    """A regressor whose inputs are its predictions."""

    def fit(self, x, y):
        self.fitted_ = True
        return self

    def predict(self, x):
        return x[:, 0]


def chances_of(logits):
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def drawn(seed, n, classes=5):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, classes))
    y = np.array([rng.choice(classes, p=one) for one in chances_of(logits)])
    return logits, y


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_sets_are_those_of_mapie(level):
    (known, y), (new, _) = drawn(0, 150), drawn(1, 80)
    classifier = OfLogits().fit(known, y)
    peer = SplitConformalClassifier(
        classifier, confidence_level=level, conformity_score="lac", prefit=True
    ).conformalize(known, y)
    _, sets = peer.predict_set(new)
    limit = threshold(misfits(known)[np.arange(150), y], np.ones(150), 1 - level)
    found = misfits(new) <= limit
    differ = found != sets[..., 0]
    # A label whose score is the limit itself may be taken or left, by rounding.
    assert np.all(np.abs(misfits(new)[differ] - limit) < 1e-9)


def test_adaptive_sets_are_larger_where_an_example_is_hard():
    """MAPIE draws random numbers in this score, so a loop over the labels is the reference."""
    logits, _ = drawn(0, 40)
    for row, scores in zip(chances_of(logits), misfits(logits, "aps"), strict=True):
        total = 0.0
        for label in np.argsort(-row):
            total += row[label]
            assert scores[label] == pytest.approx(total)
    (known, y), (new, truth) = drawn(2, 500), drawn(3, 4000)
    limit = threshold(misfits(known, "aps")[np.arange(500), y], np.ones(500), 0.1)
    found = misfits(new, "aps") <= limit
    assert found[np.arange(4000), truth].mean() == pytest.approx(0.9, abs=0.04)
    easy = chances_of(new).max(axis=1) > 0.8
    assert found[easy].sum(axis=1).mean() + 1 < found[~easy].sum(axis=1).mean()


def test_intervals_are_those_of_mapie():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 1))
    y = x[:, 0] + rng.normal(size=120)
    peer = SplitConformalRegressor(OfNumbers().fit(x, y), confidence_level=0.9, prefit=True)
    _, ends = peer.conformalize(x, y).predict_interval(x[:5])
    limit = threshold(np.abs(y - x[:, 0]), np.ones(120), 0.1)
    np.testing.assert_allclose(ends[:, :, 0], x[:5] + limit * np.array([[-1, 1]]), rtol=1e-9)


@pytest.mark.parametrize("calibrating", [9, 30])
def test_the_truth_is_in_so_many_sets(calibrating):
    rng = np.random.default_rng(0)
    scores = rng.exponential(size=(4000, calibrating + 1))
    limits = [threshold(row[:-1], np.ones(calibrating), 0.1) for row in scores]
    covered = np.mean(scores[:, -1] <= limits)
    # At least .9, and at most 1 / (n + 1) above it; four standard errors.
    error = 4 * np.sqrt(0.09 / len(scores))
    assert 0.9 - error <= covered <= 0.9 + 1 / (calibrating + 1) + error


def test_weights_of_whole_numbers_below_one_leave_examples_out():
    rng = np.random.default_rng(0)
    scores, kept = rng.normal(size=40), rng.random(40) < 0.7
    assert threshold(scores, kept.astype(float), 0.2) == threshold(
        scores[kept], np.ones(kept.sum()), 0.2
    )
    # Half the weight of others counts as half as many.
    twice = np.repeat(scores, 2)
    assert threshold(twice, np.full(80, 0.5), 0.2) == threshold(scores, np.ones(40), 0.2)


def test_rows_of_a_graph_weigh_examples():
    counts = np.array([10, 40, 50])
    np.testing.assert_array_equal(weights_of_clients(counts / 100, counts, 0), [1, 1, 1])
    np.testing.assert_array_equal(weights_of_clients(np.eye(3)[1], counts, 1), [0, 1, 0])
    halves = weights_of_clients(np.array([0.1, 0.2, 0.0]), counts, 0)
    np.testing.assert_allclose(halves, [1, 0.5, 0])
    # A client whose own model has no weight still counts itself.
    np.testing.assert_allclose(weights_of_clients(np.array([0, 0.4, 0.25]), counts, 0), [1, 1, 0.5])


@pytest.mark.parametrize("alpha", [0.0, 1.0, -0.1])
def test_a_level_that_is_none_is_refused(alpha):
    with pytest.raises(InputError, match="expected a share between 0 and 1"):
        threshold(np.zeros(3), np.ones(3), alpha)
