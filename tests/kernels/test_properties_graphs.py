"""What only single kernels claim, of those that divide clients and weigh them (the table holds what many do)."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from claims import KEY
from claims_graphs import RING, collaboration, graph, kmeans, line, split
from hypothesis import given
from hypothesis import strategies as st
from test_properties import clients, draws, extreme, general, moderate, seeds

from jaxfl.kernels import amp, bipartition, cluster, consensus, fomo, mixing, propagate, simplex

jit = functools.cache(jax.jit)
HUGE = [np.float32(10.0**power) for power in (3, 10, 20, 30)]


def of_clients(c):  # one program of much that is checked below
    heard = c.heard
    return {
        "left_out": mixing.leave_out(graph(c), heard),
        "isolated": mixing.isolate(graph(c), heard),
        "disturbance": mixing.disturbance(KEY, heard.size, 0.1),
        "leaves": bipartition.bipartition(line(c), c.ids % 2, c.ids),
        "leaves_cubed": bipartition.bipartition(line(c) ** 3, c.ids % 2, c.ids),
        "split": split(c),
        "shares": simplex.project_rows(c.models),
        "again": simplex.project_rows(simplex.project_rows(c.models)),
        "capped": simplex.project_capped_rows(c.models, jnp.full(c.models.shape, 0.6)),
        "contraction": propagate.contraction(graph(c), 2),
        "attentive": amp.attentive(-line(c), 1e4, 9.0),
        "sizes": mixing.size_weights(c.sizes),
        "agreed": mixing.mix(graph(c), jnp.broadcast_to(c.models[:1], c.models.shape)),
        "hops": mixing.mix(propagate.propagate(graph(c), 2), c.models),
    }


def measured(c):
    return jax.tree.map(np.asarray, jit(of_clients)(c))


@draws
@given(clients(moderate))
def test_nobody_weighs_a_client_that_is_not_heard(some):
    found = measured(some)
    weights, silent = found["isolated"], ~some.heard
    np.testing.assert_array_equal(weights[silent], np.eye(len(silent), dtype=np.float32)[silent])
    assert not weights[some.heard][:, silent].any()
    if some.heard.any():
        assert not found["left_out"][:, silent].any()


@draws
@given(clients(general))
def test_shares_are_shares(some):
    """Of many more examples than an int32 counts together; of weights that sum to one but for their rounding."""
    found, sizes = measured(some), some.sizes.astype(np.float64)
    if sizes.any():
        np.testing.assert_allclose(found["sizes"], sizes / sizes.sum(), rtol=1e-5)
    np.testing.assert_allclose(
        found["agreed"], np.broadcast_to(some.models[:1], some.models.shape), atol=1e-5
    )
    assert found["attentive"].min() >= 0


@draws
@given(clients(general), st.integers(0, 15))
def test_rows_of_large_numbers_sum_to_one_too(some, power):
    """Similarities of one size to the last digit: rounded otherwise where they are used again, they lost their sum."""
    some.models[:] = some.models[:1] * np.float32(10.0**power)
    rows = np.asarray(jit(collaboration("inner"))(some))
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-5)


@draws
@given(clients(moderate))
def test_what_is_added_to_weights_leaves_their_sums(some):
    signs = measured(some)["disturbance"]
    np.testing.assert_allclose(signs.sum(axis=1), 0, atol=1e-6)
    assert np.abs(signs).max() <= 0.2 + 1e-6


@draws
@given(clients(moderate))
def test_a_split_keeps_the_smallest_id_and_sends_someone_away(some):
    """Of each cluster of two or more; by the order of similarities alone, not by their sizes."""
    found = measured(some)
    np.testing.assert_array_equal(found["leaves"], found["leaves_cubed"])
    # Of two clusters that are to split, the first gets the one number that is left.
    np.testing.assert_array_equal(
        found["split"], np.where(some.heard & (some.ids % 2 == 0), 2, some.ids % 2)
    )
    for half in (0, 1):
        members = np.flatnonzero(some.ids % 2 == half)
        if len(members):
            assert not found["leaves"][members[some.ids[members].argmin()]]
            assert found["leaves"][members].any() == (len(members) > 1)


@draws
@given(clients(extreme(30)))
def test_a_projection_keeps_the_order_and_projected_again_the_same(some):
    found = measured(some)
    for row, shares, capped in zip(some.models, found["shares"], found["capped"], strict=True):
        order = np.argsort(row)
        assert (np.diff(shares[order]) >= 0).all()
        assert (np.diff(capped[order]) >= -1e-6).all()
        assert capped.max() <= max(0.6, 1 / len(row)) + 1e-6
    np.testing.assert_allclose(found["again"], found["shares"], atol=1e-6)


@draws
@given(clients(moderate))
def test_hops_bring_models_nearer_by_the_contraction_at_least(some):
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
def test_a_client_that_runs_away_is_far_and_the_others_are_one_cluster(some, size):
    """Its squares overflow: it was at distance 0 from all, and its cosines were no numbers."""
    number = len(some.ids)
    some.models[0] = size * np.where(some.models[0] < 0, -1, 1)
    distances = np.asarray(jit(lambda c: cluster.squared_distances(c.models))(some))
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


@draws
@given(clients(moderate), seeds)
def test_losses_of_who_is_not_heard_and_a_constant_do_not_change_the_slope_of_tau(some, seed):
    """Rows of weights sum to one, so what is added to a whole row of slopes changes nothing."""
    rng, number = np.random.default_rng(seed), len(some.ids)
    cells = np.where(some.heard, some.ids % 4, -1)
    slopes = rng.normal(size=(number, number + 4)).astype(np.float32)
    slope = jit(
        lambda slopes, cells: consensus.tau_slope(slopes, cells, RING, jnp.full((2, 2), 0.5), 2)
    )
    other = np.where(some.heard[:, None], slopes + rng.normal(size=(number, 1)), 1e3).astype(
        np.float32
    )
    np.testing.assert_allclose(slope(other, cells), slope(slopes, cells), atol=1e-5)


@draws
@given(clients(general), st.sampled_from([np.nan, np.inf, np.float32(3e38)]))
def test_a_model_with_a_loss_that_is_no_number_is_worth_nothing_and_spoils_nothing(some, bad):
    losses = np.array(line(some))
    before = np.zeros(len(losses), np.float32)
    worth = jit(fomo.worth)
    clean = losses.copy()
    losses[:, 0], clean[:, 0] = bad, 1.0
    ones = np.ones_like(losses)
    np.testing.assert_array_equal(worth(before, losses, ones), worth(before, clean, ones))
