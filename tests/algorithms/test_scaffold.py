"""SCAFFOLD on least squares with different curvatures, where FedAvg misses the common optimum."""

import numpy as np
import optax
import pytest
from toys import deployed, federation, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, scaffold
from jaxfl.core import tree
from jaxfl.models.mlp import mlp

STEPS = 8
RATE = 0.05
CLIENTS = 3
rng = np.random.default_rng(0)
X = rng.normal(size=(CLIENTS, 8, 2)).astype(np.float32) * np.array(
    [[[2, 0.5]], [[0.5, 2]], [[1, 1]]], np.float32
)
Y = (X @ np.array([1, -1], np.float32) + 2 * rng.normal(size=(CLIENTS, 1))).astype(np.float32)
DATA = federation(list(X), list(Y))
# The column of ones for the bias comes first, as the bias does among the leaves.
FULL = np.concatenate([np.ones((CLIENTS, 7, 1)), X[:, :7].astype(np.float64)], axis=2)
# A batch holds all seven training examples of a client.
TASK = jaxfl.regression(
    mlp(1, hidden=()), np.zeros(2), steps=STEPS, batch_size=8, optimizer=optax.sgd(RATE)
)


def gradient(client, w):
    return 2 * FULL[client].T @ (FULL[client] @ w - Y[client, :7]) / 7


def flat(model):
    return np.asarray(tree.ravel(tree.broadcast(model, 1)), np.float64)[0]


@pytest.mark.parametrize("option", ["I", "II"])
def test_rounds_of_some_clients_equal_numpy_written_from_the_paper(option):
    """Plain SGD with rate eta and K steps, so that K eta is what option II divides by."""
    cohorts = np.array([[0, 1], [1, 2], [0, 2]])
    algorithm = scaffold(TASK, option=option, server_rate=0.8)
    start = algorithm.init(quick_key(0), DATA.train)
    state, info, _ = run(
        algorithm,
        DATA,
        3,
        state=start,
        participation=jaxfl.participation.schedule(cohorts),
    )
    x = flat(start.server.model)
    c = np.zeros(3)
    own = np.zeros((CLIENTS, 3))
    for cohort in cohorts:
        models = []
        changes = []
        for i in cohort:
            y = x
            for _ in range(STEPS):
                y = y - RATE * (gradient(i, y) - own[i] + c)
            models.append(y - x)
            new = gradient(i, x) if option == "I" else own[i] - c + (x - y) / (STEPS * RATE)
            changes.append(new - own[i])
        for i, change in zip(cohort, changes, strict=True):
            own[i] += change
        x = x + 0.8 * np.mean(models, axis=0)
        c = c + np.sum(changes, axis=0) / CLIENTS
    np.testing.assert_allclose(flat(state.server.model), x, atol=1e-5)
    np.testing.assert_allclose(flat(state.server.control), c, atol=1e-5)
    np.testing.assert_allclose(tree.ravel(state.clients.memory), own, atol=1e-5)
    assert info.batches.tolist() == [[STEPS + (option == "I")] * 2] * 3
    assert info.up.tolist() == info.down.tolist() == [[6] * 2] * 3


def test_it_finds_the_optimum_that_fedavg_misses():
    normal = sum(FULL[i].T @ FULL[i] for i in range(CLIENTS))
    right = sum(FULL[i].T @ Y[i, :7] for i in range(CLIENTS))
    best = np.linalg.solve(normal, right)
    found = [
        tree.ravel(deployed(m, run(m, DATA, 80)[0], 1))[0] for m in (scaffold(TASK), fedavg(TASK))
    ]
    np.testing.assert_allclose(found[0], best, atol=1e-3)
    assert np.abs(found[1] - best).max() > 0.05


def test_with_momentum_option_ii_takes_the_mean_gradient_that_the_steps_followed():
    """A loss whose gradient is g everywhere: the control variate is g, whatever the momentum."""
    task = jaxfl.regression(
        mlp(1, hidden=()), np.zeros(2), steps=5, batch_size=8, optimizer=optax.sgd(0.1, 0.9)
    )
    constant = task._replace(
        problem=task.problem._replace(error=lambda prediction, y: 3.0 * prediction[:, 0])
    )
    state, _, _ = run(scaffold(constant), DATA, 1)
    mean_input = FULL.mean(axis=1)  # bias first
    np.testing.assert_allclose(tree.ravel(state.clients.memory), 3.0 * mean_input, rtol=1e-4)
    given = scaffold(constant, local_rate=0.5)
    half, _, _ = run(given, DATA, 1)
    # Five steps of rate .1 and momentum .9 go .1 (1 + 1.9 + 2.71 + 3.439 + 4.0951) far.
    ratio = 0.1 * (1 + 1.9 + 2.71 + 3.439 + 4.0951) / 0.5
    np.testing.assert_allclose(tree.ravel(half.clients.memory), ratio * 3.0 * mean_input, rtol=1e-4)


def test_clipping_of_examples_does_not_shorten_the_distance_that_option_ii_divides_by():
    """No example's gradient is as long as the clip here, but a gradient of 1 would be longer."""
    task = jaxfl.regression(
        mlp(1, hidden=()),
        np.zeros(2),
        steps=5,
        batch_size=8,
        optimizer=optax.sgd(0.1),
        example_clip=0.5,
    )
    constant = task._replace(
        problem=task.problem._replace(error=lambda prediction, y: 0.05 * prediction[:, 0])
    )
    assert 0.05 * np.linalg.norm(FULL, axis=-1).max() < 0.5
    state, _, _ = run(scaffold(constant), DATA, 1)
    np.testing.assert_allclose(
        tree.ravel(state.clients.memory), 0.05 * FULL.mean(axis=1), atol=1e-6
    )


def test_the_servers_control_variate_stays_the_clients_mean_if_one_does_not_report():
    spoilt = DATA._replace(train=DATA.train._replace(x=DATA.train.x.at[1].set(np.nan)))
    state, _, _ = run(scaffold(TASK), spoilt, 2)
    controls = np.asarray(tree.ravel(state.clients.memory))
    np.testing.assert_allclose(
        flat(state.server.control), controls.mean(axis=0), rtol=1e-5, atol=1e-5
    )
    assert not controls[1].any()
    assert controls[0].any()
