"""Bootstrap of scores on test examples, beside SciPy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score

from jaxfl.experiment.tables.bootstrap import RESAMPLES, bootstrap, draw
from jaxfl.simulation.metrics import METRICS


def binary(seed, examples=60):
    """Logits of two models and labels, of which every fourth is 1."""
    generator = np.random.default_rng(seed)
    y = (np.arange(examples) % 4 == 0).astype(np.int32)
    odds = generator.normal(size=(2, examples)) + y * np.array([[0.5], [1.5]])
    return [np.stack([np.zeros(examples), one], axis=1).astype(np.float32) for one in odds], y


def area(odds, y):
    """The share of pairs of a positive and a negative example in the right order."""
    ones, zeros = odds[y == 1][:, None], odds[y == 0][None]
    return ((ones > zeros) + 0.5 * (ones == zeros)).mean()


def test_the_interval_is_that_of_scipy_on_positives_and_negatives_apart():
    logits, y = binary(0)
    scores = bootstrap(METRICS["auc"].score, logits, y, np.ones(len(y)), y, seed=3)
    assert scores.shape == (2, RESAMPLES)
    interval = np.quantile(scores[1] - scores[0], [0.025, 0.975])
    odds = [one[:, 1].astype(float) for one in logits]

    def gain(ones, zeros):
        rows = np.concatenate([ones, zeros]).astype(int)
        return area(odds[1][rows], y[rows]) - area(odds[0][rows], y[rows])

    places = [np.flatnonzero(y == label) for label in (1, 0)]
    options = {"vectorized": False, "method": "percentile", "rng": 5, "n_resamples": 2000}
    expected = stats.bootstrap(places, gain, **options)
    # The quantiles of 2,000 resamples have a standard error of about 0.007 here.
    np.testing.assert_allclose(interval, expected.confidence_interval, atol=0.025)
    assert np.ptp(interval) > 0.1


def test_a_resample_has_as_many_examples_of_each_stratum_as_there_are():
    strata = np.array([2, 0, 0, 2, 2, 1])
    counts = draw(strata, 500, np.random.default_rng(0))
    for stratum in (0, 1, 2):
        assert (counts[:, strata == stratum].sum(axis=1) == (strata == stratum).sum()).all()
    # Each of three examples is drawn once in the mean, with the variance of a binomial.
    assert counts[:, 0].mean() == pytest.approx(1, abs=0.12)
    assert counts[:, 0].var() == pytest.approx(3 * 1 / 3 * 2 / 3, abs=0.15)


def test_a_score_on_a_resample_is_that_of_the_examples_as_often_as_they_are_drawn():
    """Also by weight, where the padding has none."""
    logits, y = binary(1, examples=21)
    weight = np.linspace(1, 3, 21)
    scores = bootstrap(METRICS["accuracy"].score, logits, y, weight, y, seed=0)[0]
    counts = draw(y, RESAMPLES, np.random.default_rng(0))
    labels = logits[0].argmax(axis=1)
    for row in (0, 1, RESAMPLES - 1):
        rows = np.repeat(np.arange(21), counts[row])
        expected = accuracy_score(y[rows], labels[rows], sample_weight=weight[rows])
        assert scores[row] == pytest.approx(expected, abs=1e-6)


def test_many_examples_are_resampled_in_pieces(monkeypatch):
    logits, y = binary(2)
    arguments = (METRICS["auc"].score, logits, y, np.ones(60), y, 0)
    whole = bootstrap(*arguments)
    monkeypatch.setattr("jaxfl.experiment.tables.bootstrap.NUMBERS", 64 * 512)
    pieces = bootstrap(*arguments)
    assert pieces.shape == whole.shape
    quantiles = [np.quantile(one[1], [0.025, 0.5, 0.975]) for one in (whole, pieces)]
    np.testing.assert_allclose(quantiles[0], quantiles[1], atol=0.03)
