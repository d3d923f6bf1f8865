"""Curves of Cox's model beside lifelines, and what is asked of finished runs."""

import numpy as np
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from lifelines.datasets import load_rossi

from jaxfl.core.errors import InputError
from jaxfl.experiment.reading.examples import Examples
from jaxfl.experiment.reading.survival_curves import (
    curves_of_hazards,
    curves_of_risks,
    kaplan_meier,
)


def test_curves_of_risks_are_those_of_lifelines():
    frame = load_rossi()
    fitted = CoxPHFitter(baseline_estimation_method="breslow").fit(frame, "week", "arrest")
    y = frame[["week", "arrest"]].to_numpy(float)
    risks = fitted.predict_log_partial_hazard(frame).to_numpy()
    # Times of events: between them lifelines draws straight lines.
    times = [1.0, 8.0, 30.0, 52.0]
    expected = fitted.predict_survival_function(frame.iloc[:20], times=times).to_numpy().T
    known = Examples(None, y, np.ones(len(y)))
    found = curves_of_risks(risks[:20], risks, known, times)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # A constant in all risks changes nothing, however large.
    moved = curves_of_risks(risks[:20] + 2e3, risks + 2e3, known, times)
    np.testing.assert_allclose(moved, expected, atol=1e-6)


def test_kaplan_and_meier_are_those_of_lifelines():
    frame = load_rossi()
    y = frame[["week", "arrest"]].to_numpy(float)
    fitter = KaplanMeierFitter().fit(y[:, 0], y[:, 1])
    times, free = kaplan_meier(y)
    np.testing.assert_allclose(free, fitter.survival_function_at_times(times), atol=2e-6)


def test_times_beyond_the_data_and_clients_without_events_are_refused():
    known = Examples(None, np.array([[1.0, 0.0], [2.0, 0.0]]), np.ones(2))
    with pytest.raises(InputError, match="has no event in training"):
        curves_of_risks(np.zeros(1), np.zeros(2), known, [1.0])
    with pytest.raises(InputError, match=r"the time 3\.0 is beyond those of the data"):
        curves_of_hazards(np.zeros((1, 2)), (1.0, 2.0), [3.0])
