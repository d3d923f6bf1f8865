"""FedAGHN: its rounds beside NumPy, with derivatives of the scalars by finite differences."""

import jax
import numpy as np
import pytest
from toys import deployed, equal, full, opposite_groups, run, shallow

from jaxfl.algorithms import fedaghn, local

SIZES = [40, 25, 31, 40]
DATA = opposite_groups(clients=4, sizes=SIZES)
LAYERS = ("Dense_0", "Dense_1")


def flat(stacked, layer):
    """The parameters of a layer as rows, in float64."""
    part = stacked["params"][layer]
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(part)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def attention(updates, own, sharpness):
    """A row for each client, by loops."""
    clients = len(updates)
    rows = np.zeros((clients, clients))
    for i in range(clients):
        for j in set(range(clients)) - {i}:
            norms = np.linalg.norm(updates[i]) * np.linalg.norm(updates[j])
            rows[i, j] = np.exp(sharpness[i] * (updates[i] @ updates[j]) / norms)
        rows[i] /= rows[i].sum()
        rows[i, i] = own[i]
        rows[i] /= rows[i].sum()
    return rows


@pytest.mark.slow
def test_a_round_mixes_each_layer_by_attention_and_steps_on_its_scalars():
    eta = 0.5
    algorithm = fedaghn(shallow(), own=1.0, sharpness=2.0, eta=eta)
    before, first, _ = run(algorithm, DATA, 1)
    after, info, _ = run(algorithm, DATA, 1, state=before, start=1)
    for place, layer in enumerate(LAYERS):
        np.testing.assert_array_equal(first.weights[layer][0], np.eye(4))
        updates = flat(before.clients.record.known, layer)
        sent = flat(before.clients.record.received, layer)
        own = np.asarray(before.clients.record.learned.own, np.float64)[:, place]
        sharpness = np.asarray(before.clients.record.learned.sharpness, np.float64)[:, place]
        np.testing.assert_array_equal(own, 1)
        np.testing.assert_array_equal(sharpness, 2)
        weights = attention(updates, own, sharpness)
        np.testing.assert_allclose(info.weights[layer][0], weights, atol=1e-5)
        # The clients trained from their mixtures.
        start = weights @ sent
        update = flat(after.clients.record.received, layer) - start
        np.testing.assert_allclose(flat(after.clients.record.known, layer), update, atol=1e-5)

        # The gradient of <start - received, mixture(own, sharpness)> by central differences.
        def product(own, sharpness, updates=updates, sent=sent, update=update):
            return np.sum(-update * (attention(updates, own, sharpness) @ sent), axis=1)

        step = 1e-5
        by_own = (product(own + step, sharpness) - product(own - step, sharpness)) / (2 * step)
        by_sharpness = product(own, sharpness + step) - product(own, sharpness - step)
        by_sharpness /= 2 * step
        assert np.abs(by_own).max() > 1e-4
        learned = after.clients.record.learned
        np.testing.assert_allclose(learned.own[:, place], own - eta * by_own, atol=1e-4)
        np.testing.assert_allclose(
            learned.sharpness[:, place], sharpness - eta * by_sharpness, atol=1e-4
        )
    served = deployed(algorithm, after, 4)
    equal(served, after.clients.record.received)


@pytest.mark.slow
def test_clients_that_keep_their_own_models_train_alone():
    """A weight of the client's own that leaves the others next to none."""
    alone = fedaghn(shallow(), own=1e7, eta=0.0)
    state, _, _ = run(alone, DATA, 2, participation=full(4))
    expected, _, _ = run(local(shallow()), DATA, 2, participation=full(4))
    for one, other in zip(
        jax.tree.leaves(state.clients.memory), jax.tree.leaves(expected.clients.memory), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.parametrize("sharpness", [0.0, 20.0])
def test_sharp_attention_finds_the_groups(sharpness):
    algorithm = fedaghn(shallow(), own=1 / 3, sharpness=sharpness, eta=0.0)
    _, info, _ = run(algorithm, DATA, 2)
    same = np.equal.outer(np.arange(4) % 2, np.arange(4) % 2)
    weights = info.weights["Dense_1"][-1]
    if sharpness:
        others = same & ~np.eye(4, dtype=bool)
        assert weights[others].min() > 10 * weights[~same].max()
    else:
        np.testing.assert_allclose(weights, 1 / 4, atol=1e-6)
