"""What a client tells of its own step counts in a round's information if its upload arrives."""

import jax
import jax.numpy as jnp
import numpy as np
from toys import federation, quadratic, quick_key, run

from jaxfl.algorithms import apfl, fedala
from jaxfl.core.types import Cohort

rng = np.random.default_rng(0)
X = [rng.normal(size=(4, 3)).astype(np.float32) + i for i in range(3)]
DATA = federation(X, [np.zeros(4, np.int32)] * 3)
LOST = Cohort(jnp.arange(3), DATA.train, DATA.val, lost=jnp.array([False, True, False]))


def third_round(algorithm):
    """Two rounds of all clients, and one in which the upload of client 1 is lost."""
    state, _, _ = run(algorithm, DATA, 2)
    return jax.jit(algorithm.round)(quick_key(3), state, LOST)


def test_a_metric_is_the_mean_over_the_clients_that_reported():
    state, info = third_round(apfl(quadratic(3, 0.1), alpha=0.7, rate=0.2))
    alpha = np.asarray(state.clients.memory.alpha)
    assert np.ptp(alpha) > 0.01
    np.testing.assert_allclose(info.metrics["alpha"], alpha[[0, 2]].mean(), rtol=1e-6)


def test_a_client_that_has_not_reported_takes_nothing_of_its_mixture():
    state, info = third_round(fedala(quadratic(3, 0.1), rate=0.7, layers="w"))
    taken = np.asarray(state.clients.memory.blend["w"]).mean(axis=1) * [1, 0, 1]
    assert taken[0] > 0.1
    expected = (1 - taken[:, None]) * np.eye(3) + taken[:, None] * [0.5, 0, 0.5]
    np.testing.assert_allclose(info.weights["upper"], expected, atol=1e-6)
