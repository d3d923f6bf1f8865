"""What a client lets out beside its upload, and the noise on it."""

import functools

import jax
import numpy as np
import pandas
import pytest

pytest.importorskip("flwr", reason="needs the extra flower: pip install 'jaxfl[flower]'")

from flower_nodes import Nodes
from flwr.app import ArrayRecord, ConfigRecord
from scipy.stats import chi2
from served import CLIENTS, federation, method, strategy_of
from sklearn.metrics import roc_auc_score
from toys import shallow

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.data import from_table, table_schema, table_summary
from jaxfl.serve.client import client_app, read_model
from jaxfl.serve.client_half import client_of
from jaxfl.serve.flower import FlowerStrategy
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


@pytest.mark.slow(seconds=15)
def test_nodes_with_tables_of_their_own_predict_after_the_rounds(tmp_path):
    """Each node turns its table into features, and its model has the AUC that the server logs."""
    rng = np.random.default_rng(0)
    tables = []
    for rows in (60, 45, 30):
        age, ward = rng.normal(60, 10, rows), rng.choice(["ICU", "surgery"], rows)
        ill = rng.random(rows) < 1 / (1 + np.exp(-(age - 60) / 5 - (ward == "ICU")))
        tables.append(pandas.DataFrame({"age": age, "ward": ward, "ill": ill}))
    told = {str(site): table_summary(table, "ill") for site, table in enumerate(tables)}
    schema = table_schema(told)

    @functools.cache
    def data(client):
        source = from_table(tables[client], schema)
        return jaxfl.data.federate(source, [rng.permutation(len(source.y_train))], test="own")

    example = (np.zeros(3, np.float32), np.int32(0))
    task = jaxfl.classification(jaxfl.models.linear(2), example[0], steps=5, batch_size=8)
    algorithm = jaxfl.algorithms.ditto(task)
    app = client_app(algorithm, task, data, directory=tmp_path, metric="auc")
    keys = {"key": jax.random.key(5), "init_key": jax.random.key(1)}
    everyone = jaxfl.participation.full(3)
    strategy = FlowerStrategy(algorithm, task, everyone, clients=3, example=example, **keys)
    strategy.start(Nodes(app, 3), num_rounds=2)
    for client, score in enumerate(strategy.scores[-1].test):
        test = data(client).test
        rows = np.asarray(test.mask[0]) > 0
        model = read_model(tmp_path / f"{client}-model.npz")
        logits = algorithm.apply(model, test.x[0][rows])
        found = roc_auc_score(np.asarray(test.y[0])[rows], logits[:, 1] - logits[:, 0])
        assert found == pytest.approx(score, abs=1e-6)


def test_an_unknown_metric_is_refused():
    with pytest.raises(InputError, match="metric"):
        client_app(method("fedavg"), shallow(), data=None, metric="aucc")
