"""Robust rules against NumPy and SciPy programs written from the papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from jaxfl.kernels.robust import clip_updates, geometric_median, krum, median, trimmed_mean

RNG = np.random.default_rng(0)
SHAPES = {"kernel": (7, 3, 2), "bias": (7, 3)}
STACKED = {name: jnp.asarray(RNG.normal(size=shape), jnp.float32) for name, shape in SHAPES.items()}
ALL = np.ones(7, bool)
SOME = np.array([True, False, True, True, True, False, True])
EVEN = np.array([True, False, True, True, True, True, True])


def flat(tree):
    return np.concatenate(
        [np.asarray(x, np.float64).reshape(len(x), -1) for x in jax.tree.leaves(tree)], axis=1
    )


@pytest.mark.parametrize("reported", [ALL, SOME, EVEN], ids=["7", "5", "6"])
def test_the_median_is_numpys_over_the_clients_that_reported(reported):
    found = median(STACKED, jnp.asarray(reported))
    for name, x in STACKED.items():
        np.testing.assert_allclose(
            found[name], np.median(np.asarray(x)[reported], axis=0), atol=1e-6
        )


@pytest.mark.parametrize("trim", [0.0, 0.2, 0.3, 0.49])
@pytest.mark.parametrize("reported", [ALL, SOME], ids=["7", "5"])
def test_the_trimmed_mean_leaves_out_both_ends(trim, reported):
    found = trimmed_mean(STACKED, trim, jnp.asarray(reported))
    for name, x in STACKED.items():
        ordered = np.sort(np.asarray(x, np.float64)[reported], axis=0)
        cut = int(trim * reported.sum())
        np.testing.assert_allclose(
            found[name], ordered[cut : len(ordered) - cut].mean(axis=0), atol=1e-6
        )


def by_hand(matrix, byzantine, chosen):
    """Blanchard et al., section 4, with loops."""
    scores = []
    for i, a in enumerate(matrix):
        others = sorted(float(((a - b) ** 2).sum()) for j, b in enumerate(matrix) if j != i)
        scores.append(sum(others[: max(len(matrix) - byzantine - 2, 1)]))
    return np.argsort(np.round(scores, 6), kind="stable")[:chosen]  # the first of equals


@pytest.mark.long(every=10)
@pytest.mark.parametrize(("byzantine", "chosen"), [(0, 1), (1, 1), (2, 1), (2, 3), (1, 6)])
@pytest.mark.parametrize("reported", [ALL, SOME], ids=["7", "5"])
def test_krum_takes_the_models_near_their_neighbours(byzantine, chosen, reported):
    found = krum(STACKED, jnp.arange(7), jnp.asarray(reported), byzantine, chosen)
    expected = np.flatnonzero(reported)[by_hand(flat(STACKED)[reported], byzantine, chosen)]
    np.testing.assert_array_equal(np.flatnonzero(found), np.sort(expected))
    np.testing.assert_allclose(np.asarray(found)[expected], 1 / len(expected), rtol=1e-6)


@pytest.mark.slow
def test_krum_withstands_as_many_malicious_models_as_stated_and_breaks_ties_by_id():
    near = RNG.normal(size=(5, 4)) * 0.1
    matrix = jnp.asarray(np.concatenate([near, 50 + RNG.normal(size=(2, 4))]), jnp.float32)
    ids = jnp.arange(7)
    reported = jnp.ones(7, bool)
    weights = np.asarray(krum(matrix, ids, reported, None, None))
    np.testing.assert_array_equal(np.flatnonzero(weights), [0, 1, 2, 3, 4])  # M - f, f = 2
    assert np.flatnonzero(krum(matrix, ids, reported, None, 1)).item() in range(5)
    pair = jnp.asarray([[0.0, 0.0], [9.0, 9.0], [0.0, 1.0]])
    assert np.flatnonzero(krum(pair, jnp.array([8, 1, 5]), jnp.ones(3, bool), 0, 1)).item() == 2
    np.testing.assert_allclose(krum(pair[:1], jnp.array([3]), jnp.ones(1, bool), None, 1), [1])


def test_an_enormous_model_does_not_hide_another_malicious_one_from_krum():
    near = RNG.normal(size=(6, 4)) * 0.1 + 1
    for huge in (1e6, 1e20, 3e38):
        malicious = np.concatenate([np.full((1, 4), -5.0), np.full((1, 4), huge)])
        matrix = jnp.asarray(np.concatenate([malicious, near]), jnp.float32)
        weights = np.asarray(krum(matrix, jnp.arange(8), jnp.ones(8, bool), None, None))
        np.testing.assert_array_equal(np.flatnonzero(weights), np.arange(2, 8))


def test_clipped_updates_keep_their_direction_and_are_no_longer_than_the_bound():
    before = jax.tree.map(lambda x: x * 0.5 + 1, STACKED)
    lengths = np.linalg.norm(flat(STACKED) - flat(before), axis=1)
    for bound, reported in ((2.0, ALL), (None, ALL), (None, SOME)):
        clipped = flat(clip_updates(before, STACKED, bound, jnp.asarray(reported))) - flat(before)
        longest = np.median(lengths[reported]) if bound is None else bound
        expected = (flat(STACKED) - flat(before)) * np.minimum(1, longest / lengths)[:, None]
        np.testing.assert_allclose(clipped, expected, atol=1e-5)
    same = clip_updates(before, before, 1.0, jnp.asarray(ALL))
    np.testing.assert_array_equal(flat(same), flat(before))


@pytest.mark.parametrize("trim", [0.2, 0.5])
def test_equal_values_count_as_often_as_they_are_there(trim):
    """Also where the smallest or the largest value that is kept is there several times."""
    x = np.random.default_rng(1).integers(-2, 3, (10, 60)).astype(np.float32)
    ordered = np.sort(x, axis=0)
    expected = ordered[2:8].mean(axis=0) if trim == 0.2 else np.median(x, axis=0)
    found = trimmed_mean(jnp.asarray(x), trim, jnp.ones(10, bool))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_trimmed_mean_has_the_derivative_of_the_values_that_it_keeps():
    x = jnp.array([[3.0], [-1.0], [2.0], [90.0], [0.5]])
    grad = jax.grad(lambda x: trimmed_mean(x, 0.2, jnp.ones(5, bool)).sum())(x)
    np.testing.assert_allclose(grad[:, 0], [1 / 3, 0, 1 / 3, 0, 1 / 3], atol=1e-6)


def test_equal_values_keep_their_digits_and_nan_spreads():
    value = np.random.default_rng(0).normal(size=400).astype(np.float32)
    np.testing.assert_array_equal(median(jnp.tile(value, (49, 1))), value)
    x = jnp.array([[jnp.nan, 1.0, 2.0], [1.0, -jnp.nan, 3.0], [2.0, 1.0, jnp.inf]])
    np.testing.assert_array_equal(median(x), [np.nan, np.nan, 3.0])
    np.testing.assert_array_equal(median(x, jnp.array([False, False, True])), [2.0, 1.0, np.inf])
    assert median(jnp.array([[1], [2]])).tolist() == [1.5]
    assert median(jnp.zeros((3, 0))).shape == (0,)


def row(model):
    return flat(jax.tree.map(lambda x: x[None], model))[0]


@pytest.mark.parametrize("reported", [ALL, SOME], ids=["7", "5"])
def test_the_geometric_median_has_the_least_sum_of_distances(reported):
    """As SciPy's minimiser finds it."""
    weights = np.random.default_rng(2).uniform(1, 3, size=7).astype(np.float32)
    found = geometric_median(STACKED, jnp.asarray(weights), jnp.asarray(reported), steps=300)
    matrix, shares = flat(STACKED)[reported], weights[reported]

    def mean_distance(x):
        return (shares * np.linalg.norm(matrix - x, axis=1)).sum()

    best = optimize.minimize(mean_distance, matrix.mean(axis=0), method="BFGS", tol=1e-10)
    np.testing.assert_allclose(row(found), best.x, atol=1e-3)


def test_the_geometric_median_of_a_line_is_its_median_and_outliers_do_not_move_it():
    line = jnp.array([[0.0], [1.0], [2.0], [3.0], [1e6]])
    np.testing.assert_allclose(geometric_median(line, steps=400), [2.0], atol=1e-3)


def test_without_reports_all_count():
    nobody = jnp.zeros(7, bool)
    np.testing.assert_array_equal(row(median(STACKED)), row(median(STACKED, nobody)))
    np.testing.assert_array_equal(krum(STACKED), krum(STACKED, jnp.arange(7), nobody))
