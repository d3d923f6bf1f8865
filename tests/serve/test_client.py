"""What a client lets out beside its upload, and the noise on it."""

import functools

import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flower_nodes import Nodes
from flwr.app import ArrayRecord, ConfigRecord
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
    first, second = (
        np.concatenate([x.numpy().ravel() for x in reply.content["arrays"].values()])
        for reply in (grid.app(message, grid.contexts[100]) for _ in range(2))
    )
    # The difference of two draws has sqrt(2) times their deviation, which is 5.
    assert 6 < (first - second).std() < 8


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
