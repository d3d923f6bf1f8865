"""FedAMP and HeurFedAMP: rounds equal closed forms, with weights written from the paper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import (
    deployed,
    federation,
    full,
    jit,
    linear,
    make_rounds,
    opposite_groups,
    quadratic,
    quick_key,
    run,
)

from jaxfl.algorithms import fedamp, heurfedamp
from jaxfl.kernels.amp import attentive, heuristic

SIGMA = 3.0


def paper_weights(w, alpha):
    """xi_ij = alpha A'(|w_i - w_j|^2), with A(x) = 1 - exp(-x / sigma)."""
    xi = np.zeros((len(w), len(w)))
    for i in range(len(w)):
        for j in range(len(w)):
            if i != j:
                xi[i, j] = alpha * np.exp(-np.sum((w[i] - w[j]) ** 2) / SIGMA) / SIGMA
        xi[i, i] = 1 - xi[i].sum()
    return xi


def heuristic_weights(moved, own):
    xi = np.full((len(moved), len(moved)), own)
    for i, a in enumerate(moved):
        e = [np.exp(SIGMA * a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for b in moved]
        for j in range(len(moved)):
            if i != j:
                xi[i, j] = (1 - own) * e[j] / (sum(e) - e[i])
    return xi


def test_heurfedamp_takes_a_measure_of_ones_own():
    """Minus the squared distance over sigma: a softmax of it is FedAMP's A', normalised."""
    data = opposite_groups()
    squares = []

    def mine(stacked):
        rows = jnp.concatenate([x.reshape(len(x), -1) for x in jax.tree.leaves(stacked)], axis=1)
        squares.append(-jnp.sum((rows[:, None] - rows[None]) ** 2, axis=-1))
        return squares[-1]

    algorithm = heurfedamp(linear(), measure=mine, similarity="raw", sigma=0.5, own=0.25)
    first, _, _ = run(algorithm, data, 1)
    _, info, _ = run(algorithm, data, 1, state=first, start=1)
    models = np.concatenate(
        [np.asarray(x).reshape(6, -1) for x in jax.tree.leaves(first.clients.memory.model)], axis=1
    )
    expected = np.exp(-0.5 * np.square(models[:, None] - models[None]).sum(axis=-1))
    np.fill_diagonal(expected, 0)
    expected *= 0.75 / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(info.weights[0], expected + 0.25 * np.eye(6), atol=1e-5)


@pytest.mark.parametrize("heuristically", [False, True])
def test_rounds_equal_the_closed_form(heuristically):
    """If all examples of a client are x, its optimum with attraction k is (x + k u) / (1 + k)."""
    x = np.array([[1.0, 0.0, 0.2], [0.9, 0.3, 0.0], [-1.0, 0.5, 0.0]])
    data = federation(
        [np.tile(row, (10, 1)).astype(np.float32) for row in x], [np.zeros(10, np.int32)] * 3
    )
    task = quadratic(steps=150)
    alpha = 0.8
    lam = 0.6
    own = 0.4
    if heuristically:
        algorithm = heurfedamp(task, own=own, sigma=SIGMA, lam=lam)
    else:
        algorithm = fedamp(task, alpha=alpha, sigma=SIGMA, lam=lam)
    start = jit(algorithm.init)(quick_key(1), data.train)
    state, (info, _) = make_rounds(algorithm, full(3))(quick_key(0), data, start, 0, 3)
    initial = np.asarray(start.clients.memory.model["w"][0], np.float64)
    # Before the first round the server has received nothing: the own model takes the place of u.
    weights = np.eye(3)
    w = np.tile(initial, (3, 1))
    pull = lam / alpha
    for number in range(3):
        if heuristically:
            pull = lam * (number > 0)
        np.testing.assert_allclose(info.weights[number], weights, atol=1e-5)
        w = (x + pull * weights @ w) / (1 + pull)
        weights = heuristic_weights(w - initial, own) if heuristically else paper_weights(w, alpha)
    np.testing.assert_allclose(deployed(algorithm, state, 3)["w"], w, atol=1e-5)


def test_weights_of_equal_models_and_of_a_single_client_sum_to_one():
    many = attentive(jnp.zeros((5, 5)), 100.0, 1.0)
    np.testing.assert_allclose(many, (1 - np.eye(5)) / 4, atol=1e-6)
    np.testing.assert_allclose(heuristic(jnp.ones((1, 1)), 0.3, 10.0), [[1.0]])
