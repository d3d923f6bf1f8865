"""Robust rules, merging, CKA and optimal transport against NumPy and SciPy from the papers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from jaxfl.kernels.filters import dnc, fisher_mean, fltrust, linear_cka
from jaxfl.kernels.robust import bulyan, geometric_median, krum, median
from jaxfl.kernels.transport import sinkhorn_distances, sinkhorn_plan

RNG = np.random.default_rng(0)
STACKED = {
    name: jnp.asarray(RNG.normal(size=shape), jnp.float32)
    for name, shape in {"bias": (11, 3), "kernel": (11, 3, 2)}.items()
}
ALL = np.ones(11, bool)
SOME = np.array([True, False, True, True, True, False, True, True, True, True, True])
WHO = pytest.mark.parametrize("reported", [ALL, SOME], ids=["11", "9"])


def flat(tree):
    return np.concatenate(
        [np.asarray(x, np.float64).reshape(len(x), -1) for x in jax.tree.leaves(tree)], axis=1
    )


def row(model):
    return flat(jax.tree.map(lambda x: x[None], model))[0]


@WHO
def test_the_geometric_median_has_the_least_sum_of_distances(reported):
    """As SciPy's minimiser finds it."""
    weights = RNG.uniform(1, 3, size=11).astype(np.float32)
    found = geometric_median(STACKED, jnp.asarray(weights), jnp.asarray(reported), steps=300)
    matrix, shares = flat(STACKED)[reported], weights[reported]

    def mean_distance(x):
        return (shares * np.linalg.norm(matrix - x, axis=1)).sum()

    best = optimize.minimize(mean_distance, matrix.mean(axis=0), method="BFGS", tol=1e-10)
    np.testing.assert_allclose(row(found), best.x, atol=1e-3)


def test_the_geometric_median_of_a_line_is_its_median_and_outliers_do_not_move_it():
    line = jnp.array([[0.0], [1.0], [2.0], [3.0], [1e6]])
    np.testing.assert_allclose(geometric_median(line, steps=400), [2.0], atol=1e-3)


def bulyan_by_hand(matrix, byzantine):
    """El Mhamdi et al., section 4, with loops; Krum by Blanchard et al."""
    left, chosen = list(range(len(matrix))), []
    while len(chosen) < len(matrix) - 2 * byzantine:
        scores = {}
        for i in left:
            others = sorted(((matrix[i] - matrix[j]) ** 2).sum() for j in left if j != i)
            scores[i] = sum(others[: max(len(left) - byzantine - 2, 1)])
        best = min(left, key=scores.get)
        chosen.append(best)
        left.remove(best)
    values = matrix[chosen]
    result = []
    for column in values.T:
        nearest = sorted(column, key=lambda x: abs(x - np.median(column)))
        result.append(np.mean(nearest[: len(chosen) - 2 * byzantine]))
    return np.array(result)


@pytest.mark.long(every=4)
@WHO
@pytest.mark.parametrize("byzantine", [0, 1])
def test_bulyan_is_the_loop_of_the_paper(reported, byzantine):
    found = bulyan(STACKED, None, jnp.asarray(reported), byzantine)
    expected = bulyan_by_hand(flat(STACKED)[reported], byzantine)
    np.testing.assert_allclose(row(found), expected, atol=1e-5)


@pytest.mark.slow
def test_bulyan_withstands_a_lie_in_one_coordinate():
    """Krum takes a model that hides a large number in one of many coordinates."""
    models = RNG.normal(size=(11, 400)).astype(np.float32)
    models[3] *= 0.1
    models[3, 7] = 12.0
    weights = np.asarray(krum(jnp.asarray(models), byzantine=2, chosen=5))
    assert weights[3] > 0
    assert (weights @ models)[7] > 1.5
    assert abs(bulyan(jnp.asarray(models), byzantine=2)[7]) < 1


def dnc_by_hand(matrix, outliers):
    """Shejwalkar and Houmansadr, Algorithm 2, with NumPy's singular value decomposition."""
    centred = matrix - matrix.mean(axis=0)
    direction = np.linalg.svd(centred)[2][0]
    score = (centred @ direction) ** 2
    return np.sort(np.argsort(score)[: len(matrix) - outliers])


@pytest.mark.long(every=4)
@WHO
@pytest.mark.parametrize("byzantine", [1, 3])
def test_dnc_leaves_out_the_largest_parts_along_the_first_singular_vector(reported, byzantine):
    found = np.asarray(dnc(STACKED, jax.random.key(0), jnp.asarray(reported), byzantine))
    expected = np.flatnonzero(reported)[dnc_by_hand(flat(STACKED)[reported], byzantine)]
    np.testing.assert_array_equal(np.flatnonzero(found), expected)
    np.testing.assert_allclose(found[expected], 1 / len(expected), rtol=1e-6)


@pytest.mark.slow
def test_dnc_of_some_coordinates_finds_malicious_updates_that_agree():
    updates = RNG.normal(size=(12, 400)).astype(np.float32)
    updates[:3] += 1.5
    options = {"byzantine": 3, "coordinates": 100, "iterations": 3}
    weights = dnc(jnp.asarray(updates), jax.random.key(1), **options)
    assert np.asarray(weights)[:3].tolist() == [0, 0, 0]
    assert np.asarray(weights)[3:].sum() == pytest.approx(1)


