"""Coalitions: the bound and the search beside all divisions of few clients, and a NumPy search."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.kernels.coalitions import coalition_weights, error_bounds, find_coalitions, in_order
from jaxfl.kernels.mixing import mix

TRADES = (1.0, 3.0, 10.0)


def divisions(clients):
    """All divisions of a set, as lists of sets: each client joins a set or founds one."""
    if clients == 0:
        return [[]]
    found = []
    for division in divisions(clients - 1):
        found.append([*division, {clients - 1}])
        for place in range(len(division)):
            copy = [set(s) for s in division]
            copy[place].add(clients - 1)
            found.append(copy)
    return found


def mean_bound(division, divergence, sizes, trade):
    """The general bound for the weights of FedAvg, client by client."""
    values = []
    for coalition in division:
        total = sum(sizes[j] for j in coalition)
        weights = {j: sizes[j] / total for j in coalition}
        for i in coalition:
            estimation = np.sqrt(sum(a**2 / sizes[j] for j, a in weights.items()))
            shift = sum(a * divergence[i, j] for j, a in weights.items())
            values.append(trade * estimation + shift)
    return np.mean(values)


def draw(rng, clients):
    divergence = rng.random((clients, clients))
    divergence = (divergence + divergence.T) / 2
    np.fill_diagonal(divergence, 0)
    return divergence, rng.integers(5, 500, clients)


def as_sets(coalition):
    return [set(np.flatnonzero(coalition == c)) for c in np.unique(coalition)]


@functools.partial(jax.jit, static_argnames=("coalitions", "starts"))
def search(key, divergence, sizes, trade, coalitions, starts=20):
    return find_coalitions(key, divergence, sizes, trade, coalitions=coalitions, starts=starts)


@pytest.mark.slow
@pytest.mark.parametrize("clients", [1, 2, 4, 6])
def test_no_division_of_few_clients_has_a_smaller_bound(clients):
    rng = np.random.default_rng(clients)
    everything = divisions(clients)
    assert len(everything) == {1: 1, 2: 2, 4: 15, 6: 203}[clients]
    for trial in range(8):
        divergence, sizes = draw(rng, clients)
        trade = TRADES[trial % 3]
        best = min(mean_bound(one, divergence, sizes, trade) for one in everything)
        key = jax.random.key(trial)
        found = search(key, divergence.astype(np.float32), sizes, trade, clients)
        own = mean_bound(as_sets(np.asarray(found.coalition)), divergence, sizes, trade)
        np.testing.assert_allclose([own, found.bound], best, rtol=1e-5)
        np.testing.assert_array_equal(in_order(found.coalition), found.coalition)


def numpy_search(order, divergence, sizes, trade, slots):
    """The greedy search, with every bound computed anew."""

    def value(place):
        return mean_bound(as_sets(place), divergence, sizes, trade)

    place = np.zeros(len(order), int)
    place[order] = np.arange(len(order)) % slots
    while True:
        moved = False
        for client in order:
            values = []
            for slot in range(slots):
                tried = place.copy()
                tried[client] = slot
                values.append(value(tried))
            if min(values) < value(place) - 1e-7:
                place[client] = np.argmin(values)
                moved = True
        if not moved:
            return value(place)


@pytest.mark.parametrize(("clients", "slots"), [(9, 9), (12, 3)])
def test_the_search_ends_where_that_of_numpy_ends_from_one_of_its_orders(clients, slots):
    """One start with the same order, and a limited number of coalitions."""
    rng = np.random.default_rng(slots)
    for trial in range(3):
        divergence, sizes = draw(rng, clients)
        key = jax.random.key(trial)
        found = search(key, divergence.astype(np.float32), sizes, 5.0, slots, 1)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(
            jax.random.split(key, 1)[0], np.arange(clients)
        )
        order = np.argsort(jax.vmap(jax.random.bits)(keys))
        expected = numpy_search(order, divergence, sizes, 5.0, slots)
        np.testing.assert_allclose(found.bound, expected, rtol=1e-5)
        assert found.coalition.max() < slots


def test_clients_that_gain_nothing_stay_alone_and_without_divergence_all_are_together():
    apart = 1.0 - np.eye(5, dtype=np.float32)
    sizes = np.full(5, 1000)
    key = jax.random.key(0)
    assert search(key, apart, sizes, 0.1, 5).coalition.tolist() == [0, 1, 2, 3, 4]
    assert search(key, 0 * apart, sizes, 0.1, 5).coalition.tolist() == [0] * 5
    assert search(key, 0 * apart, sizes, 0.1, 5).bound == pytest.approx(0.1 / np.sqrt(5000))
    # Without a cost of few examples nobody has a reason to join anybody.
    assert len(set(search(key, apart, sizes, 0.0, 5).coalition.tolist())) == 5


def test_a_client_with_few_examples_accepts_more_divergence():
    divergence = np.array([[0, 0.3, 1], [0.3, 0, 1], [1, 1, 0]], np.float32)
    key = jax.random.key(0)
    assert search(key, divergence, np.array([10, 10, 10]), 2.0, 3).coalition.tolist() == [0, 0, 1]
    many = np.array([10_000] * 3)
    assert search(key, divergence, many, 2.0, 3).coalition.tolist() == [0, 1, 2]


def test_weights_are_those_of_fedavg_in_each_block():
    coalition = np.array([0, 1, 0, 1, 2])
    sizes = np.array([1, 2, 3, 6, 5])
    models = np.arange(10.0, dtype=np.float32).reshape(5, 2)
    weights = coalition_weights(jnp.asarray(coalition), jnp.asarray(sizes))
    found = mix(weights, jnp.asarray(models))
    for c in range(3):
        own = coalition == c
        expected = np.average(models[own], axis=0, weights=sizes[own])
        np.testing.assert_allclose(np.asarray(found)[own], [expected] * own.sum(), rtol=1e-6)
    bounds = error_bounds(jnp.asarray(coalition), jnp.zeros((5, 5)), jnp.asarray(sizes), 2.0)
    np.testing.assert_allclose(bounds, 2 / np.sqrt([4, 8, 4, 8, 5]), rtol=1e-6)
