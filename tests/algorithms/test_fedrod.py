"""FedRoD on logistic regression, whose features are the inputs, against NumPy from the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import deployed, federation, linear, quadratic, quick_key, run

from jaxfl.algorithms import fedrod
from jaxfl.core.errors import InputError

RATE = 0.2
STEPS = 4


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_rounds_equal_numpy_written_from_the_paper():
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 8)).astype(np.float32) for n in (8, 4, 6)]
    # The second client has no example of class 1.
    ys = [
        np.array([0, 1, 1, 1, 0, 1, 1, 0]),
        np.array([0, 0, 0, 0]),
        np.array([1, 0, 1, 1, 1, 1]),
    ]
    data = federation(xs, [y.astype(np.int32) for y in ys])
    task = linear(steps=STEPS, optimizer=optax.sgd(RATE))
    algorithm = fedrod(task)
    start = algorithm.init(quick_key(2), data.train)
    state, info, _ = run(algorithm, data, 2, state=start)
    bias, kernel = (np.asarray(v, np.float64) for v in jax.tree.leaves(start.server))
    heads = [(np.zeros(2), np.zeros((8, 2))) for _ in xs]
    for _ in range(2):
        trained = []
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            cut = len(x) - len(x) // 5
            x = x[:cut].astype(np.float64)
            y = y[:cut]
            counts = np.bincount(y, minlength=2)
            truth = np.eye(2)[y]
            b = bias
            k = kernel
            pb, pk = heads[i]
            for _ in range(STEPS):
                plain = x @ k + b
                tilted = np.exp(plain) * counts[None]
                balanced = (tilted / tilted.sum(axis=1, keepdims=True) - truth) / len(x)
                personal = (softmax(plain + x @ pk + pb) - truth) / len(x)
                b = b - RATE * balanced.sum(axis=0)
                k = k - RATE * x.T @ balanced
                pb = pb - RATE * personal.sum(axis=0)
                pk = pk - RATE * x.T @ personal
            heads[i] = (pb, pk)
            trained.append((b, k))
        weights = np.array([8, 4, 6]) / 18
        bias = sum(w * b for w, (b, _) in zip(weights, trained, strict=True))
        kernel = sum(w * k for w, (_, k) in zip(weights, trained, strict=True))
    for found, expected in zip(jax.tree.leaves(state.server), (bias, kernel), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    given = deployed(algorithm, state, 3)
    for i, (pb, pk) in enumerate(heads):
        model = jax.tree.map(lambda v, i=i: v[i], given)
        expected = xs[0] @ (kernel + pk) + bias + pb
        np.testing.assert_allclose(algorithm.apply(model, jnp.asarray(xs[0])), expected, atol=1e-4)
    assert info.up.tolist() == [[18] * 3] * 2
    assert info.batches.tolist() == [[2 * STEPS] * 3] * 2


def test_it_needs_a_head_and_labels():
    with pytest.raises(InputError, match="needs the model's features"):
        fedrod(quadratic())
    data = federation([np.ones((4, 8), np.float32)], [np.ones(4, np.float32)])
    with pytest.raises(InputError, match="needs labels"):
        fedrod(linear()).init(quick_key(0), data.train)
