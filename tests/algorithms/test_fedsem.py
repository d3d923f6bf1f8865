"""FeSEM: rounds equal NumPy applied to the trained models; the first round is k-means."""

import numpy as np
import pytest
from toys import deployed, linear, made, opposite_groups, quick_key, run

import jaxfl
from jaxfl.algorithms import fedsem, local
from jaxfl.core import tree
from jaxfl.core.messages import Clients

CLUSTERS = 2


@pytest.mark.slow
def test_rounds_equal_numpy_from_the_trained_models():
    """Three of four clients a round; the first round finds the groups, the others move centres."""
    cohorts = np.array([[0, 1, 2], [1, 2, 3], [0, 2, 3]])
    data = opposite_groups(clients=4)
    key = quick_key(5)
    algorithm = fedsem(linear(), clusters=CLUSTERS)
    alone = made(local)
    state = algorithm.init(quick_key(0), data.train)
    one = jaxfl.participation.schedule(cohorts)
    for number, ids in enumerate(cohorts):
        before = state
        state, info, _ = run(
            algorithm, data, 1, key=key, participation=one, state=state, start=number
        )
        begin = alone.init(key, data.train)._replace(
            clients=Clients(deployed(algorithm, before, 4, data))
        )
        trained, *_ = run(alone, data, 1, key=key, participation=one, state=begin, start=number)
        models = np.asarray(tree.ravel(trained.clients.memory), np.float64)[ids]
        centres = np.asarray(tree.ravel(before.server.centres), np.float64)
        if number == 0:
            # Even and odd clients are opposite.
            cluster = np.array([0, 1, 0])
        else:
            cluster = np.array([np.argmin([np.sum((m - c) ** 2) for c in centres]) for m in models])
        assert state.clients.record[ids].tolist() == cluster.tolist()
        for k in range(CLUSTERS):
            if (cluster == k).any():
                centres[k] = models[cluster == k].mean(axis=0)
        np.testing.assert_allclose(tree.ravel(state.server.centres), centres, atol=1e-5)
        same = cluster[:, None] == cluster[None]
        np.testing.assert_allclose(info.weights[0], same / same.sum(axis=1, keepdims=True))
    assert before.clients.record[1] == state.clients.record[1]
