"""FedSem: rounds equal NumPy from the models that were trained; from k-means in the first."""

import jax
import jax.numpy as jnp
import numpy as np
from toys import linear, made, opposite_groups, run

import jaxfl
from jaxfl import tree
from jaxfl.algorithms import fedsem, local

CLUSTERS = 2


def test_rounds_equal_numpy_from_the_trained_models():
    """Three of four clients a round. The first finds the two groups; later ones move centres step by step."""
    cohorts = np.array([[0, 1, 2], [1, 2, 3], [0, 2, 3]])
    data, key = opposite_groups(clients=4), jax.random.key(5)
    algorithm, alone = fedsem(linear(), clusters=CLUSTERS), made(local)
    state = algorithm.init(jax.random.key(0), data.train)
    for number, ids in enumerate(cohorts):
        one = jaxfl.participation.schedule(cohorts)
        before = state
        state, info, _ = run(
            algorithm, data, 1, key=key, participation=one, state=state, start=number
        )
        begin = alone.init(key, data.train)._replace(
            clients=algorithm.models(before, jnp.arange(4))
        )
        trained = run(alone, data, 1, key=key, participation=one, state=begin, start=number)[
            0
        ].clients
        models = np.asarray(tree.ravel(trained), np.float64)[ids]
        centres = np.asarray(tree.ravel(before.server.centres), np.float64)
        if number == 0:
            mine = np.array([0, 1, 0])  # even and odd clients are opposite
        else:
            mine = np.array([np.argmin([np.sum((m - c) ** 2) for c in centres]) for m in models])
        assert state.clients[ids].tolist() == mine.tolist()
        for k in range(CLUSTERS):
            if (mine == k).any():
                centres[k] = models[mine == k].mean(axis=0)
        np.testing.assert_allclose(tree.ravel(state.server.centres), centres, atol=1e-5)
        same = mine[:, None] == mine[None]
        np.testing.assert_allclose(info.weights[0], same / same.sum(axis=1, keepdims=True))
    assert before.clients[1] == state.clients[1]
