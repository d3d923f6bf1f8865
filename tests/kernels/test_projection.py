"""Projections against quadratic programs that SciPy solves, and their conditions of optimality."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from jaxfl.core.errors import InputError
from jaxfl.kernels.projection import capped_rows_by_jaxopt, project_capped_rows, project_rows


def solve(v, cap=None):
    """min |x - v|^2 on the simplex, x <= cap, by SciPy's sequential quadratic programming."""
    v = np.asarray(v, np.float64)
    found = minimize(
        lambda x: np.sum((x - v) ** 2),
        np.full(v.size, 1 / v.size),
        jac=lambda x: 2 * (x - v),
        bounds=[(0, None if cap is None else c) for c in (cap if cap is not None else v)],
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": lambda x: np.ones_like(x)},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return found.x


@pytest.mark.parametrize("seed", range(20))
def test_equals_a_quadratic_program_solver(seed):
    """pFedGraph's own problem, min x'x + (-2p - alpha s)'x, on random instances."""
    rng = np.random.default_rng(seed)
    clients = (2, 3, 7, 11)[seed % 4]
    p = rng.dirichlet(np.ones(clients))
    cosines = rng.uniform(-1, 1, size=(clients, clients))
    target = p + rng.uniform(0.1, 2) / 2 * cosines
    ours = project_rows(jnp.asarray(target, jnp.float32))
    np.testing.assert_allclose(ours, [solve(row) for row in target], atol=1e-5)


values = arrays(
    np.float32, st.sampled_from([(1, 1), (3, 2), (4, 11)]), elements=st.floats(-100, 100, width=32)
)


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(values)
def test_optimality_conditions(rows):
    """x is on the simplex; v - x is constant where x > 0 and no greater where x = 0."""
    x = np.asarray(project_rows(jnp.asarray(rows)), np.float64)
    assert x.min() >= 0
    np.testing.assert_allclose(x.sum(axis=1), 1, atol=2e-5)
    gap = rows.astype(np.float64) - x
    for gap_row, x_row in zip(gap, x, strict=True):
        shift = gap_row[x_row > 0]
        assert np.ptp(shift) < 1e-4
        assert gap_row.max() <= shift.max() + 1e-4


@pytest.mark.long(every=5)
@pytest.mark.parametrize("seed", range(10))
def test_capped_equals_a_quadratic_program_solver(seed):
    rng = np.random.default_rng(100 + seed)
    clients = (3, 5, 9)[seed % 3]
    rows = rng.normal(size=(3, clients))
    caps = rng.uniform(1.2 / clients, 0.9, size=(3, clients))
    ours = np.asarray(
        project_capped_rows(jnp.asarray(rows, jnp.float32), jnp.asarray(caps, jnp.float32))
    )
    np.testing.assert_allclose(
        ours, [solve(r, c) for r, c in zip(rows, caps, strict=True)], atol=1e-5
    )
    assert (ours <= caps + 1e-6).all()


def test_without_caps_both_solvers_agree():
    rows = jax.random.normal(jax.random.key(0), (5, 8))
    np.testing.assert_allclose(
        project_capped_rows(rows, jnp.ones_like(rows)), project_rows(rows), atol=1e-5
    )


def test_caps_that_leave_no_solution_are_raised_in_proportion():
    x = project_capped_rows(jnp.array([[5.0, 0.0, 0.0]]), jnp.array([[0.1, 0.2, 0.2]]))
    np.testing.assert_allclose(x, [[0.2, 0.4, 0.4]], atol=1e-6)


def test_the_projection_has_the_derivative_of_its_positive_weights():
    """Against differences of the solver's solutions; the last entry has no weight."""
    row = np.array([0.6, 0.2, 0.5, -2.0])
    cotangent = np.array([1.0, -2.0, 0.5, 3.0])
    grad = jax.grad(lambda r: project_rows(r[None])[0] @ jnp.asarray(cotangent, r.dtype))(
        jnp.asarray(row, jnp.float32)
    )
    step = 1e-3
    expected = [
        (solve(row + step * unit) - solve(row - step * unit)) @ cotangent / (2 * step)
        for unit in np.eye(4)
    ]
    np.testing.assert_allclose(grad, expected, atol=1e-4)


def test_the_projection_needs_no_sort():
    """XLA on CPU sorts the rows of 1,000 clients twenty times more slowly than NumPy."""
    program = jax.jit(project_rows).lower(jnp.ones((5, 3))).as_text()
    assert "sort" not in program


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e-6])
def test_capped_equals_jaxopt(scale):
    rng = np.random.default_rng(0)
    rows = jnp.asarray(scale * rng.normal(size=(40, 9)), jnp.float32)
    caps = jnp.asarray(rng.uniform(0.12, 0.9, size=(40, 9)), jnp.float32)
    expected = capped_rows_by_jaxopt(rows, caps)
    np.testing.assert_allclose(project_capped_rows(rows, caps), expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "caps"),
    [
        # No weight is free: all are 0 or at their caps, some of these with equal entries.
        ([3.0, 2.0, 0.0, -1.0], [0.5, 0.5, 0.5, 0.5]),
        ([3.0, 3.0, 0.0, -1.0], [0.5, 0.5, 0.5, 0.5]),
        ([3.0, 2.0, 0.0, -1.0], [1.0, 1.0, 1.0, 1.0]),
        ([0.1, 0.3, 0.2, 0.2], [0.2, 0.3, 0.25, 0.25]),
        # The cap 0 of entries above and below the threshold.
        ([0.3, 0.2, 0.9, -0.5], [1.0, 1.0, 0.0, 0.0]),
        ([0.3, 0.2, 0.9, -0.9], [0.5, 0.5, 0.0, 0.0]),
    ],
)
def test_the_derivative_of_the_capped_projection_at_a_kink_is_that_of_caps_that_grow(row, caps):
    def weights(caps):
        return project_capped_rows(jnp.array([row]), caps[None])[0]

    jacobian = jax.jacrev(weights)(jnp.array(caps))
    step = 1e-4
    change = [(solve(row, caps + step * unit) - solve(row, caps)) / step for unit in np.eye(4)]
    np.testing.assert_allclose(jacobian, np.transpose(change), atol=2e-3)
    np.testing.assert_allclose(jacobian.sum(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("by", ["rows", "caps"])
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_the_capped_projection_has_both_derivatives(by, mode):
    """Against differences of SciPy's solutions: weights at their caps, free ones, and one at 0."""
    row = np.array([2.0, 0.6, 0.3, 0.5, -2.0])
    caps = np.array([0.3, 0.25, 0.5, 0.5, 0.4])
    place = ("rows", "caps").index(by)

    def solution(*inputs):
        return project_capped_rows(*(jnp.asarray(x, jnp.float32)[None] for x in inputs))[0]

    jacobian = jax.jit(mode(solution, argnums=place))(jnp.float32(row), jnp.float32(caps))
    step = 1e-3
    expected = []
    for unit in step * np.eye(5):
        above, below = ((row + s * (1 - place) * unit, caps + s * place * unit) for s in (1, -1))
        expected.append((solve(*above) - solve(*below)) / (2 * step))
    np.testing.assert_allclose(jacobian, np.transpose(expected), atol=1e-3)
    assert np.abs(jacobian).max() > 0.4


@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev])
def test_jaxopts_projection_refuses_its_derivative(mode):
    caps = jnp.full((1, 3), 0.5)
    with pytest.raises(InputError, match="has no derivative: take solver='projection'"):
        mode(lambda rows: capped_rows_by_jaxopt(rows, caps))(jnp.ones((1, 3)))
