"""IFCA: planted clusters are found, and rounds equal NumPy applied to the trained models."""

import jax
import jax.numpy as jnp
import numpy as np
from toys import full, jit, linear, made, make_rounds, opposite_groups, quick_key, run

from jaxfl.algorithms import ifca, local
from jaxfl.core import tree
from jaxfl.core.messages import Clients


def test_planted_clusters_are_found():
    data = opposite_groups()
    _, info, _ = run(ifca(linear(steps=20), clusters=2), data, 4)
    same = np.arange(6)[:, None] % 2 == np.arange(6)[None] % 2
    np.testing.assert_allclose(info.weights[-1], same / 3, rtol=1e-6)
    assert info.up.tolist() == [[19] * 6] * 4
    assert info.down.tolist() == [[18 * 2] * 6] * 4


def test_a_round_equals_numpy_from_the_trained_models():
    """Five clusters for four clients: at least one is empty, and keeps its model."""
    sizes = [40, 25, 12, 30]
    data = opposite_groups(clients=4, sizes=sizes)
    task = linear()
    algorithm = ifca(task, clusters=5)
    state = algorithm.init(quick_key(2), data.train)
    after, (info, _) = make_rounds(algorithm, full(4))(quick_key(0), data, state, 0, 1)

    params = [
        jax.tree.map(lambda leaf, k=k: np.asarray(leaf[k], np.float64), state.server)
        for k in range(5)
    ]
    chosen = []
    for i in range(4):
        x = np.asarray(data.train.x[i], np.float64)
        y = np.asarray(data.train.y[i])
        real = np.asarray(data.train.mask[i])
        losses = []
        for model in params:
            dense = model["params"]["Dense_0"]
            logits = x[real] @ dense["kernel"] + dense["bias"]
            losses.append(
                np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(real.sum()), y[real]])
            )
        chosen.append(int(np.argmin(losses)))
    assert 1 < len(set(chosen)) < 4
    assert after.clients == Clients()
    received = [int(np.flatnonzero(row)[0]) for row in np.asarray(info.weights[0])]
    assert [chosen[sender] for sender in received] == chosen

    # Each client trains from the model that it chose.
    alone = made(local)
    start = alone.init(quick_key(2), data.train)._replace(
        clients=Clients(tree.take(state.server, jnp.array(chosen)))
    )
    trained = tree.ravel(run(alone, data, 1, state=start)[0].clients.memory)
    for k in range(5):
        members = np.array(chosen) == k
        expected = trained[members].mean(axis=0) if members.any() else tree.ravel(state.server)[k]
        np.testing.assert_allclose(jit(tree.ravel)(after.server)[k], expected, atol=1e-6)
        if members.any():
            np.testing.assert_allclose(
                info.weights[0][members], np.tile(members / members.sum(), (members.sum(), 1))
            )
