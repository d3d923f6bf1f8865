"""pFedCCG's quadratic program and its template beside SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import jensenshannon

from jaxfl.kernels.reversible import (
    label_similarity,
    reversible_rows,
    strength_of_round,
    transport_plan,
)


def solve(gain, q):
    """min sum K_ij^2 / q_i - 2 sum g_ij K_ij over symmetric K >= 0 with K 1 = q, by SciPy."""
    upper = np.triu_indices(len(q))

    def whole(entries):
        plan = np.zeros((len(q), len(q)))
        plan[upper] = entries
        return np.triu(plan, 1).T + plan

    def cost(entries):
        plan = whole(entries)
        return (plan**2 / q[:, None]).sum() - 2 * (gain * plan).sum()

    def gradient(entries):
        each = 2 * whole(entries) / q[:, None] - 2 * gain
        return (each + np.tril(each, -1).T)[upper]

    found = minimize(
        cost,
        np.outer(q, q)[upper],
        jac=gradient,
        bounds=[(0, None)] * len(upper[0]),
        constraints={"type": "eq", "fun": lambda entries: whole(entries).sum(axis=1) - q},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    # It may stop where rounding hides any progress; the constraints hold in any case.
    np.testing.assert_allclose(whole(found.x).sum(axis=1), q, atol=1e-9)
    return whole(found.x)


def instance(seed):
    """A template, shares of the data and a strength for 3 to 10 clients."""
    rng = np.random.default_rng(seed)
    clients = 3 + seed % 8
    counts = rng.multinomial(50, rng.dirichlet(np.full(5, 0.3), size=clients))
    q = rng.dirichlet(np.full(clients, 2.0))
    return counts, q, (0.2, 0.4, 1.0, 4.0)[seed % 4]


@pytest.mark.long(every=4)
@pytest.mark.parametrize("seed", range(8))
def test_the_plan_equals_a_quadratic_program_solver(seed):
    """3 to 10 clients; others without examples fill ten places, so that one program serves all."""
    counts, q, strength = instance(seed)
    more = (0, 10 - q.size)
    similarity = label_similarity(jnp.asarray(np.pad(counts, (more, (0, 0)))))
    sizes = jnp.float32(np.pad(1000 * q, more))
    weights = np.asarray(reversible_rows(similarity, sizes, jnp.float32(strength)))
    known = np.asarray(similarity, np.float64)[: q.size, : q.size]
    plan = solve(strength * known, q)
    np.testing.assert_allclose(weights[: q.size, : q.size], plan / q[:, None], atol=1e-5)


def test_the_weights_are_reversible_and_keep_the_mean_of_the_models():
    counts, q, _ = instance(7)
    weights = np.asarray(
        reversible_rows(label_similarity(jnp.asarray(counts)), jnp.float32(q), 1.0), np.float64
    )
    flow = q[:, None] * weights
    np.testing.assert_allclose(flow, flow.T, atol=1e-6)
    np.testing.assert_allclose(q @ weights, q, atol=1e-6)
    assert (weights == 0).any()


def test_the_template_is_one_less_the_divergence_of_scipy():
    counts, _, _ = instance(7)
    shares = counts / counts.sum(axis=1, keepdims=True)
    expected = [[1 - jensenshannon(a, b, base=2) ** 2 for b in shares] for a in shares]
    np.testing.assert_allclose(label_similarity(jnp.asarray(counts)), expected, atol=1e-5)


@pytest.mark.slow
def test_a_client_without_examples_takes_no_part():
    counts, q, strength = instance(3)
    similarity = label_similarity(jnp.asarray(counts))
    sizes = jnp.float32(np.where(np.arange(q.size) == 1, 0, q))
    weights = np.asarray(reversible_rows(similarity, sizes, strength))
    rest = np.delete(np.arange(q.size), 1)
    few = reversible_rows(similarity[rest][:, rest], jnp.float32(q[rest]), strength)
    np.testing.assert_allclose(weights[np.ix_(rest, rest)], few, atol=1e-6)
    np.testing.assert_array_equal(weights[1], np.eye(q.size)[1])
    assert not weights[rest, 1].any()


@pytest.mark.slow
def test_the_plan_has_the_derivative_of_the_solutions():
    """Against differences of SciPy's solutions along a change of the gain and of the shares."""
    counts, q, strength = instance(5)
    rng = np.random.default_rng(0)
    gain = strength * np.asarray(label_similarity(jnp.asarray(counts)), np.float64)
    change = rng.normal(size=gain.shape)
    change = change + change.T
    moved = rng.normal(size=q.size) * q
    moved = moved - q * moved.sum()
    step = 1e-4
    expected = (
        solve(gain + step * change, q + step * moved)
        - solve(gain - step * change, q - step * moved)
    ) / (2 * step)
    arguments = (jnp.float32(gain), jnp.float32(q))
    _, found = jax.jvp(transport_plan, arguments, (jnp.float32(change), jnp.float32(moved)))
    np.testing.assert_allclose(found, expected, atol=1e-3)
    backward = jax.grad(lambda g: (transport_plan(g, arguments[1]) ** 2).sum())(arguments[0])
    forward = jax.jvp(
        lambda g: (transport_plan(g, arguments[1]) ** 2).sum(),
        arguments[:1],
        (jnp.float32(change),),
    )[1]
    np.testing.assert_allclose((np.asarray(backward) * change).sum(), forward, rtol=1e-3)


def test_the_strength_grows_by_half_up_to_the_middle():
    strengths = [float(strength_of_round(t, 0.2, 0.2, 25, 7)) for t in (0, 25, 200)]
    np.testing.assert_allclose(strengths, [0.2 + 0.2 / (1 + np.exp(25 / 7)), 0.3, 0.4], rtol=1e-5)
