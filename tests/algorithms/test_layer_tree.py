"""A tree of clients by layer, beside SciPy's linkage and NumPy's means."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from perceptron import DATA, SIZES
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from toys import run

import jaxfl
from jaxfl.algorithms import layer_tree
from jaxfl.core import tree
from jaxfl.testing.federations import federation

TASK = jaxfl.classification(
    jaxfl.models.mlp(3, hidden=(5, 5)),
    jnp.zeros(4),
    steps=2,
    batch_size=4,
    optimizer=optax.sgd(0.3),
)
LAYERS = ("Dense_0", "Dense_1", "Dense_2")


def many(clients):
    """Clients with a few examples each."""
    rng = np.random.default_rng(0)
    sizes = 2 + np.arange(clients) % 3
    x = [rng.normal(size=(n, 4)).astype(np.float32) for n in sizes]
    return federation(x, [rng.integers(0, 3, n).astype(np.int32) for n in sizes]), sizes


def test_each_layer_is_the_mean_of_its_clusters_and_clusters_lie_in_clusters():
    data, sizes = many(9)
    state, info, _ = run(layer_tree(TASK, groups=5), data, 1)
    # What the clients sent is what they train from the same start alone.
    alone, _, _ = run(jaxfl.algorithms.local(TASK), data, 1)
    first = jax.tree.map(lambda x: x[None], state.server)
    flat = np.asarray(tree.ravel(alone.clients.memory)) - np.asarray(tree.ravel(first))
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    scipy_tree = linkage(squareform(1 - unit @ unit.T, checks=False), "average")
    for layer, clusters in zip(LAYERS, (1, 3, 5), strict=True):
        of = fcluster(scipy_tree, clusters, "maxclust")
        weights = (of[:, None] == of[None]) * sizes[None]
        weights = weights / weights.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(info.weights[layer][0], weights, atol=1e-6)
        sent = np.asarray(alone.clients.memory["params"][layer]["kernel"])
        found = state.clients.memory["params"][layer]["kernel"]
        np.testing.assert_allclose(found, np.einsum("ij,jkl->ikl", weights, sent), atol=1e-5)


def test_with_one_group_it_is_fedavg():
    state, _, _ = run(layer_tree(TASK, groups=1), DATA, 2)
    expected, _, _ = run(jaxfl.algorithms.fedavg(TASK), DATA, 2)
    for found, one in zip(
        jax.tree.leaves(state.clients.memory), jax.tree.leaves(expected.server), strict=True
    ):
        np.testing.assert_allclose(found, np.broadcast_to(one, found.shape), atol=1e-6)


def test_more_groups_than_clients_leave_each_its_own_head():
    _, info, _ = run(layer_tree(TASK, groups=30), DATA, 1)
    np.testing.assert_array_equal(info.weights["Dense_2"][0], np.eye(3))
    np.testing.assert_allclose(info.weights["Dense_0"][0, 0], SIZES / SIZES.sum(), rtol=1e-6)
