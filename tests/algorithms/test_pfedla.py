"""pFedLA: its rounds beside NumPy, with derivatives of the hypernetworks by finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import deployed, equal, full, opposite_groups, quick_key, run, shallow

import jaxfl
from jaxfl.algorithms import local, pfedla

SIZES = [40, 25, 31, 40, 20]
DATA = opposite_groups(clients=5, sizes=SIZES)
LAYERS = ("Dense_0", "Dense_1")
RATE = 2.0


def flat(stacked, layer):
    """The parameters of a layer as rows, in float64."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(stacked["params"][layer])]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def row(v, dense, kernel, bias, ids):
    """The weights of one layer of one client, by loops."""
    features = v
    for weights, shift in dense:
        features = np.maximum(features @ weights + shift, 0)
    values = np.array([max(features @ kernel[:, j] + bias[j], 0) for j in ids])
    return values / values.sum()


@pytest.mark.slow
def test_a_round_mixes_layers_by_the_networks_of_its_clients_and_steps_on_them():
    """Two rounds of all clients, and one of three, whose networks are compared entry by entry."""
    algorithm = pfedla(shallow(), embedding=3, width=4, hidden=2, rate=RATE)
    # With this key no network ends in zeros alone.
    state, info, _ = run(algorithm, DATA, 2, key=quick_key(2))
    for layer in LAYERS:
        np.testing.assert_array_equal(info.weights[layer][0], np.eye(5))
        np.testing.assert_allclose(info.weights[layer][1].sum(axis=1), 1, atol=1e-6)
    who = jaxfl.participation.schedule(np.array([[4, 1, 2]] * 3))
    after, info, cohorts = run(algorithm, DATA, 1, state=state, participation=who, start=2)
    ids = cohorts[0]
    before, now = state.clients.record, after.clients.record

    for place, client in enumerate(ids):
        learned, structure = jax.tree.flatten(
            jax.tree.map(lambda x, c=client: np.asarray(x[c], np.float64), before.learned)
        )
        moved = jax.tree.leaves(jax.tree.map(lambda x, c=client: np.asarray(x[c]), now.learned))

        def rows(values, structure=structure):
            v, net = structure.unflatten(values)
            return {
                layer: row(v, net.layers, net.kernel[layer], net.bias[layer], ids)
                for layer in LAYERS
            }

        weights = rows(learned)
        gradients = {}
        sent = {layer: flat(before.received, layer)[ids] for layer in LAYERS}
        for layer in LAYERS:
            np.testing.assert_allclose(info.weights[layer][0, place], weights[layer], atol=1e-5)
            # start - received stands for the gradient of the loss at the mixture.
            start = weights[layer] @ sent[layer]
            gradients[layer] = start - flat(now.received, layer)[client]

        def loss(values, rows=rows, gradients=gradients, sent=sent):
            found = rows(values)
            return sum(gradients[layer] @ (found[layer] @ sent[layer]) for layer in LAYERS)

        largest = 0.0
        for number, leaf in enumerate(learned):
            expected = np.zeros_like(leaf)
            for entry in np.ndindex(*leaf.shape):
                values = []
                for step in (1e-6, -1e-6):
                    shifted = [x.copy() for x in learned]
                    shifted[number][entry] += step
                    values.append(loss(shifted))
                expected[entry] = (values[0] - values[1]) / 2e-6
            largest = max(largest, np.abs(expected).max())
            np.testing.assert_allclose(moved[number], leaf - RATE * expected, atol=2e-4)
        assert largest > 1e-2

    equal(deployed(algorithm, after, 5), now.received)


@pytest.mark.slow(seconds=4)
def test_learned_weights_find_the_groups():
    """At first all weights are nearly equal, and those of the other group fall."""
    same = np.equal.outer(np.arange(5) % 2, np.arange(5) % 2)
    for rate, steps in ((0.0, 2), (1000.0, 20)):
        _, info, _ = run(pfedla(shallow(), rate=rate), DATA, steps)
        weights = (info.weights["Dense_0"] + info.weights["Dense_1"])[-1] / 2
        if rate:
            assert weights[~same].mean() < 0.5 * weights[same].mean()
        else:
            np.testing.assert_allclose(weights, 1 / 5, atol=0.1)


@pytest.mark.slow
def test_clients_keep_the_layers_in_which_they_count_most():
    plain, info, _ = run(pfedla(shallow(), rate=0.0), DATA, 2)
    own = np.stack([np.diagonal(info.weights[layer][1]) for layer in LAYERS])
    _, kept, _ = run(pfedla(shallow(), rate=0.0, keep=1), DATA, 2)
    for client in range(5):
        for place, layer in enumerate(LAYERS):
            expected = info.weights[layer][1, client]
            if own[place, client] == own[:, client].max():
                expected = np.eye(5)[client]
            np.testing.assert_allclose(kept.weights[layer][1, client], expected, atol=1e-6)
    assert np.isfinite(plain.clients.memory["params"]["Dense_0"]["kernel"]).all()


@pytest.mark.slow
def test_clients_that_keep_all_layers_train_alone():
    state, _, _ = run(pfedla(shallow(), keep=2), DATA, 3, participation=full(5))
    expected, _, _ = run(local(shallow()), DATA, 3, participation=full(5))
    for one, other in zip(
        jax.tree.leaves(state.clients.memory), jax.tree.leaves(expected.clients.memory), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_network_that_is_zero_leaves_a_client_its_own_model():
    algorithm = pfedla(shallow(), rate=1.0)
    state, _, _ = run(algorithm, DATA, 1)
    record = state.clients.record
    dead = jax.tree.map(jnp.zeros_like, record.learned.net)
    record = record._replace(learned=record.learned._replace(net=dead))
    state = state._replace(clients=state.clients._replace(record=record))
    after, info, _ = run(algorithm, DATA, 1, state=state, start=1)
    np.testing.assert_array_equal(info.weights["Dense_0"][0], np.eye(5))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(after))
