"""APFL on quadratic clients, against NumPy written from the paper."""

import numpy as np
from toys import deployed, federation, quadratic, quick_key, run

from jaxfl.algorithms import apfl

STEPS = 3
RATE = 0.1
ALPHA_RATE = 0.2


def test_rounds_equal_numpy_written_from_the_paper():
    rng = np.random.default_rng(0)
    # A batch holds all four examples of a client.
    xs = [rng.normal(size=(4, 3)).astype(np.float32) + i for i in range(3)]
    best = np.stack([x.mean(axis=0) for x in xs]).astype(np.float64)
    data = federation(xs, [np.zeros(4, np.int32)] * 3)
    for rate in (ALPHA_RATE, None):
        algorithm = apfl(quadratic(STEPS, RATE), alpha=0.7, rate=rate)
        start = algorithm.init(quick_key(1), data.train)
        state, info, _ = run(algorithm, data, 4, state=start)
        shared = np.asarray(start.server["w"], np.float64)
        own = np.tile(shared, (3, 1))
        alpha = np.full(3, 0.7)
        for _ in range(4):
            w = np.tile(shared, (3, 1))
            a = alpha[:, None]
            inner = ((a * own + (1 - a) * w - best) * (own - w)).sum(axis=1)
            alpha = np.clip(alpha - (rate or 0) * inner, 0, 1)
            a = alpha[:, None]
            for _ in range(STEPS):
                own = own - RATE * a * (a * own + (1 - a) * w - best)
                w = w - RATE * (w - best)
            shared = w.mean(axis=0)
        assert rate is None or np.ptp(alpha) > 0.01
        np.testing.assert_allclose(state.clients.memory.alpha, alpha, atol=1e-5)
        np.testing.assert_allclose(info.metrics["alpha"][-1], alpha.mean(), atol=1e-5)
        np.testing.assert_allclose(state.server["w"], shared, atol=1e-5)
        expected = alpha[:, None] * own + (1 - alpha[:, None]) * shared[None]
        np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], expected, atol=1e-5)
        assert info.batches.tolist() == [[2 * STEPS + (rate is not None)] * 3] * 4