@pytest.mark.slow
@WHO
def test_fltrust_is_the_formula_of_the_paper(reported):
    reference = jax.tree.map(lambda x: 3 * x[0] + x[2], STACKED)
    found = row(fltrust(STACKED, reference, jnp.asarray(reported)))
    g0, total, trust = row(reference), 0.0, 0.0
    for g in flat(STACKED)[reported]:
        score = max(0, g @ g0 / np.linalg.norm(g) / np.linalg.norm(g0))
        total = total + score * np.linalg.norm(g0) / np.linalg.norm(g) * g
        trust += score
    np.testing.assert_allclose(found, total / trust, rtol=1e-4, atol=1e-5)


def test_fltrust_without_trust_is_nothing():
    assert not fltrust(-jnp.ones((3, 2)), jnp.ones(2)).any()


@WHO
def test_the_fisher_mean_is_the_mode_of_the_product_of_gaussians(reported):
    """Found by SciPy, as the least sum of squares."""
    fisher = jax.tree.map(lambda x: jnp.asarray(RNG.uniform(size=x.shape), jnp.float32), STACKED)
    weights = RNG.uniform(1, 3, size=11).astype(np.float32)
    found = row(fisher_mean(STACKED, fisher, jnp.asarray(weights), jnp.asarray(reported)))
    models, precisions = flat(STACKED)[reported], flat(fisher)[reported]

    def minus_log(x):
        return (weights[reported, None] * precisions * (models - x) ** 2).sum()

    best = optimize.minimize(minus_log, models.mean(axis=0), tol=1e-12)
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_a_parameter_without_information_is_the_mean():
    models = jnp.array([[1.0, 1.0], [3.0, 5.0]])
    fisher = jnp.array([[0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(fisher_mean(models, fisher), [2.0, 1.0])


def test_cka_is_the_formula_of_the_paper():
    features = RNG.normal(size=(4, 9, 5)).astype(np.float32)
    found = linear_cka(jnp.asarray(features))
    centre = np.eye(9) - 1 / 9
    for i, x in enumerate(features.astype(float)):
        for j, y in enumerate(features.astype(float)):
            cross = np.linalg.norm(x.T @ centre @ y, "fro") ** 2
            own = np.linalg.norm(x.T @ centre @ x, "fro") * np.linalg.norm(y.T @ centre @ y, "fro")
            assert found[i, j] == pytest.approx(cross / own, abs=1e-5)


def test_cka_does_not_see_rotations_lengths_and_shifts():
    x = RNG.normal(size=(9, 5))
    rotation = np.linalg.qr(RNG.normal(size=(5, 5)))[0]
    pair = np.stack([x, 7 * x @ rotation + 3]).astype(np.float32)
    np.testing.assert_allclose(linear_cka(jnp.asarray(pair)), np.ones((2, 2)), atol=1e-5)


def test_the_plan_nears_the_linear_program_of_optimal_transport():
    """SciPy's, as the regularisation goes to 0."""
    source, target = RNG.dirichlet(np.ones(4)), RNG.dirichlet(np.ones(5))
    cost = RNG.uniform(size=(4, 5))
    rows, columns = np.kron(np.eye(4), np.ones(5)), np.kron(np.ones(4), np.eye(5))
    exact = optimize.linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([source, target])
    )
    arrays = [jnp.asarray(x, jnp.float32) for x in (cost, source, target)]
    plan = np.asarray(sinkhorn_plan(*arrays, 0.01, 2000))
    np.testing.assert_allclose(plan.sum(axis=0), target, atol=1e-5)
    np.testing.assert_allclose(plan.sum(axis=1), source, atol=1e-3)
    assert (plan * cost).sum() == pytest.approx(exact.fun, abs=5e-3)


@pytest.mark.slow
def test_the_plan_is_that_of_the_scalings_of_the_paper():
    """Cuturi, Algorithm 1: u = r / K v, v = c / K' u."""
    source, target = RNG.dirichlet(np.ones(3)), RNG.dirichlet(np.ones(4))
    cost = RNG.uniform(size=(3, 4))
    kernel, v = np.exp(-cost / 0.3), np.ones(4)
    for _ in range(500):
        u = source / (kernel @ v)
        v = target / (kernel.T @ u)
    arrays = [jnp.asarray(x, jnp.float32) for x in (cost, source, target)]
    plan = sinkhorn_plan(*arrays, 0.3, 500)
    np.testing.assert_allclose(plan, u[:, None] * kernel * v, atol=1e-5)


@pytest.mark.slow
def test_distances_of_histograms_are_those_of_their_plans_and_zeros_are_allowed():
    histograms = jnp.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.3, 0.5]])
    cost = jnp.abs(jnp.arange(3.0)[:, None] - jnp.arange(3.0)[None])
    found = sinkhorn_distances(histograms, cost, 0.02, 500)
    np.testing.assert_allclose(found[0], [0, 1.5, 1.3], atol=1e-2)
    np.testing.assert_allclose(found, found.T, atol=1e-3)


def test_without_reports_all_count():
    nobody = jnp.zeros(11, bool)
    np.testing.assert_array_equal(row(median(STACKED)), row(median(STACKED, nobody)))
    np.testing.assert_array_equal(krum(STACKED), krum(STACKED, jnp.arange(11), nobody))
