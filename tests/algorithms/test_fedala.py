"""FedALA on quadratic clients, whose whole model is the upper layers, against the rule in NumPy."""

import numpy as np
from toys import deployed, federation, quadratic, quick_key, run

from jaxfl.algorithms import fedala

STEPS = 3
RATE = 0.1


def test_rounds_equal_numpy():
    rng = np.random.default_rng(0)
    # A batch holds all examples of a client.
    sizes = np.array([4, 3, 2])
    xs = [rng.normal(size=(n, 3)).astype(np.float32) + i for i, n in enumerate(sizes)]
    best = np.stack([x.mean(axis=0) for x in xs]).astype(np.float64)
    data = federation(xs, [np.zeros(n, np.int32) for n in sizes])
    algorithm = fedala(quadratic(STEPS, RATE), rate=0.7, blend_epochs=2, layers="w")
    state = algorithm.init(quick_key(1), data.train)
    server = np.asarray(state.server["w"], np.float64)
    state, info, _ = run(algorithm, data, 3, state=state)
    own = np.tile(server, (3, 1))
    w = np.ones((3, 3))
    for _ in range(3):
        for i in range(3):
            mixture = own[i] + (server - own[i]) * w[i]
            for _ in range(2):
                w[i] = np.clip(w[i] - 0.7 * (mixture - best[i]) * (server - own[i]), 0, 1)
                mixture = own[i] + (server - own[i]) * w[i]
            for _ in range(STEPS):
                mixture = mixture - RATE * (mixture - best[i])
            own[i] = mixture
        server = sizes / sizes.sum() @ own
    assert ((w > 0) & (w < 1)).any()
    np.testing.assert_allclose(state.clients.memory.blend["w"], w, atol=1e-5)
    np.testing.assert_allclose(state.clients.memory.part["w"], own, atol=1e-5)
    np.testing.assert_allclose(state.server["w"], server, atol=1e-5)
    expected = own + (server - own) * w
    np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], expected, atol=1e-5)
    # The weights of the last round: its own part, and the global one with the mean of W.
    mean = w.mean(axis=1)[:, None]
    weights = (1 - mean) * np.eye(3) + mean * sizes / sizes.sum()
    np.testing.assert_allclose(info.weights["upper"][2], weights, atol=1e-5)
