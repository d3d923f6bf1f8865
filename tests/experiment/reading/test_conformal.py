"""Sets with coverage beside MAPIE, and their guarantee by simulation."""

from types import SimpleNamespace

import numpy as np
import pytest
from mapie.classification import SplitConformalClassifier
from mapie.regression import SplitConformalRegressor
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from jaxfl.core.errors import InputError
from jaxfl.experiment.reading.conformal import calibrate, misfits, threshold, weights_of_clients
from jaxfl.experiment.reading.examples import Examples


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


def stub(tmp_path, inputs, **functions):
    """A run of one client."""
    config = SimpleNamespace(val=0.2, clients=1)
    return SimpleNamespace(
        directory=tmp_path, summary={"inputs": inputs}, config=config, ends=[], **functions
    )


def test_intervals_are_those_of_mapie(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 1000, 1))
    y = x[..., 0] + rng.normal(size=(2, 1000))
    val, new = (Examples(x[i], y[i], np.ones(1000)) for i in range(2))
    run = stub(
        tmp_path,
        {"classes": 0},
        scores=lambda client, x, seed: x,
        train=lambda client, seed: val,
        val=lambda client, seed: val,
        test=lambda client, seed: new,
    )
    found = calibrate(run)
    peer = SplitConformalRegressor(OfNumbers().fit(x, y), confidence_level=0.9, prefit=True)
    _, ends = peer.conformalize(val.x, val.y).predict_interval(new.x)
    np.testing.assert_allclose(found.sets(0, new.x, "own", 0.1), ends[:, :, 0], rtol=1e-9)
    assert found.coverage(0, "own", 0.1).covered == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("followed", [0.5, 50.0])
def test_a_bound_of_a_time_holds_for_the_event_whoever_is_censored(tmp_path, followed):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3000, 1))
    event = rng.exponential(np.exp(-x[..., 0]))
    # Censored sooner where the event comes sooner
    seen = np.minimum(event, rng.exponential(followed * np.exp(-x[..., 0])))
    val, new = (
        Examples(x[i], np.stack([seen[i], seen[i] == event[i]], axis=1), np.ones(3000))
        for i in range(2)
    )
    run = stub(
        tmp_path,
        {"survival": True, "target": [2]},
        train=lambda client, seed: val,
        val=lambda client, seed: val,
        test=lambda client, seed: new,
        survival=lambda client, x, times, seed: np.exp(-np.exp(x) * np.array(times)),
    )
    found = calibrate(run)
    bounds, ends = found.sets(0, new.x, "own", 0.1).T
    assert np.isposinf(ends).all()
    assert np.corrcoef(np.log(bounds), x[1, :, 0])[0, 1] < -0.8
    of_all = found.coverage(0, "own", 0.1)
    assert of_all.size == pytest.approx(bounds.mean())
    assert of_all.covered == pytest.approx(0.9, abs=0.02) == np.mean(bounds <= seen[1])
    assert np.mean(bounds <= event[1]) >= of_all.covered


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
