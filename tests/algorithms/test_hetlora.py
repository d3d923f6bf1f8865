"""HetLoRA and FlexLoRA beside NumPy: adapters of ranks 1, 3 and 2 on a frozen layer."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from perceptron import DATA, RATE, SIZES, STEPS, X, Y
from scipy.special import softmax
from toys import federation, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, hetlora
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort

RANKS = (1, 3, 2)
rng = np.random.default_rng(0)
W = rng.normal(size=(4, 4)).astype(np.float32)


def task_of(rank=3, **more):
    model = jaxfl.lora(jaxfl.models.mlp(4, hidden=()), rank)
    frozen = {"params": {"Dense_0": {"kernel": W, "bias": np.zeros(4, np.float32)}}}
    options = {"steps": STEPS, "batch_size": 4, "optimizer": optax.sgd(RATE)} | more
    return jaxfl.classification(jaxfl.freeze(model, frozen, "^lora"), jnp.zeros(4), **options)


def train(a, b, x, y):
    for _ in range(STEPS):
        error = (softmax(x @ (W + a @ b), axis=1) - np.eye(4)[y]) / len(x)
        a, b = a - RATE * x.T @ (error @ b.T), b - RATE * (x @ a).T @ error
    return a, b


def as_numpy(model):
    adapter = model["lora"]["Dense_0"]
    return np.asarray(adapter["a"], np.float64), np.asarray(adapter["b"], np.float64)


def server(sent, mean):
    """The new factors, the senders' weights, and the distance from the mean of the products."""
    norms = np.array([np.linalg.norm(a @ b) for a, b in sent])
    weights = norms / norms.sum() if mean == "norms" else SIZES / SIZES.sum()
    whole = sum(w * a @ b for w, (a, b) in zip(weights, sent, strict=True))
    if mean == "products":
        u, values, vh = np.linalg.svd(whole)
        a, b = u[:, :3], values[:3, None] * vh[:3]
    else:
        a, b = (
            sum(w * one[place] for w, one in zip(weights, sent, strict=True)) for place in (0, 1)
        )
    return (a, b), weights, np.linalg.norm(whole - a @ b) / np.linalg.norm(whole)


@pytest.mark.parametrize("mean", ["norms", "sizes", "products"])
def test_rounds_equal_numpy(mean):
    task = task_of()
    algorithm = hetlora(task, ranks="1+3+2", mean=mean)
    state = algorithm.init(quick_key(0), DATA.train)
    # As if rounds had gone before, since B begins at zero.
    b = rng.normal(size=(3, 4)).astype(np.float32)
    factors = {"a": as_numpy(state.server)[0], "b": b}
    factors = jax.tree.map(jnp.float32, factors)
    state = state._replace(server={**state.server, "lora": {"Dense_0": factors}})
    a, b = as_numpy(state.server)
    state, info, _ = run(algorithm, DATA, 2, state=state)
    for number in range(2):
        # The sign of singular vectors is free, and what clients train does not depend on it.
        sent = []
        for rank, x, y in zip(RANKS, X, Y, strict=True):
            mine = np.arange(3) < rank
            one, other = train(a * mine, b * mine[:, None], x, y)
            assert not one[:, ~mine].any()
            assert not other[~mine].any()
            sent.append((one, other))
        (a, b), weights, error = server(sent, mean)
        np.testing.assert_allclose(info.weights[number][0], weights, rtol=1e-4)
        found = info.metrics["product_error"][number]
        np.testing.assert_allclose(found, error, rtol=1e-2, atol=1e-3)
    new_a, new_b = as_numpy(state.server)
    np.testing.assert_allclose(new_a @ new_b, a @ b, atol=1e-4)
    # A rank has 4 + 4 numbers.
    assert info.up.tolist() == info.down.tolist() == [[8, 24, 16]] * 2
    cohort = Cohort(jnp.arange(3), DATA.train, DATA.val, 0)
    mine, others = as_numpy(jax.tree.map(lambda x: x[0], algorithm.models(state, cohort)))
    np.testing.assert_allclose(mine @ others, a[:, :1] @ b[:1], atol=1e-4)


def test_from_the_first_round_on_weights_sum_to_one():
    """B begins at zero, so that norms are small."""
    _, info, _ = run(hetlora(task_of(), ranks=RANKS), DATA, 3)
    np.testing.assert_allclose(info.weights.sum(axis=2), 1, rtol=1e-5)
    # Equal clients with one rank weigh the same, whatever their norm.
    same = federation([X[0]] * 3, [Y[0]] * 3)
    state, info, _ = run(hetlora(task_of()), same, 2)
    np.testing.assert_allclose(info.weights, 1 / 3, rtol=1e-3)
    expected, _, _ = run(fedavg(task_of()), same, 2)
    for one, other in zip(as_numpy(state.server), as_numpy(expected.server), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_noise_does_not_fill_what_a_client_does_not_have():
    noisy = task_of(example_clip=1.0, example_noise=1.0)
    state, _, _ = run(hetlora(noisy, ranks=1), DATA, 1)
    a, b = as_numpy(state.server)
    assert np.abs(b[0]).max() > 0.01
    np.testing.assert_array_equal(b[1:], 0)
    np.testing.assert_array_equal(a[:, 1:], 0)


def test_equal_ranks_weighted_by_size_are_fedavg():
    task = task_of()
    state, info, _ = run(hetlora(task, mean="sizes"), DATA, 2)
    expected, _, _ = run(fedavg(task), DATA, 2)
    for one, other in zip(as_numpy(state.server), as_numpy(expected.server), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    # The mean of factors is no mean of products.
    assert info.metrics["product_error"][-1] > 0.01


@pytest.mark.parametrize(
    ("ranks", "task", "words"),
    [
        ("1+x", task_of(), "ranks of hetlora is '1.x': expected 4.8.16"),
        ((1, 4), task_of(), "ranks of hetlora is .1, 4., and the adapters have rank 3"),
        (
            (1,),
            jaxfl.classification(jaxfl.models.linear(3), jnp.zeros(4)),
            "the model has no adapters",
        ),
    ],
)
def test_ranks_that_cannot_be_are_refused(ranks, task, words):
    with pytest.raises(InputError, match=words):
        hetlora(task, ranks=ranks)
