"""The ridge regressions of GFedMtl's paper, and the graphs of their servers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from toys import differ, equal

from jaxfl.core.errors import InputError
from jaxfl.data import mse_db, ridge
from jaxfl.graphs.topology import erdos_renyi

SMALL = {"servers": 4, "clients_per_server": 30, "dim": 8}


def test_every_client_is_where_it_should_be():
    data = ridge(0)
    train, val, test = data.federation
    assert train.x.shape == val.x.shape == test.x.shape == (150, 9, 60)
    assert np.bincount(data.server).tolist() == [15] * 10
    assert set(np.asarray(data.cluster).tolist()) == {0, 1, 2}
    sizes = np.asarray(train.mask).sum(axis=1)
    assert sizes.min() == 1
    assert sizes.max() == 9
    np.testing.assert_array_equal(train.mask, np.arange(9)[None] < sizes[:, None])
    assert not np.asarray(train.x)[~np.asarray(train.mask)].any()
    assert data.adjacency.shape == (10, 10)


def test_held_out_examples_are_as_many_as_told_in_as_many_clusters():
    data = ridge(5, samples=(2, 4), held_out=(12, 14), clusters=2, **SMALL)
    for part, (fewest, most) in zip(data.federation, [(2, 4), (12, 14), (12, 14)], strict=True):
        assert part.x.shape == (120, most, 8)
        assert part.y.shape == part.mask.shape == (120, most)
        assert set(np.asarray(part.mask).sum(axis=1).tolist()) == set(range(fewest, most + 1))
    assert set(data.cluster.tolist()) == {0, 1}
    assert data.truth.shape == data.optimum.shape == (2, 8)


def test_seeds_stack_and_repeat():
    equal(ridge(3, **SMALL), ridge(3, **SMALL))
    other = ridge(4, **SMALL)
    assert differ(ridge(3, **SMALL), other)
    jax.tree.map(lambda *x: jnp.stack(x), ridge(3, **SMALL), other)


def test_models_are_multiples_of_one_and_noise_is_as_told():
    data = ridge(1, samples=(200, 200), sigma=0.3, noise=(0.5, 2.0), **SMALL)
    truth = np.asarray(data.truth)
    ratio = truth / truth[:1]
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[:, :1], truth.shape), rtol=1e-4)
    assert ((ratio > 0.7 / 1.3) & (ratio < 1.3 / 0.7)).all()
    assert np.abs(ratio - 1).max() > 0.01
    x, y, _ = (np.asarray(leaf) for leaf in data.federation.train[:3])
    variance = (y - np.einsum("cnd,cd->cn", x, truth[data.cluster])).var(axis=1)
    assert variance.min() > 0.5 * 0.7
    assert variance.max() < 2.0 * 1.3
    assert variance.max() / variance.min() > 2  # clients differ
    quiet = ridge(1, noise=(0.0, 0.0), held_out=(9, 9), **SMALL)
    np.testing.assert_allclose(quiet.optimum, quiet.truth, atol=1e-4)


def test_the_optimum_is_least_squares_on_pooled_test_data():
    data = ridge(2, samples=(3, 5), **SMALL)
    x, y, mask = (np.asarray(leaf, float) for leaf in data.federation.test[:3])
    for q in range(3):
        mine = (mask > 0) & (np.asarray(data.cluster) == q)[:, None]
        np.testing.assert_allclose(
            data.optimum[q], np.linalg.solve(x[mine].T @ x[mine], x[mine].T @ y[mine]), atol=1e-4
        )
    assert differ(data.federation.train, data.federation.test)
    assert differ(data.federation.val, data.federation.test)


def test_a_small_concentration_leaves_servers_without_some_clusters():
    def empty(concentration):
        data = ridge(0, **SMALL | {"servers": 20, "concentration": concentration})
        return 20 * 3 - len({*zip(data.server.tolist(), data.cluster.tolist(), strict=True)})

    assert empty(100.0) == 0
    assert empty(0.05) > 15


def test_mse_in_decibels():
    data = ridge(0, **SMALL)
    best = data.optimum[data.cluster]
    np.testing.assert_allclose(mse_db(jnp.zeros_like(best), data), 0, atol=1e-5)
    np.testing.assert_allclose(mse_db(0.9 * best, data), -20, atol=1e-3)
    half = jnp.where(jnp.arange(len(best))[:, None] < 60, best, 0 * best)
    np.testing.assert_allclose(mse_db(half, data), 10 * np.log10(0.5), atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_random_graphs_are_connected(seed):
    graph = erdos_renyi(12, 2.0, seed)
    assert connected_components(graph)[0] == 1
    np.testing.assert_array_equal(graph, graph.T)
    assert not np.diagonal(graph).any()
    np.testing.assert_array_equal(graph, erdos_renyi(12, 2.0, seed))


def test_the_mean_degree_is_the_one_asked_for():
    degrees = [erdos_renyi(20, 6.0, seed).sum(axis=1).mean() for seed in range(30)]
    assert abs(np.mean(degrees) - 6) < 0.3
    assert erdos_renyi(1).shape == (1, 1)
    np.testing.assert_array_equal(erdos_renyi(4, 3.0), 1 - np.eye(4))


def test_graphs_by_name_and_as_given():
    assert np.asarray(ridge(0, graph="ring", **SMALL).adjacency).sum() == 8
    assert not np.asarray(ridge(0, graph="alone", **SMALL).adjacency).any()
    star = np.zeros((4, 4))
    star[0, 1:] = star[1:, 0] = 1
    np.testing.assert_array_equal(ridge(0, graph=star, **SMALL).adjacency, star)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": (0, 3)}, "samples is 0 to 3"),
        ({"noise": (1.0, 0.5)}, "noise is 1.0 to 0.5"),
        ({"dim": 400}, "test examples for 400 unknowns"),
        ({"graph": np.ones((4, 4))}, "zero diagonal"),
        ({"degree": 0.01}, "raise the degree"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    with pytest.raises(InputError, match=message):
        ridge(0, **SMALL | options)
