"""What a client lets out beside its upload, and the noise on it."""

import functools

import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flower_nodes import Nodes
from flwr.app import ArrayRecord, ConfigRecord
from scipy.stats import chi2
from served import CLIENTS, federation, method, strategy_of
from toys import shallow

from jaxfl.serve.client import client_app
from jaxfl.serve.client_half import client_of
from jaxfl.uplink import gaussian


@pytest.fixture(scope="module")
def noised():
    """A strategy and its nodes, whose uploads have noise with a secret of each node."""
    task = shallow(uplink=gaussian(clip=1.0, noise=5.0))
    algorithm = method("fedavg", task)
    data = functools.partial(client_of, federation())
    app = client_app(
        algorithm, task, data, secret=lambda context: jax.random.key(context.node_id % 1000)
    )
    return strategy_of(algorithm, task), Nodes(app, CLIENTS)


def test_the_noise_of_a_client_never_comes_twice(noised):
    strategy, grid = noised
    message = strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)[0]
    replies = [grid.app(message, grid.contexts[100]).content["arrays"] for _ in range(20)]
    uploads = [np.concatenate([x.numpy().ravel() for x in arrays.values()]) for arrays in replies]
    differences = np.concatenate([uploads[i] - uploads[i + 1] for i in range(0, 20, 2)])

    # A difference of two draws has twice their variance, 5^2. The machine's own random bits choose
    # the draws, so the bounds are those of one failure in a thousand million runs.
    low, high = chi2.ppf([0.5e-9, 1 - 0.5e-9], len(differences))
    assert low < np.sum(differences**2) / (2 * 5**2) < high


def test_a_client_with_noise_tells_neither_its_loss_nor_its_scores(noised):
    strategy, grid = noised
    for message in (
        strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)[0],
        strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), grid)[0],
    ):
        metrics = grid.app(message, grid.contexts[100]).content["metrics"]
        assert list(metrics) == ["num-examples"]
    replies = grid.send_and_receive(
        strategy.configure_evaluate(1, ArrayRecord(), ConfigRecord(), grid)
    )
    assert dict(strategy.aggregate_evaluate(1, replies)) == {"clients": CLIENTS}
    assert np.isnan(strategy.scores[-1].test).all()
