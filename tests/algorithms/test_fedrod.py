"""FedRoD on logistic regression, where the features are the inputs, against NumPy written from the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import deployed, federation, linear, quadratic, run

from jaxfl.algorithms import fedrod
from jaxfl.errors import InputError

RATE, STEPS = 0.2, 4


def softmax(logits):
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_rounds_equal_numpy_written_from_the_paper():
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 8)).astype(np.float32) for n in (8, 4, 6)]
    ys = [
        np.array([0, 1, 1, 1, 0, 1, 1, 0]),
        np.array([0, 0, 0, 0]),
        np.array([1, 0, 1, 1, 1, 1]),
    ]  # one has no 1
    data = federation(xs, [y.astype(np.int32) for y in ys])
    task = linear(steps=STEPS, optimizer=optax.sgd(RATE))
    algorithm = fedrod(task)
    start = algorithm.init(jax.random.key(2), data.train)
    state, info, _ = run(algorithm, data, 2, state=start)
    bias, kernel = (np.asarray(v, np.float64) for v in jax.tree.leaves(start.server))
    heads = [(np.zeros(2), np.zeros((8, 2))) for _ in xs]
    for _ in range(2):
        trained = []
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            cut = len(x) - len(x) // 5
            x, y = x[:cut].astype(np.float64), y[:cut]
            counts, truth = np.bincount(y, minlength=2), np.eye(2)[y]
            b, k, (pb, pk) = bias, kernel, heads[i]
            for _ in range(STEPS):
                plain = x @ k + b
                tilted = np.exp(plain) * counts[None]
                balanced = (tilted / tilted.sum(axis=1, keepdims=True) - truth) / len(x)
                personal = (softmax(plain + x @ pk + pb) - truth) / len(x)
                b, k = b - RATE * balanced.sum(axis=0), k - RATE * x.T @ balanced
                pb, pk = pb - RATE * personal.sum(axis=0), pk - RATE * x.T @ personal
            heads[i] = (pb, pk)
            trained.append((b, k))
        share = np.array([8, 4, 6]) / 18
        bias, kernel = (sum(s * t[j] for s, t in zip(share, trained, strict=True)) for j in (0, 1))
    for found, expected in zip(jax.tree.leaves(state.server), (bias, kernel), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    given = deployed(algorithm, state, 3)
    for i, (pb, pk) in enumerate(heads):
        model = jax.tree.map(lambda v, i=i: v[i], given)
        expected = xs[0] @ (kernel + pk) + bias + pb
        np.testing.assert_allclose(algorithm.apply(model, jnp.asarray(xs[0])), expected, atol=1e-4)
    assert info.up.tolist() == [[18] * 3] * 2
    assert info.batches.tolist() == [[STEPS] * 3] * 2


def test_it_needs_a_head_and_labels():
    with pytest.raises(InputError, match="needs the model's features"):
        fedrod(quadratic())
    data = federation([np.ones((4, 8), np.float32)], [np.ones(4, np.float32)])
    with pytest.raises(InputError, match="needs labels"):
        fedrod(linear()).init(jax.random.key(0), data.train)
