"""The servers' matrices against loops written from the equations (14), (15), (17), (18)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxfl.graphs.topology import erdos_renyi, ring
from jaxfl.kernels import consensus, coupling
from jaxfl.kernels.mixing import mix

S, Q, D = 5, 3, 4
PAIRS = np.random.default_rng(5).uniform(0, 2, size=(Q, Q))


def loops(uploads, cells, before, adjacency, tau):
    """Server by server, cluster by cluster -> u after (15) and w after (18), [S, Q, D]."""
    v, u, x, w = (np.zeros((S, Q, D)) for _ in range(4))
    for s in range(S):
        for q in range(Q):
            own = [upload for upload, cell in zip(uploads, cells, strict=True) if cell == s * Q + q]
            v[s, q] = sum(own) / len(own) if own else before[s, q]
    for s in range(S):
        for q in range(Q):
            others = [r for r in range(Q) if r != q]
            u[s, q] = (v[s, q] + sum(tau[q, r] * v[s, r] for r in others)) / (
                1 + sum(tau[q, r] for r in others)
            )
    for s in range(S):
        near = [t for t in range(S) if adjacency[s, t]]
        for q in range(Q):
            x[s, q] = (u[s, q] + sum(u[t, q] for t in near)) / (len(near) + 1)
            foreign = [(r, t) for r in range(Q) if r != q for t in near]
            w[s, q] = x[s, q] + sum(tau[q, r] * u[t, r] for r, t in foreign)
            w[s, q] /= 1 + sum(tau[q, r] for r, _ in foreign)
    return u, w


@pytest.mark.parametrize("tau", [0.0, 0.5, 3, PAIRS])
@pytest.mark.parametrize(
    "edges", [ring(S), erdos_renyi(S, 2.0, seed=1), np.zeros((S, S), np.float32)]
)
def test_a_round_of_the_servers_equals_loops(tau, edges):
    rng = np.random.default_rng(0)
    cells = rng.integers(S * Q, size=14)
    assert len(set(cells)) < S * Q  # some cells have no report
    uploads = rng.normal(size=(14, D))
    before = rng.normal(size=(S, Q, D))
    strengths = np.broadcast_to(tau, (Q, Q))
    rows = consensus.server_round(
        jnp.asarray(cells), jnp.asarray(edges), jnp.asarray(tau, float), Q
    )
    stack = jnp.concatenate([uploads, before.reshape(-1, D)])
    for weights, expected in zip(
        rows, loops(uploads, cells, before, edges, strengths), strict=True
    ):
        np.testing.assert_allclose(mix(weights, stack), expected.reshape(-1, D), atol=1e-5)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
        assert weights.min() >= 0


def test_without_coupling_and_edges_every_cell_is_alone():
    cells = jnp.array([0, 0, 4])
    u, w = consensus.server_round(cells, jnp.zeros((2, 2)), 0.0, 3)
    np.testing.assert_array_equal(u, w)
    expected = np.zeros((6, 3 + 6))
    expected[0, :2] = 0.5
    expected[4, 2] = 1
    for silent in (1, 2, 3, 5):
        expected[silent, 3 + silent] = 1
    np.testing.assert_array_equal(w, expected)


def test_weights_of_uploads_leave_out_models_of_the_round_before():
    rows = jnp.array([[0.2, 0.2, 0.6, 0.0], [0.0, 0.5, 0.1, 0.4]])
    np.testing.assert_allclose(consensus.upload_weights(rows), [[0.5, 0.5], [0, 1]], atol=1e-6)


def test_disagreement_is_the_spread_over_servers():
    models = np.random.default_rng(1).normal(size=(S, Q, 2, 3))
    spread = [
        np.linalg.norm(models[s, q] - models[:, q].mean(axis=0)) ** 2
        for s in range(S)
        for q in range(Q)
    ]
    tree = {"a": jnp.asarray(models[..., :1]), "b": jnp.asarray(models[..., 1:])}
    np.testing.assert_allclose(consensus.disagreement(tree), np.sqrt(np.mean(spread)), rtol=1e-5)


@pytest.mark.parametrize("pairs", [False, True])
def test_a_learned_strength_goes_down_its_loss_and_stays_positive(pairs):
    target = jnp.asarray(PAIRS) if pairs else jnp.asarray(0.03)
    learner = coupling.init("learned_pairs" if pairs else "learned", Q)
    np.testing.assert_allclose(coupling.strength(learner), 0.5, rtol=1e-5)
    step = jax.jit(lambda now: coupling.update(now, 2 * (coupling.strength(now) - target), 0.05))
    for _ in range(300):
        learner = step(learner)
        assert coupling.strength(learner).min() > 0
    np.testing.assert_allclose(coupling.strength(learner), target, atol=0.02)
    off = np.broadcast_to(target, (Q, Q))[~np.eye(Q, dtype=bool)]
    np.testing.assert_allclose(coupling.mean(coupling.strength(learner), Q), off.mean(), atol=0.02)
