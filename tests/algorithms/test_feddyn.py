"""FedDyn on quadratic clients: rounds beside NumPy, and what its fixed point is."""

import jax.numpy as jnp
import numpy as np
from toys import federation, quadratic, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, feddyn

STEPS = 3
RATE = 0.1
ALPHA = 0.4
rng = np.random.default_rng(0)
SIZES = (4, 3, 4, 2)
X = [(rng.normal(size=(n, 3)) + 2 * i).astype(np.float32) for i, n in enumerate(SIZES)]
BEST = np.stack([x.mean(axis=0) for x in X]).astype(np.float64)
DATA = federation(X, [np.zeros(n, np.int32) for n in SIZES])


def test_rounds_of_three_of_four_clients_equal_numpy():
    """The batch of a client holds all of its examples."""
    cohorts = np.array([[0, 1, 2], [1, 2, 3], [0, 2, 3]])
    algorithm = feddyn(quadratic(STEPS, RATE), alpha=ALPHA)
    state = algorithm.init(quick_key(1), DATA.train)
    theta = np.asarray(state.server.model["w"], np.float64)
    who = jaxfl.participation.schedule(cohorts)
    state, _, _ = run(algorithm, DATA, 3, state=state, participation=who)
    gradients = np.zeros((4, 3))
    h = np.zeros(3)
    for cohort in cohorts:
        models = []
        for k in cohort:
            model = theta
            for _ in range(STEPS):
                slope = model - BEST[k] - gradients[k] + ALPHA * (model - theta)
                model = model - RATE * slope
            models.append(model)
            gradients[k] = gradients[k] - ALPHA * (model - theta)
        h = h - ALPHA / 4 * sum(model - theta for model in models)
        theta = sum(models) / 3 - h / ALPHA
    np.testing.assert_allclose(state.clients.memory["w"], gradients, atol=1e-5)
    np.testing.assert_allclose(state.server.model["w"], theta, atol=1e-5)
    np.testing.assert_allclose(state.server.correction["w"], h, atol=1e-5)


def test_it_finds_the_optimum_of_the_mean_loss_where_fedavg_does_not():
    """Losses of different curvature, and many local steps."""
    scales = np.array([1.0, 0.3, 3.0])
    kinds = np.array([0, 1, 2, 2])
    data = federation(X, [np.full(n, k, np.int32) for k, n in zip(kinds, SIZES, strict=True)])
    plain = quadratic(40, RATE)

    def error(prediction, kind):
        return 0.5 * jnp.asarray(scales)[kind] * jnp.sum(prediction**2, axis=-1)

    task = plain._replace(problem=plain.problem._replace(error=error))
    optimum = scales[kinds] @ BEST / scales[kinds].sum()
    found, _, _ = run(feddyn(task, alpha=ALPHA), data, 60)
    other, _, _ = run(fedavg(task), data, 60)
    np.testing.assert_allclose(found.server.model["w"], optimum, atol=1e-2)
    assert np.abs(np.asarray(other.server["w"]) - optimum).max() > 0.1
