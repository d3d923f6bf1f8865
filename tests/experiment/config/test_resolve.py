"""The model of a run that names none."""

import numpy as np
import pytest

from jaxfl.data import from_arrays
from jaxfl.experiment import Config
from jaxfl.experiment.config import resolve


@pytest.mark.parametrize(
    ("shape", "model"),
    [
        ((999, 5), "linear"),
        ((1000, 5), "mlp"),
        ((40, 8, 8, 1), "mlp"),
        ((40, 16, 16, 1), "lenet"),
        ((40, 4, 2), "conv1d"),
    ],
)
def test_the_model_follows_the_data(shape, model):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    labels = np.arange(shape[0]) % 4
    source = from_arrays(x, labels, x[:8], labels[:8])
    assert resolve(Config(algorithm="local", clients=2), source).config.model == model


def test_numbers_as_targets_have_a_linear_model():
    x = np.random.default_rng(0).normal(size=(2000, 5)).astype(np.float32)
    source = from_arrays(x, x[:, 0], x[:8], x[:8, 0])
    assert resolve(Config(algorithm="local", clients=2), source).config.model == "linear"
