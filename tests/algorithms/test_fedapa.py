"""FedAPA: its rounds beside NumPy, written from the authors' code."""

import jax
import numpy as np
import pytest
from toys import deployed, equal, full, opposite_groups, run, shallow

import jaxfl
from jaxfl.algorithms import fedapa
from jaxfl.core.errors import InputError

DATA = opposite_groups(clients=5, sizes=[40, 25, 31, 40, 20])
RATE, MOMENTUM = 0.05, 0.9


def bodies(stacked):
    """The parameters of the body as rows, in float64; the head is Dense_1."""
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(stacked["params"]["Dense_0"])]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def test_weights_follow_the_products_of_bodies_and_updates():
    """Three rounds of all clients, and one of three of them."""
    algorithm = fedapa(shallow(), rate=RATE, momentum=MOMENTUM)
    weights, velocity = np.zeros((5, 5)), np.zeros((5, 5))
    state = jax.jit(algorithm.init)(jax.random.key(0), DATA.train)
    sent = bodies(state.clients.record.received)
    for number in range(4):
        ids = [4, 1, 2] if number == 3 else list(range(5))
        who = jaxfl.participation.schedule(np.array([ids] * 4))
        state, info, cohorts = run(algorithm, DATA, 1, state=state, participation=who, start=number)
        ids = cohorts[0]
        after = bodies(state.clients.record.received)
        for place, client in enumerate(ids):
            row = weights[client].copy()
            row[client] = 1
            row /= row.sum()
            mixing = row[ids] / row[ids].sum()
            np.testing.assert_allclose(info.weights["Dense_0"][0, place], mixing, atol=1e-5)
            start = mixing @ sent[ids]
            gradient = np.zeros(5)
            gradient[ids] = sent[ids] @ (start - after[client])
            velocity[client] = MOMENTUM * velocity[client] + gradient
            weights[client] = np.clip(row - RATE * velocity[client], 0, 1)
        learned = state.clients.record.learned
        np.testing.assert_allclose(learned.weights, weights, atol=1e-4)
        sent = after
    others = weights[~np.eye(5, dtype=bool)]
    assert others.max() > 0.01


def test_heads_stay_with_their_clients():
    algorithm = fedapa(shallow())
    state, info, _ = run(algorithm, DATA, 2, participation=full(5))
    received = state.clients.record.received["params"]
    assert jax.tree.leaves(received["Dense_1"]) == []
    np.testing.assert_array_equal(info.weights["Dense_1"][-1], np.eye(5))
    equal(deployed(algorithm, state, 5), state.clients.memory)


@pytest.mark.slow
def test_the_weights_of_the_own_group_grow():
    same = np.equal.outer(np.arange(5) % 2, np.arange(5) % 2) & ~np.eye(5, dtype=bool)
    other = ~np.equal.outer(np.arange(5) % 2, np.arange(5) % 2)
    _, info, _ = run(fedapa(shallow(), rate=RATE), DATA, 20, participation=full(5))
    last = info.weights["Dense_0"][-1]
    assert last[same].mean() > 2 * last[other].mean()


def test_a_model_that_is_its_head_is_refused():
    task = jaxfl.classification(jaxfl.models.linear(3), np.zeros(4))
    with pytest.raises(InputError, match="mixes the layers below the head, and the model has none"):
        fedapa(task)
