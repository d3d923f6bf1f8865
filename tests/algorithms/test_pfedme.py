"""pFedMe on quadratic clients: its rounds equal NumPy, and its fixed points are known."""

import numpy as np
from toys import deployed, federation, quadratic, quick_key, run

from jaxfl.algorithms import pfedme

STEPS = 3
RATE = 0.1
LAM = 2.0
K = 4
INNER = 0.2
BETA = 1.3


def search(w, best):
    """K steps of gradient descent from w on |theta - best|^2 / 2 + LAM / 2 |theta - w|^2."""
    theta = w
    for _ in range(K):
        theta = theta - INNER * (theta - best + LAM * (theta - w))
    return theta


def test_rounds_equal_numpy_and_rest_at_the_moreau_envelope():
    rng = np.random.default_rng(0)
    # A batch holds all examples of a client.
    sizes = [4, 3, 1]
    xs = [rng.normal(size=(n, 3)).astype(np.float32) for n in sizes]
    best = np.stack([x.mean(axis=0) for x in xs]).astype(np.float64)
    data = federation(xs, [np.zeros(n, np.int32) for n in sizes])
    algorithm = pfedme(quadratic(STEPS, RATE), lam=LAM, inner_steps=K, inner_rate=INNER, beta=BETA)
    start = algorithm.init(quick_key(1), data.train)
    state, info, _ = run(algorithm, data, 2, state=start)
    model = np.asarray(start.server["w"], np.float64)
    for _ in range(2):
        w = np.tile(model, (3, 1))
        for _ in range(STEPS):
            w = w - RATE * LAM * (w - search(w, best))
        model = (1 - BETA) * model + BETA * w.mean(axis=0)
    np.testing.assert_allclose(state.server["w"], model, atol=1e-5)
    np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], search(w, best), atol=1e-5)
    assert info.batches.tolist() == [[K * STEPS + K] * 3] * 2

    exact = pfedme(quadratic(STEPS, 0.02), lam=LAM, inner_steps=40, inner_rate=INNER)
    state, _, _ = run(exact, data, 250, state=start)
    np.testing.assert_allclose(state.server["w"], best.mean(axis=0), atol=1e-3)
    model = np.asarray(state.server["w"])[None]
    # From there a client's w takes STEPS steps towards its best; theta lies between w and the best.
    w = best + (1 - 0.02 * LAM / (1 + LAM)) ** STEPS * (model - best)
    np.testing.assert_allclose(
        deployed(exact, state, 3)["w"], (best + LAM * w) / (1 + LAM), atol=1e-3
    )
