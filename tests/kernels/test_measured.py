"""Collaboration graphs from measured bias and variance, against SciPy and against known means."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from jaxfl.kernels.similarity import similarities
from jaxfl.kernels.simplex import collaboration_rows, fill_rows, measured_rows


def solve(costs, curvature):
    """min sum_j v_j w_j^2 + b_j w_j on the simplex by SciPy's sequential quadratic programming."""
    found = minimize(
        lambda w: np.sum(curvature * w**2 + costs * w),
        np.full(costs.size, 1 / costs.size),
        jac=lambda w: 2 * curvature * w + costs,
        bounds=[(0, 1)] * costs.size,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success
    return found.x


@pytest.mark.long(every=4)
@pytest.mark.parametrize("seed", range(8))
def test_the_filling_is_the_solution_of_the_quadratic_program(seed):
    rng = np.random.default_rng(seed)
    clients = (1, 2, 5, 9)[seed % 4]
    costs = rng.uniform(0, 3, size=(4, clients))
    costs[:, 0] = 0.0
    curvature = rng.uniform(0.2, 2, size=clients)
    found = fill_rows(jnp.asarray(costs, jnp.float32), jnp.asarray(curvature, jnp.float32))
    np.testing.assert_allclose(found, [solve(row, curvature) for row in costs], atol=2e-5)


def test_an_infinite_cost_has_no_weight():
    found = fill_rows(jnp.array([[0.0, jnp.inf, 0.0]]), jnp.array([1.0, 1e-20, 1.0]))
    np.testing.assert_allclose(found, [[0.5, 0.0, 0.5]], atol=1e-6)


def draw(rng, groups, clients, examples=20, dim=50, apart=0.3, common=1.0):
    """Two means of half of each client's examples [M, D], and the true means."""
    centres = apart * rng.normal(size=(groups, dim)) + common * rng.normal(size=dim)
    true = centres[np.arange(clients) % groups]
    noise = np.sqrt(2 / examples)
    halves = [true + noise * rng.normal(size=true.shape) for _ in range(2)]
    return [jnp.asarray(half, jnp.float32) for half in halves], true


def error(weights, models, true):
    return np.mean(np.sum((np.asarray(weights) @ np.asarray(models) - true) ** 2, axis=1))


@pytest.mark.slow
def test_measured_weights_come_near_to_those_of_one_who_knows_the_groups():
    """100 clients in 20 groups with a large common part: pFedGraph's default mixes them."""
    rng = np.random.default_rng(0)
    (first, second), true = draw(rng, groups=20, clients=100)
    models = (first + second) / 2
    reported = jnp.ones(100, bool)
    measured = error(measured_rows(first, second, reported), models, true)
    same = np.equal.outer(np.arange(100) % 20, np.arange(100) % 20)
    oracle = error(same / same.sum(axis=1, keepdims=True), models, true)
    cosines = similarities(models, "cosine", 0.9)
    default = error(collaboration_rows(cosines, jnp.full(100, 0.01), None, "code"), models, true)
    assert measured < 1.7 * oracle
    assert default > 4 * oracle


def test_clients_of_one_group_weigh_nearly_the_same():
    """Without a margin for chance half of the distances would count, and few would collaborate."""
    rng = np.random.default_rng(3)
    (first, second), true = draw(rng, groups=1, clients=30)
    weights = measured_rows(first, second, jnp.ones(30, bool))
    oracle = error(np.full((30, 30), 1 / 30), (first + second) / 2, true)
    assert error(weights, (first + second) / 2, true) < 1.6 * oracle


@pytest.mark.slow
def test_clients_that_are_alike_collaborate_and_the_certain_ones_weigh_more():
    rng = np.random.default_rng(1)
    centre = rng.normal(size=400)
    noise = np.array([1.0, 1.0, 3.0, 3.0])[:, None]
    first, second = (
        jnp.asarray(centre + noise * rng.normal(size=(4, 400)), jnp.float32) for _ in range(2)
    )
    weights = np.asarray(measured_rows(first, second, jnp.ones(4, bool)))
    assert (weights[:, :2].sum(axis=1) > 0.6).all()


@pytest.mark.slow
def test_who_has_not_reported_has_no_weight_and_changes_no_row():
    rng = np.random.default_rng(2)
    (first, second), _ = draw(rng, groups=2, clients=5)
    reported = jnp.array([True, True, False, True, True])
    there = np.flatnonzero(reported)
    weights = np.asarray(measured_rows(first, second.at[2].set(1e4), reported))
    np.testing.assert_array_equal(weights[there][:, 2], 0)
    few = measured_rows(first[there], second[there], jnp.ones(4, bool))
    np.testing.assert_allclose(weights[np.ix_(there, there)], few, atol=1e-4)


def test_halves_that_are_equal_give_finite_weights():
    models = {"w": jnp.array([[1.0, 2.0], [1.0, 2.0], [5.0, 5.0]])}
    weights = jax.jit(measured_rows)(models, models, jnp.ones(3, bool))
    np.testing.assert_allclose(weights, [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 1]], atol=1e-6)


def test_derivatives_in_reverse_mode_pass_by_clients_that_have_not_reported():
    rng = np.random.default_rng(0)
    costs = jnp.asarray(rng.random((4, 4)), jnp.float32)
    curvature = jnp.asarray(1 + rng.random(4), jnp.float32)

    def value(curvature, costs):
        return jnp.sum(fill_rows(costs, curvature)[:, 0] ** 2)

    absent = jnp.concatenate([costs, jnp.full((4, 1), jnp.inf)], axis=1)
    of_all = jax.grad(value)(jnp.append(curvature, 3.0), absent)
    np.testing.assert_allclose(of_all[:4], jax.grad(value)(curvature, costs), rtol=1e-5)
    assert of_all[4] == 0
