"""FedAH on quadratic clients, whose whole model is the head, against the authors' rule in NumPy."""

import numpy as np
from toys import deployed, federation, quadratic, quick_key, run

from jaxfl.algorithms import fedah

STEPS = 3
RATE = 0.1


def test_rounds_equal_numpy():
    rng = np.random.default_rng(0)
    # A batch holds all examples of a client.
    sizes = np.array([4, 3, 2])
    xs = [rng.normal(size=(n, 3)).astype(np.float32) + i for i, n in enumerate(sizes)]
    best = np.stack([x.mean(axis=0) for x in xs]).astype(np.float64)
    data = federation(xs, [np.zeros(n, np.int32) for n in sizes])
    algorithm = fedah(quadratic(STEPS, RATE), rate=0.8, blend_epochs=2, head_epochs=3, head="w")
    start = algorithm.init(quick_key(1), data.train)
    state, info, _ = run(algorithm, data, 3, state=start)
    model = np.asarray(start.server["w"], np.float64)
    head = np.tile(model, (3, 1))
    blend = np.ones((3, 3))
    for _ in range(3):
        gap = model[None] - head
        for _ in range(2):
            blend = np.clip(blend - 0.8 * (head + gap * blend - best) * gap, 0, 1)
        head = head + gap * blend
        for _ in range(3):
            head = head - RATE * (head - best)
        model = sizes / sizes.sum() @ head
    assert ((blend > 0) & (blend < 1)).any()
    assert (blend == 0).any()
    np.testing.assert_allclose(state.clients.memory.blend["w"], blend, atol=1e-5)
    np.testing.assert_allclose(state.clients.memory.part["w"], head, atol=1e-5)
    np.testing.assert_allclose(state.server["w"], model, atol=1e-5)
    expected = head + (model[None] - head) * blend
    np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], expected, atol=1e-5)
    assert info.batches.tolist() == [[5 + STEPS] * 3] * 3
