"""The geometric median of uploads against SciPy's minimiser, and under a lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from toys import linear, quick_key

import jaxfl
from jaxfl.algorithms import fedavg, geometric_median

SIZES = np.array([5, 40, 20, 10, 30, 15])
REPORTED = np.array([True, True, False, True, True, True])


def uploads(model, seed=0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=(6, *x.shape)), jnp.float32), model)


def flat(models):
    rows = [np.asarray(x, float).reshape(len(x), -1) for x in jax.tree.leaves(models)]
    return np.concatenate(rows, axis=1)


def aggregated(method, models, **options):
    step = jaxfl.server_step(method(linear(), **options))
    return step(None, models, SIZES, REPORTED)


def test_the_server_takes_the_model_with_the_least_distance_by_size_to_those_that_reported():
    model = linear().problem.init(quick_key(0))
    models = uploads(model)
    found = aggregated(geometric_median, models, steps=300)
    rows, sizes = flat(models)[REPORTED], SIZES[REPORTED]

    def distance(x):
        return (sizes * np.linalg.norm(rows - x, axis=1)).sum()

    best = optimize.minimize(distance, rows.mean(axis=0), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(flat(found.models)[0], best.x, atol=2e-3)


def test_a_lie_moves_the_mean_and_not_the_geometric_median():
    model = linear().problem.init(quick_key(0))
    honest = uploads(model)
    lies = jax.tree.map(lambda x: x.at[3].set(1e6), honest)
    mean = flat(aggregated(fedavg, lies).models)[0]
    median = flat(aggregated(geometric_median, lies, steps=20).models)[0]
    assert np.abs(mean).max() > 1e4
    assert np.abs(median).max() < 3


@pytest.mark.parametrize("steps", [1, 3])
def test_the_weights_of_a_step_are_those_of_weiszfeld(steps):
    models = uploads(linear().problem.init(quick_key(0)), seed=1)
    found = aggregated(geometric_median, models, steps=steps)
    rows = flat(models)
    weights = SIZES * REPORTED / (SIZES * REPORTED).sum()
    shares = weights
    for _ in range(steps):
        shares = weights / np.linalg.norm(rows - shares @ rows, axis=1)
        shares = shares / shares.sum()
    np.testing.assert_allclose(flat(found.models)[0], shares @ rows, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(found.weights)[0], shares, atol=1e-6)
