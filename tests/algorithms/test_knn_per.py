"""kNN-Per: its neighbours are those of scikit-learn, and evaluation uses the client's examples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors
from toys import jit, made, make_evaluate, opposite_groups, predictors, quick_key

import jaxfl
from jaxfl.algorithms import knn_per
from jaxfl.kernels.neighbours import neighbour_labels
from jaxfl.models.mlp import mlp

K = 7
LAM = 0.6
SCALE = 0.8


def test_predictions_equal_scikit_learns_neighbours():
    """The features are those of a hidden layer; a client with few examples has fewer neighbours."""
    task = jaxfl.classification(mlp(2, hidden=(5,)), jnp.zeros(8))
    algorithm = knn_per(task, neighbours=K, lam=LAM, scale=SCALE)
    data = opposite_groups(clients=2, sizes=[40, 4], pad=2, rubbish=50.0)
    state = algorithm.init(quick_key(0), data.train)
    known = predictors(algorithm, state, data.train)
    found = jit(jax.vmap(algorithm.apply))(known, data.test.x)
    layers = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state.server)["params"]
    for i in range(2):
        own = np.asarray(data.train.mask[i])
        real = np.asarray(data.test.mask[i])
        x = np.asarray(data.train.x[i][own])
        y = np.asarray(data.train.y[i][own])
        query = np.asarray(data.test.x[i][real])

        def hidden(x):
            return np.maximum(x @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"], 0)

        k = min(K, len(x))
        distance, near = NearestNeighbors(n_neighbors=k).fit(hidden(x)).kneighbors(hidden(query))
        weight = np.exp(-(distance**2) / (5 * SCALE))
        by_neighbours = np.stack([(weight * (y[near] == c)).sum(axis=1) for c in (0, 1)], axis=1)
        by_neighbours /= by_neighbours.sum(axis=1, keepdims=True)
        logits = hidden(query) @ layers["Dense_1"]["kernel"] + layers["Dense_1"]["bias"]
        by_model = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        expected = LAM * by_neighbours + (1 - LAM) * by_model
        np.testing.assert_allclose(np.exp(found[i][real]), expected, atol=1e-5)


@pytest.mark.slow
def test_evaluation_recalls_before_and_after_fine_tuning():
    """The global model is zero, so only a client's own examples tell its classes apart."""
    data = opposite_groups(examples=80)
    algorithm = made(knn_per, steps=20)
    state = algorithm.init(quick_key(0), data.train)
    state = state._replace(server=jax.tree.map(jnp.zeros_like, state.server))
    task = jaxfl.classification(mlp(2, hidden=()), jnp.zeros(8), steps=20)
    bare = algorithm._replace(recall=None)
    with_memory, without = (
        make_evaluate(a, task)(quick_key(0), data, state, jnp.arange(6)) for a in (algorithm, bare)
    )
    assert with_memory.deployed.test.mean() > 0.8 > 0.6 > without.deployed.test.mean()
    assert np.abs(with_memory.fine_tuned.test - without.fine_tuned.test).max() > 0


def test_without_examples_there_are_no_neighbours():
    nothing = neighbour_labels(
        jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.ones(4, int), jnp.zeros(4, bool), 2, 3, 1.0
    )
    np.testing.assert_array_equal(nothing, 0)
