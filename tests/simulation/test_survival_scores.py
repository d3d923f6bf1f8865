"""Scores of times to an event beside scikit-survival and lifelines, on their own data sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.datasets import load_lung, load_rossi
from lifelines.utils import concordance_index
from sksurv.datasets import load_gbsg2, load_whas500
from sksurv.metrics import (
    concordance_index_censored,
    concordance_index_ipcw,
    integrated_brier_score,
)
from sksurv.util import Surv

from jaxfl.core.errors import InputError
from jaxfl.simulation.metrics import METRICS, metric_of
from jaxfl.simulation.survival_scores import free_at, risks, still_free, survived
from jaxfl.training.survival import ends_of_bins

RNG = np.random.default_rng(0)


def of_lifelines(load, time, event):
    frame = load()
    return frame[time].to_numpy(float), frame[event].to_numpy() == frame[event].max()


def of_survival(load):
    _, y = load()
    event, time = (y[name] for name in y.dtype.names)
    return time.astype(float), event


def drawn(seed, tied):
    rng = np.random.default_rng(seed)
    time = rng.integers(1, 12, 60).astype(float) if tied else rng.exponential(10, 60)
    return time, rng.random(60) < 0.6


DATA = {
    "lung": lambda: of_lifelines(load_lung, "time", "status"),
    "rossi": lambda: of_lifelines(load_rossi, "week", "arrest"),
    "whas500": lambda: of_survival(load_whas500),
    "gbsg2": lambda: of_survival(load_gbsg2),
    "tied": lambda: drawn(0, tied=True),
    "apart": lambda: drawn(1, tied=False),
}


def prepared(name):
    """Times, events, pairs [n, 2] with an example that does not count, and the weights."""
    time, event = DATA[name]()
    time = time.astype(np.float32)
    # The censoring distribution is not 0 where it divides.
    event[np.argmax(time)], time[np.argmax(time)] = False, time.max() + 1
    pairs = np.concatenate([np.stack([time, event], axis=1), [[np.nan, np.nan]]])
    return time, event, jnp.asarray(pairs, jnp.float32), jnp.append(jnp.ones(len(time)), 0.0)


def scored(name, predictions, y, weight, ends=()):
    padding = jnp.full((1, predictions.shape[1]), jnp.nan)
    score = jax.jit(metric_of(name, ends=ends).score)
    return float(score(jnp.concatenate([predictions, padding]), y, weight))


@pytest.mark.parametrize("name", DATA)
def test_concordances_are_those_of_scikit_survival_and_lifelines(name):
    time, event, y, weight = prepared(name)
    risk = np.round(RNG.normal(size=len(time)) - time / time.std() / 2, 1).astype(np.float32)
    found = scored("concordance", jnp.asarray(risk)[:, None], y, weight)
    assert found == pytest.approx(concordance_index_censored(event, time, risk)[0], abs=1e-6)
    if len(set(time[event])) == event.sum():
        # lifelines counts events of one time otherwise.
        assert found == pytest.approx(concordance_index(time, -risk, event), abs=1e-6)
    both = Surv.from_arrays(event, time)
    expected = concordance_index_ipcw(both, both, risk)[0]
    assert scored("concordance_ipcw", jnp.asarray(risk)[:, None], y, weight) == pytest.approx(
        expected, abs=2e-6
    )


def test_weights_of_whole_numbers_are_repeated_examples():
    time, event, _, _ = prepared("tied")
    risk = np.round(RNG.normal(size=len(time)), 1).astype(np.float32)
    times = RNG.integers(0, 3, len(time))
    rows = np.repeat(np.arange(len(time)), times)
    pairs = jnp.asarray(np.stack([time, event], axis=1), jnp.float32)
    for name in ("concordance", "concordance_ipcw"):
        score = METRICS[name].score
        once = score(jnp.asarray(risk)[:, None], pairs, jnp.asarray(times, jnp.float32))
        repeated = score(jnp.asarray(risk)[rows, None], pairs[rows], jnp.ones(len(rows)))
        assert once == pytest.approx(float(repeated), abs=1e-6)


@pytest.mark.parametrize("name", DATA)
def test_the_integrated_brier_score_is_that_of_scikit_survival(name):
    time, event, y, weight = prepared(name)
    ends = ends_of_bins(np.asarray(y)[:-1], 8)
    logits = jnp.asarray(RNG.normal(-1.5, 1, size=(len(time), len(ends))), jnp.float32)
    inside = [k for k, end in enumerate(ends) if time.min() <= end < time.max()]
    both = Surv.from_arrays(event, time)
    expected = integrated_brier_score(
        both, both, np.asarray(survived(logits))[:, inside], np.float32(ends)[inside]
    )
    assert scored("integrated_brier", logits, y, weight, ends) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("name", DATA)
def test_curves_and_calibration_are_those_of_kaplan_and_meier(name):
    time, event, y, weight = prepared(name)
    fitter = KaplanMeierFitter().fit(time, event)
    own = fitter.survival_function_at_times(time).to_numpy()
    np.testing.assert_allclose(still_free(y[:-1], weight[:-1]), own, atol=2e-6)
    ends = ends_of_bins(np.asarray(y)[:-1], 8)
    logits = jnp.asarray(RNG.normal(-1.5, 1, size=(len(time), len(ends))), jnp.float32)
    at = float(np.float32(np.median(time)))
    predicted = 1 - np.asarray(free_at(logits, ends, at)).mean()
    observed = 1 - fitter.predict(at)
    found = scored(f"calibration_at:{at!r}", logits, y, weight, ends)
    assert found == pytest.approx(predicted - observed, abs=2e-6)


def test_curves_fall_and_their_risks_have_their_order():
    logits = jnp.asarray(RNG.normal(size=(5, 4)), jnp.float32)
    ends = (1.0, 2.0, 4.0, 8.0)
    curve = np.stack([free_at(logits, ends, t) for t in np.linspace(0, 8, 33)], axis=1)
    assert (np.diff(curve, axis=1) <= 0).all()
    np.testing.assert_allclose(curve[:, [4, 8, 16, 32]], survived(logits), rtol=1e-5)
    lower = risks(logits - 1.0)
    assert (lower < risks(logits)).all()


def test_what_is_not_defined_has_no_value_and_a_model_that_diverged_the_worst():
    time, _, y, weight = prepared("apart")
    ones = jnp.ones((len(time), 1))
    for name in ("concordance", "concordance_ipcw"):
        assert scored(name, ones, y, weight) == 0.5
        assert np.isnan(scored(name, ones, y.at[:, 1].set(0.0), weight))
        assert np.isnan(scored(name, ones, y, 0 * weight))
        assert scored(name, jnp.nan * ones, y, weight) == 0
    ends = ends_of_bins(np.asarray(y)[:-1], 4)
    broken = jnp.full((len(time), len(ends)), jnp.nan)
    assert scored("integrated_brier", broken, y, weight, ends) == np.inf
    assert np.isnan(scored("integrated_brier", broken, y, 0 * weight, ends))
    with pytest.raises(InputError, match="a log risk says nothing of probabilities"):
        scored("integrated_brier", ones, y, weight, ends)
    with pytest.raises(InputError, match="expected one above 0 and up to"):
        scored("calibration_at:1e9", jnp.zeros(broken.shape), y, weight, ends)
    with pytest.raises(InputError, match="does not end with a time"):
        metric_of("calibration_at:soon")
