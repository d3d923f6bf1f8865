"""pFedSim: a round after the warm-up beside NumPy."""

import jax
import numpy as np
from toys import deployed, opposite_groups, run, shallow

from jaxfl.algorithms import fedavg, pfedsim
from jaxfl.core import tree

SIZES = [40, 25, 31, 40]
DATA = opposite_groups(clients=4, sizes=SIZES)


def parts(model):
    """Each client's head and body as rows, in float64."""
    head, body = tree.split(model, "Dense_1")
    return [np.asarray(tree.ravel(part), np.float64) for part in (head, body)]


def test_it_is_fedavg_in_the_warm_up_and_then_mixes_bodies_by_heads():
    algorithm = pfedsim(shallow(), warmup=2)
    state, info, _ = run(algorithm, DATA, 2)
    expected, told, _ = run(fedavg(shallow()), DATA, 2)
    for one, other in zip(
        jax.tree.leaves(state.server.model), jax.tree.leaves(expected.server), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(info.weights["head"], told.weights, atol=1e-6)
    state, info, _ = run(algorithm, DATA, 1, state=state, start=2)
    heads, bodies = parts(state.clients.memory)
    weights = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            cosine = heads[i] @ heads[j] / np.linalg.norm(heads[i]) / np.linalg.norm(heads[j])
            near = 0.9999 if i == j else min(max(cosine, 0), 0.9999)
            weights[i, j] = -np.log(1 - near)
        weights[i] /= weights[i].sum()
    assert (weights - np.diag(np.diag(weights))).max() > 0.05
    np.testing.assert_allclose(info.weights["body"][0], weights, atol=1e-4)
    np.testing.assert_array_equal(info.weights["head"][0], np.eye(4))
    start_heads, start_bodies = parts(state.clients.record.model)
    np.testing.assert_allclose(start_heads, heads, atol=1e-6)
    np.testing.assert_allclose(start_bodies, weights @ bodies, atol=1e-4)
    served = parts(deployed(algorithm, state, 4))
    np.testing.assert_allclose(served[1], bodies, atol=1e-6)
