"""Three clients, a network with one hidden layer, and local steps on all examples at once."""

import jax.numpy as jnp
import numpy as np
import optax
from toys import federation

import jaxfl
from jaxfl.models.mlp import mlp

RATE = 0.3
STEPS = 2
SIZES = np.array([4, 3, 2])
rng = np.random.default_rng(0)
X = [rng.normal(size=(n, 4)).astype(np.float32) for n in SIZES]
# Class 2 is known to client 0 alone.
Y = [np.array(y, np.int32) for y in ([0, 2, 2, 1], [0, 1, 1], [1, 0])]
DATA = federation(X, Y)
TASK = jaxfl.classification(
    mlp(3, hidden=(5,)), jnp.zeros(4), steps=STEPS, batch_size=4, optimizer=optax.sgd(RATE)
)
NAMES = ("Dense_0", "Dense_1")


def as_numpy(model):
    """The layers (kernel, bias, kernel, bias) in float64."""
    return [
        np.asarray(model["params"][name][part], np.float64)
        for name in NAMES
        for part in ("kernel", "bias")
    ]
