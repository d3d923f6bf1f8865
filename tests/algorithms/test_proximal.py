"""FedProx, FedProx-FT and Ditto on quadratic clients, where gradient descent has a closed form."""

import numpy as np
from toys import deployed, federation, quadratic, quick_key, run

from jaxfl.algorithms import ditto, fedprox, fedprox_ft

STEPS = 3
RATE = 0.1
# A batch holds all examples of a client, so nothing is random.
SIZES = np.array([5, 4, 2])


def clients():
    """A federation, and the optimum of each client, the mean of its training examples [3, 3]."""
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 3)).astype(np.float32) for n in SIZES]
    best = np.stack([x[:4].mean(axis=0) for x in xs])
    return federation(xs, [np.zeros(n, np.int32) for n in SIZES]), best


def descend(start, best, centre, mu):
    """STEPS steps of gradient descent on |w - best|^2 / 2 + mu |w - centre|^2 / 2."""
    rest = (best + mu * centre) / (1 + mu)
    return rest + (1 - RATE * (1 + mu)) ** STEPS * (start - rest)


def begin(algorithm, data):
    state = algorithm.init(quick_key(1), data.train)
    return state, np.asarray(state.server["w"], np.float64)


def test_fedprox_lowers_the_proximal_loss():
    data, best = clients()
    for factory in (fedprox, fedprox_ft):
        algorithm = factory(quadratic(STEPS, RATE), mu=0.7)
        state, model = begin(algorithm, data)
        state, info, _ = run(algorithm, data, 2, state=state)
        for _ in range(2):
            trained = descend(model[None], best, model[None], 0.7)
            model = SIZES / SIZES.sum() @ trained
        np.testing.assert_allclose(state.server["w"], model, atol=1e-5)
        expected = trained if factory is fedprox_ft else np.tile(model, (3, 1))
        np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], expected, atol=1e-5)
        np.testing.assert_allclose(info.weights[0], np.tile(SIZES / SIZES.sum(), (3, 1)), atol=1e-6)
        assert info.batches.tolist() == [[STEPS] * 3] * 2


def test_dittos_own_model_converges_between_the_global_model_and_its_optimum():
    data, best = clients()
    lam = 0.5
    weights = np.full(3, 1 / 3)
    algorithm = ditto(quadratic(STEPS, RATE), lam=lam)
    start, model = begin(algorithm, data)
    state, info, _ = run(algorithm, data, 2, state=start)
    own = np.tile(model, (3, 1))
    for _ in range(2):
        own = descend(own, best, model[None], lam)
        model = weights @ descend(model[None], best, 0, 0)
    np.testing.assert_allclose(state.server["w"], model, atol=1e-5)
    np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], own, atol=1e-5)
    assert info.batches.tolist() == [[2 * STEPS] * 3] * 2

    state, _, _ = run(algorithm, data, 60, state=start)
    fixed = (best + lam * (weights @ best)[None]) / (1 + lam)
    np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], fixed, atol=1e-4)
