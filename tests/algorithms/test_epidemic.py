"""Epidemic Learning and Morph: graphs that change, beside NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import federation, quadratic, quick_key, run, trained

from jaxfl.algorithms import epidemic
from jaxfl.core.messages import Clients
from jaxfl.kernels import edges_of, least_similar, random_circle, random_receivers

CLIENTS = 5
rng = np.random.default_rng(0)
X = [(c + 0.3 * rng.normal(size=(20, 3))).astype(np.float32) for c in range(CLIENTS)]
DATA = federation(X, [np.zeros(20, np.int32)] * CLIENTS)


def first_models(algorithm):
    models = rng.normal(size=(CLIENTS, 3)).astype(np.float32)
    state = algorithm.init(quick_key(0), DATA.train)
    return state._replace(clients=Clients({"w": jnp.asarray(models)})), models


def test_rounds_with_dissimilar_peers_equal_numpy():
    algorithm = epidemic(quadratic(), peers="dissimilar", degree=2)
    state, models = first_models(algorithm)
    state, info, _ = run(algorithm, DATA, 2, state=state)
    weights = np.eye(CLIENTS)
    for number in range(2):
        models = trained(models, DATA, number)
        units = models / np.linalg.norm(models, axis=1, keepdims=True)
        weights = np.eye(CLIENTS) / 3
        for client, cosines in enumerate(units @ units.T):
            others = [j for j in np.argsort(cosines) if j != client]
            weights[client, others[:2]] = 1 / 3
        np.testing.assert_allclose(info.weights[number], weights, atol=1e-6)
        models = weights @ models
    np.testing.assert_allclose(state.clients.memory["w"], models, atol=1e-5)
    # Each receives two models of three numbers; who is unlike many sends often.
    assert info.down.tolist() == [[6.0] * CLIENTS] * 2
    assert info.up[1].tolist() == (3 * (np.count_nonzero(weights, axis=0) - 1)).tolist()


def test_a_client_takes_the_mean_of_its_own_and_what_others_drew_it_for():
    algorithm = epidemic(quadratic(), peers="random", degree=2)
    state, models = first_models(algorithm)
    state, info, _ = run(algorithm, DATA, 2, state=state)
    for number in range(2):
        models = trained(models, DATA, number)
        weights = np.asarray(info.weights[number])
        # Each model goes to two others.
        assert (np.count_nonzero(weights, axis=0) == 3).all()
        models = [models[row > 0].mean(axis=0) for row in weights]
    np.testing.assert_allclose(state.clients.memory["w"], models, atol=1e-5)
    assert (info.weights[0] != info.weights[1]).any()
    assert info.up.tolist() == [[6.0] * CLIENTS] * 2


@pytest.mark.slow
def test_receivers_are_drawn_uniformly_among_those_that_are_there():
    reported = np.array([True, True, True, False, True, True])
    keys = jax.random.split(quick_key(1), 2000)

    def drawn(key):
        return edges_of(random_receivers(key, 6, 2, reported=jnp.asarray(reported)))

    edges = jax.vmap(drawn)(keys)
    shares = np.asarray(edges).mean(axis=0)
    expected = 0.5 * np.outer(reported, reported) * (1 - np.eye(6))  # two of four others
    deviation = np.sqrt(0.25 / len(keys))
    np.testing.assert_allclose(shares, expected, atol=5 * deviation)
    assert (np.asarray(edges).sum(axis=1)[:, reported] == 2).all()


@pytest.mark.slow
def test_a_circle_is_one_and_its_order_is_random():
    """Whoever follows the senders, one by one, meets everybody that is there before coming home."""
    reported = np.array([True, True, True, False, True, True])
    orders = set()
    for seed in range(40):
        key = quick_key(seed)
        edges = np.asarray(edges_of(random_circle(key, 6, 1, reported=jnp.asarray(reported))))
        order = [0]
        while (sender := int(edges[order[-1]].argmax())) != 0:
            order.append(sender)
        assert sorted(order) == [0, 1, 2, 4, 5]
        assert edges.sum() == 5
        orders.add(tuple(order))
        # With degree 2 a client hears the two that follow in the circle.
        twice = np.asarray(edges_of(random_circle(key, 6, 2, reported=jnp.asarray(reported))))
        np.testing.assert_array_equal(twice, edges + edges @ edges)
    assert len(orders) > 15  # of 24


@pytest.mark.slow
@pytest.mark.parametrize("degree", [3, 9])
def test_more_peers_than_there_are_others_are_all_of_them(degree):
    everybody = 1 - np.eye(4)
    cosines = jnp.asarray(rng.normal(size=(4, 4)), jnp.float32)
    np.testing.assert_array_equal(edges_of(least_similar(cosines, degree)), everybody)
    drawn = random_receivers(quick_key(0), 4, degree)
    np.testing.assert_array_equal(edges_of(drawn), everybody)
    circle = random_circle(quick_key(0), 4, degree)
    np.testing.assert_array_equal(edges_of(circle), everybody)
