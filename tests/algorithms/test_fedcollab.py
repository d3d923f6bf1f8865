"""FedCollab: discriminators beside NumPy and beside known distributions; rounds of coalitions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from toys import (
    deployed,
    federation,
    linear,
    made,
    opposite_groups,
    quadratic,
    quick_key,
    run,
    stack,
    unpadded,
)

import jaxfl
from jaxfl.algorithms import fedavg, fedcollab, local
from jaxfl.algorithms.fedcollab import discriminator, estimate_divergences, take_examples
from jaxfl.core.messages import Clients
from jaxfl.core.streams import client_keys, stream
from jaxfl.core.types import Dataset, State
from jaxfl.training.batches import minibatches

KEY = quick_key(3)
CLIENTS = 5
GROUP = np.array([0, 1, 0, 1, 0])
LENGTHS = [50, 30, 45, 60, 35]
rng = np.random.default_rng(0)
X = [
    (4 * g + rng.normal(size=(n, 3))).astype(np.float32)
    for g, n in zip(GROUP, LENGTHS, strict=True)
]
DATA = federation(X, [np.zeros(n, np.int32) for n in LENGTHS])


def estimate(data, problem=None, **options):
    problem = problem or linear().problem
    found = functools.partial(estimate_divergences, problem=problem, **options)
    return np.asarray(jax.jit(lambda key, train: found(key, train=train).matrix)(KEY, data))


def test_discriminators_equal_numpy():
    """Steps of SGD with derivatives by hand, and the accuracies on the other half."""
    data = opposite_groups(clients=3, sizes=[40, 9, 25]).train
    steps, rate = 7, 0.3
    found = estimate(data, steps=steps, rate=rate)
    examples = jax.tree.map(np.asarray, take_examples(KEY, linear().problem, data, 500))
    # One-hot labels of two classes have the factor 2 / sqrt(1).
    assert set(np.unique(examples.y)) == {0, 2}
    count = examples.real.shape[1]
    learns = np.arange(count) % 2 == 0
    keys = client_keys(stream(KEY, "second_fit"), jnp.arange(3))
    start = jax.tree.map(
        lambda x: np.asarray(x, np.float64), discriminator(stream(KEY, "third_fit"), 8, 2)
    )
    expected = np.zeros((3, 3))
    for i in range(3):
        for j in range(i + 1, 3):
            w = dict(start)
            for step in range(steps):
                grads = {name: np.zeros_like(x) for name, x in w.items()}
                for client, target in ((i, 0.0), (j, 1.0)):
                    real = examples.real[client] & learns
                    rows, counts = minibatches(keys[client], jnp.asarray(real), 32, steps=steps)
                    batch = np.asarray(rows)[step][np.asarray(counts)[step]]
                    x, y = examples.x[client][batch], 2 * examples.y[client][batch]
                    hidden = x @ w["x"] + y @ w["y"] + w["bias"]
                    active = np.maximum(hidden, 0)
                    p = 1 / (1 + np.exp(-(active @ w["out"] + w["out_bias"])))
                    delta = (p - target) / len(batch) / 2
                    back = np.outer(delta, w["out"]) * (hidden > 0)
                    grads["out"] += delta @ active
                    grads["out_bias"] += delta.sum()
                    grads["bias"] += back.sum(axis=0)
                    grads["x"] += x.T @ back
                    grads["y"] += y.T @ back
                w = {name: x - rate * grads[name] for name, x in w.items()}
            accuracy = 0
            for client, says in ((i, False), (j, True)):
                held = examples.real[client] & ~learns
                x, y = examples.x[client][held], 2 * examples.y[client][held]
                hidden = np.maximum(x @ w["x"] + y @ w["y"] + w["bias"], 0)
                accuracy += np.mean((hidden @ w["out"] + w["out_bias"] > 0) == says)
            expected[i, j] = expected[j, i] = max(accuracy - 1, 0)
    assert expected.max() > 0
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_divergence_of_gaussians_is_their_total_variation():
    """2 Phi(m / 2) - 1 for means that are m apart."""
    rng = np.random.default_rng(1)
    means = [0.0, 0.0, 1.0, 3.0]
    xs = [rng.normal(size=(1200, 8)).astype(np.float32) for _ in means]
    for x, mean in zip(xs, means, strict=True):
        x[:, 0] += mean
    train = stack(xs, [np.zeros(1200, np.int32)] * 4)
    found = estimate(train, most=1200)
    expected = 2 * norm.cdf(np.abs(np.subtract.outer(means, means)) / 2) - 1
    np.testing.assert_allclose(found, expected, atol=0.1)
    np.testing.assert_array_equal(found, found.T)


def test_clients_that_differ_in_labels_alone_are_apart():
    matrix = estimate(opposite_groups(clients=4, examples=200).train)
    same = np.add.outer(np.arange(4), np.arange(4)) % 2 == 0
    assert matrix[~same].min() > 0.4
    assert matrix[same].max() < 0.25


@pytest.mark.slow(seconds=4)
def test_rows_read_by_number_and_padding_give_the_same_estimate():
    data = opposite_groups(clients=4, sizes=[40, 25, 31, 12])
    whole = estimate(data.train)
    np.testing.assert_allclose(estimate(unpadded(data).train), whole, atol=1e-6)
    padded = opposite_groups(clients=4, sizes=[40, 25, 31, 12], pad=11, rubbish=1e3)
    np.testing.assert_allclose(estimate(padded.train), whole, atol=1e-6)


@pytest.mark.slow
def test_ids_are_counted_and_other_targets_are_numbers():
    """Clients 0 and 2 use the words 0 to 9, the others 300 to 309; targets of client 3 are high."""
    rng = np.random.default_rng(1)
    words = [rng.integers(0, 10, size=(200, 12)) + 300 * (c % 2) for c in range(4)]
    train = stack(
        [w.astype(np.int32) for w in words],
        [(10 * (c == 3) + rng.normal(size=200)).astype(np.float32) for c in range(4)],
    )
    task = jaxfl.regression(jaxfl.models.linear(), np.zeros(12))
    matrix = estimate(train, task.problem)
    assert matrix[0, 2] < 0.3 < 0.8 < min(matrix[0, 1], matrix[0, 3], matrix[1, 3])


@pytest.mark.slow
def test_large_examples_are_projected():
    rng = np.random.default_rng(1)
    images = [(rng.normal(size=(60, 20, 20, 1)) + c % 2).astype(np.float32) for c in range(3)]
    train = stack(images, [rng.integers(0, 2, 60).astype(np.int32) for _ in range(3)])
    task = jaxfl.classification(jaxfl.models.mlp(2), np.zeros((20, 20, 1)))
    assert take_examples(KEY, task.problem, train, 50).x.shape == (3, 50, 256)
    matrix = estimate(train, task.problem)
    assert matrix[0, 1] > 0.8
    assert matrix[0, 2] < 0.4


def test_a_client_that_is_not_finite_is_far_from_all_and_changes_no_other():
    train = opposite_groups(clients=4, examples=200).train
    x = np.array(train.x)
    x[1] = np.nan
    found = estimate(Dataset(jnp.asarray(x), train.y, train.mask))
    np.testing.assert_array_equal(found[1], [1, 0, 1, 1])
    assert np.isfinite(found).all()
    assert found[0, 2] < 0.25 < 0.4 < found[0, 3]


def trained(models, number):
    start = State(Clients({"w": jnp.asarray(models, jnp.float32)}), ())
    state, _, _ = run(made(local, quadratic), DATA, 1, state=start, start=number)
    return np.asarray(state.clients.memory["w"], np.float64)


@pytest.mark.slow
def test_rounds_are_fedavg_in_each_group():
    algorithm = fedcollab(quadratic(), coalitions=7)
    state, info, _ = run(algorithm, DATA, 2)
    np.testing.assert_array_equal(state.clients.record.coalition, GROUP)
    first = jax.jit(algorithm.init)(jax.random.fold_in(quick_key(0), 10**6), DATA.train)
    models = np.asarray(first.server["w"], np.float64)[GROUP]
    for number in range(2):
        after = trained(models, number)
        for group in (0, 1):
            own = group == GROUP
            models[own] = np.average(after[own], axis=0, weights=np.array(LENGTHS)[own])
    np.testing.assert_allclose(deployed(algorithm, state, CLIENTS)["w"], models, atol=1e-5)
    np.testing.assert_array_equal(info.metrics["coalitions"], [2, 2])
    same = np.equal.outer(GROUP, GROUP) * np.array(LENGTHS)[None]
    np.testing.assert_allclose(info.weights[1], same / same.sum(axis=1, keepdims=True), atol=1e-6)


@pytest.mark.slow
def test_the_estimation_counts_in_the_first_round_of_a_client():
    """3 numbers of x, 3 outputs: the discriminator has (3 + 3 + 1 + 1) 64 + 1 parameters."""
    who = jaxfl.participation.schedule(np.array([[0, 1], [1, 2]]))
    _, info, ids = run(fedcollab(quadratic(), steps=10), DATA, 2, participation=who)
    floats = 8 * 64 + 1
    others = CLIENTS - 1
    up = others * (10 * floats + 1) + 2 * 3 + 1
    down = others * 11 * floats + 2 * 3
    for number, fresh in ((0, [0, 1]), (1, [2])):
        for place, client in enumerate(ids[number].tolist()):
            once = client in fresh
            assert info.up[number, place] == 3 + once * up
            assert info.down[number, place] == 3 + once * down


@pytest.mark.long
@pytest.mark.parametrize(("trade", "like"), [(1e6, fedavg), (0.0, local)])
def test_at_its_limits_it_is_fedavg_or_local_training(trade, like):
    found = fedcollab(quadratic(), trade=trade, steps=5)
    state, _, _ = run(found, DATA, 2)
    other = made(like, quadratic)
    expected, _, _ = run(other, DATA, 2)
    np.testing.assert_allclose(
        deployed(found, state, CLIENTS)["w"], deployed(other, expected, CLIENTS)["w"], atol=1e-5
    )


@pytest.mark.slow
def test_a_coalition_that_has_not_reported_keeps_its_model():
    algorithm = fedcollab(quadratic(), coalitions=3)
    first = jax.jit(algorithm.init)(KEY, DATA.train)
    x = DATA.train.x.at[jnp.array([1, 3])].set(jnp.nan)
    spoilt = DATA._replace(train=DATA.train._replace(x=x))
    state, info, _ = run(algorithm, spoilt, 1, state=first)
    np.testing.assert_array_equal(info.reported[0], GROUP == 0)
    models, before = np.asarray(state.server["w"]), np.asarray(first.server["w"])
    np.testing.assert_array_equal(models[1:], before[1:])
    assert (models[0] != before[0]).any()
    assert np.isfinite(info.weights).all()
