"""Properties of single kernels that group and weigh clients; the table has those of many."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from claims import KEY
from claims_graphs import RING, collaboration, graph, kmeans, line, split_clusters
from draws import clients, draws, extreme, general, moderate, seeds
from hypothesis import given
from hypothesis import strategies as st

from jaxfl.kernels import (
    amp,
    bipartition,
    consensus,
    fomo,
    mixing,
    projection,
    propagate,
    similarity,
)

jit = functools.cache(jax.jit)
HUGE = [np.float32(10.0**power) for power in (3, 10, 20, 30)]


def of_clients(c):  # one program with most results that are checked below
    reported = c.reported
    return {
        "left_out": mixing.leave_out(graph(c), reported),
        "isolated": mixing.isolate(graph(c), reported),
        "disturbance": mixing.disturbance(KEY, reported.size, 0.1),
        "leaves": bipartition.bipartition(line(c), c.ids % 2, c.ids),
        "leaves_cubed": bipartition.bipartition(line(c) ** 3, c.ids % 2, c.ids),
        "split": split_clusters(c),
        "projected": projection.project_rows(c.models),
        "again": projection.project_rows(projection.project_rows(c.models)),
        "capped": projection.project_capped_rows(c.models, jnp.full(c.models.shape, 0.6)),
        "contraction": propagate.contraction(graph(c), 2),
        "attentive": amp.attentive(-line(c), 1e4, 9.0),
        "sizes": mixing.size_weights(c.sizes),
        "agreed": mixing.mix(graph(c), jnp.broadcast_to(c.models[:1], c.models.shape)),
        "hops": mixing.mix(propagate.propagate(graph(c), 2), c.models),
    }


def measured(c):
    return jax.tree.map(np.asarray, jit(of_clients)(c))


@pytest.mark.slow
@draws
@given(clients(moderate))
def test_a_client_that_did_not_report_has_no_weight_in_the_others_rows(some):
    found = measured(some)
    weights = found["isolated"]
    silent = ~some.reported
    np.testing.assert_array_equal(weights[silent], np.eye(len(silent), dtype=np.float32)[silent])
    assert not weights[some.reported][:, silent].any()
    if some.reported.any():
        assert not found["left_out"][:, silent].any()


@pytest.mark.slow
@draws
@given(clients(general))
def test_weights_keep_their_sum(some):
    """With more examples than an int32 holds, and for weights whose sum is rounded."""
    found = measured(some)
    sizes = some.sizes.astype(np.float64)
    if sizes.any():
        np.testing.assert_allclose(found["sizes"], sizes / sizes.sum(), rtol=1e-5)
    np.testing.assert_allclose(
        found["agreed"], np.broadcast_to(some.models[:1], some.models.shape), atol=1e-5
    )
    assert found["attentive"].min() >= 0


@draws
@given(clients(general), st.integers(0, 15))
def test_rows_of_large_similarities_sum_to_one_too(some, power):
    """Equal similarities; XLA once rounded them differently in two places, and sums were off."""
    some.models[:] = some.models[:1] * np.float32(10.0**power)
    rows = np.asarray(jit(collaboration("inner"))(some))
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)


@pytest.mark.slow
@draws
@given(clients(moderate))
def test_a_disturbance_leaves_the_sums_of_rows(some):
    signs = measured(some)["disturbance"]
    np.testing.assert_allclose(signs.sum(axis=1), 0, atol=1e-6)
    assert np.abs(signs).max() <= 0.2 + 1e-6


@draws
@given(clients(moderate))
def test_a_split_keeps_the_smallest_id_and_moves_another_client(some):
    """In each cluster of two or more; only the order of similarities matters, not their size."""
    found = measured(some)
    np.testing.assert_array_equal(found["leaves"], found["leaves_cubed"])
    # Two clusters should split, and the first gets the only number left.
    np.testing.assert_array_equal(
        found["split"], np.where(some.reported & (some.ids % 2 == 0), 2, some.ids % 2)
    )
    for half in (0, 1):
        members = np.flatnonzero(some.ids % 2 == half)
        if len(members):
            assert not found["leaves"][members[some.ids[members].argmin()]]
            assert found["leaves"][members].any() == (len(members) > 1)


@draws
@given(clients(extreme(30)))
def test_a_projection_keeps_the_order_and_is_idempotent(some):
    found = measured(some)
    for row, projected, capped in zip(
        some.models, found["projected"], found["capped"], strict=True
    ):
        order = np.argsort(row)
        assert (np.diff(projected[order]) >= 0).all()
        assert (np.diff(capped[order]) >= -1e-6).all()
        assert capped.max() <= max(0.6, 1 / len(row)) + 1e-6
    np.testing.assert_allclose(found["again"], found["projected"], atol=1e-6)


@draws
@given(clients(moderate))
def test_hops_shrink_differences_by_the_contraction_at_least(some):
    found = measured(some)
    assert found["contraction"] <= 1 + 1e-6

    def widest(models):
        return np.abs(models[:, None] - models[None]).max()

    assert widest(found["hops"]) <= found["contraction"] * widest(some.models) + 1e-4


@draws
@given(clients(general))
def test_clusters_are_numbered_by_their_smallest_id_and_equal_models_are_together(some):
    some.models[-1] = some.models[0]
    averaging = np.asarray(jit(kmeans)(some))
    smallest = [some.ids[row > 0].min(initial=10**6) for row in averaging]
    assert smallest == sorted(smallest)
    np.testing.assert_array_equal(averaging[:, -1] > 0, averaging[:, 0] > 0)
    for row in averaging:
        np.testing.assert_allclose(row[row > 0], 1 / max(1, np.count_nonzero(row)), rtol=1e-6)


@draws
@given(clients(general), st.sampled_from(HUGE))
def test_a_client_that_diverges_is_far_and_the_others_are_one_cluster(some, size):
    """Its squares overflow: without scaling its distances would be 0 and its cosines NaN."""
    number = len(some.ids)
    some.models[0] = size * np.where(some.models[0] < 0, -1, 1)
    distances = np.asarray(jit(lambda c: similarity.squared_distances(c.models))(some))
    expected = np.minimum(
        np.square(some.models[:1].astype(np.float64) - some.models).sum(axis=1), 1e30
    )
    np.testing.assert_allclose(distances[0], expected, rtol=1e-4)
    if number > 2:
        apart = np.asarray(jit(kmeans)(some)) > 0
        assert {tuple(row) for row in apart} == {
            tuple(np.arange(number) == 0),
            tuple(np.arange(number) > 0),
        }


@pytest.mark.slow
@draws
@given(clients(moderate), seeds)
def test_the_gradient_of_tau_ignores_constants_and_clients_that_did_not_report(some, seed):
    """Rows of weights sum to one, so a constant added to a row of gradients changes nothing."""
    rng = np.random.default_rng(seed)
    number = len(some.ids)
    cells = np.where(some.reported, some.ids % 4, -1)
    grads = rng.normal(size=(number, number + 4)).astype(np.float32)
    by_tau = jit(
        lambda grads, cells: consensus.tau_grad(grads, cells, RING, jnp.full((2, 2), 0.5), 2)
    )
    other = np.where(some.reported[:, None], grads + rng.normal(size=(number, 1)), 1e3).astype(
        np.float32
    )
    np.testing.assert_allclose(by_tau(other, cells), by_tau(grads, cells), atol=1e-5)


@draws
@given(clients(general), st.sampled_from([np.nan, np.inf, np.float32(3e38)]))
def test_a_model_with_a_loss_of_nan_has_no_weight_and_changes_no_other(some, bad):
    losses = np.array(line(some))
    before = np.zeros(len(losses), np.float32)
    weights = jit(fomo.fomo_weights)
    clean = losses.copy()
    losses[:, 0], clean[:, 0] = bad, 1.0
    ones = np.ones_like(losses)
    np.testing.assert_array_equal(weights(before, losses, ones), weights(before, clean, ones))
