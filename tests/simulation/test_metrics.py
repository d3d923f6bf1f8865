"""Scores of clients by named metrics, in one program with the evaluation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score
from toys import linear, opposite_groups, quick_key

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.ragged import ragged
from jaxfl.core.types import Dataset, Pool
from jaxfl.simulation.client_scores import metrics_of_clients, score_clients
from jaxfl.simulation.evaluate import make_evaluate_models
from jaxfl.simulation.metrics import METRICS, Metric, metric_of, named_metrics

SIZES = [40, 25, 1, 40]


def toy():
    """Four clients with padding that is not a number, their models, and their data in NumPy."""
    federation = opposite_groups(clients=4, sizes=SIZES, pad=2, rubbish=np.nan)
    task = linear()
    models = jax.vmap(task.problem.init)(jax.random.split(quick_key(3), 4))
    logits = []
    labels = []
    for client, size in enumerate(SIZES):
        model = jax.tree.map(lambda leaf, client=client: leaf[client], models)
        logits.append(np.asarray(task.problem.apply(model, federation.test.x[client, :size])))
        labels.append(np.asarray(federation.test.y[client, :size]))
    return federation, task, models, logits, labels


def area(logits, y):
    return roc_auc_score(y, logits[:, 1] - logits[:, 0]) if len(set(y)) > 1 else np.nan


def loss(logits, y):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    return log_loss(y, p / p.sum(axis=1, keepdims=True), labels=[0, 1])


@pytest.mark.slow
def test_clients_are_scored_on_what_counts_and_together():
    federation, task, models, logits, labels = toy()
    evaluate = make_evaluate_models(
        jaxfl.algorithms.local(task),
        task,
        batch_size=16,
        after="none",
        metrics=["auc", "log_loss"],
        pooled=np.array([True, False, True, True]),
    )
    ids = jnp.array([3, 0, 2, 1])
    scores = jax.jit(evaluate)(quick_key(0), federation, models_of(models, ids), ids).deployed
    each = [area(logits[i], labels[i]) for i in ids]
    np.testing.assert_allclose(scores.test, each, rtol=1e-5)
    assert np.isnan(scores.test[2])
    losses = [loss(logits[i], labels[i]) for i in ids]
    # Stored so that higher is better.
    np.testing.assert_allclose(scores.further["log_loss"].test, np.negative(losses), rtol=1e-5)
    members = [0, 2, 3]
    together = [np.concatenate([part[i] for i in members]) for part in (logits, labels)]
    assert scores.pooled["auc"] == pytest.approx(area(*together), rel=1e-5)
    assert scores.pooled["log_loss"] == pytest.approx(-loss(*together), rel=1e-5)
    # That is not the mean of the clients.
    assert abs(scores.pooled["auc"] - np.nanmean(each)) > 0.01


def models_of(models, ids):
    return jax.tree.map(lambda leaf: leaf[ids], models)


@pytest.mark.long
@pytest.mark.parametrize("chunk", [1, "all"])
def test_pools_and_ragged_sets_give_what_padded_sets_give(chunk):
    federation, task, models, *_ = toy()
    metrics = ["accuracy", "auc", "ece"]
    padded, _ = metrics_of_clients(
        task.problem.apply, metrics, models, federation.test, chunk=chunk
    )
    x, y = (
        np.concatenate([np.asarray(part[i, :size]) for i, size in enumerate(SIZES)])
        for part in (federation.test.x, federation.test.y)
    )
    rows = np.split(np.arange(len(x)), np.cumsum(SIZES)[:-1])
    sets = Dataset(ragged(x, rows), ragged(y, rows), ragged_mask(rows))
    owner = np.repeat(np.arange(4), SIZES)
    pool = Pool(jnp.asarray(x), jnp.asarray(y), 3.0 * jnp.eye(4), jnp.asarray(owner))
    for data in (sets, pool):
        scores, together = metrics_of_clients(
            task.problem.apply, metrics, models, data, chunk=chunk, batch_size=7
        )
        assert together == {}
        for name in metrics:
            np.testing.assert_allclose(scores[name], padded[name], rtol=1e-5)
    plain = score_clients(task.problem.apply, task.problem.score, models, pool)
    np.testing.assert_allclose(scores["accuracy"], plain, rtol=1e-6)


def ragged_mask(rows):
    longest = max(map(len, rows))
    return jnp.asarray([[place < len(one) for place in range(longest)] for one in rows])


@pytest.mark.slow
def test_own_metrics_and_unknown_names():
    federation, task, models, _, labels = toy()
    count = Metric("positives", lambda predictions, y, weight: (y * weight).sum(), better="lower")
    own = {"positives": count, "accuracy": METRICS["accuracy"]}
    scores, _ = metrics_of_clients(task.problem.apply, own, models, federation.test)
    assert scores["positives"].tolist() == [-y.sum() for y in labels]
    with pytest.raises(InputError, match="did you mean auc"):
        named_metrics(["aux"])
    with pytest.raises(InputError, match="expected a list of names"):
        named_metrics("auc")
    with pytest.raises(InputError, match="--plugin"):
        metric_of("positives")
    each = {"misses": Metric("misses", lambda predictions, y, weight: weight * y)}
    with pytest.raises(InputError, match="'misses' gives an array of shape"):
        metrics_of_clients(task.problem.apply, each, models, federation.test)
    with pytest.raises(InputError, match="without metrics"):
        jaxfl.make_evaluate(jaxfl.algorithms.local(task), task, pooled=np.ones(4, bool))


def test_what_is_shown_and_which_way_is_better():
    assert METRICS["accuracy"].shown(0.5) == 50
    assert METRICS["rmse"].shown(-3.0) == 3
    assert METRICS["log_loss"].shown(-0.25) == 0.25
    assert f"{METRICS['log_loss'].shown(0.0):.1f}" == "0.0"
    for name, metric in METRICS.items():
        assert metric.gain(-0.1, -0.2) > 0, name


def test_scores_weigh_examples_as_scikit_learn_does():
    federation, task, models, logits, labels = toy()
    rng = np.random.default_rng(5)
    weight = rng.exponential(size=federation.test.mask.shape).astype(np.float32)
    weight[0, :7] = 0
    # The same as the weights of examples and in the mask, which is all that a test set has.
    mask = np.where(np.asarray(federation.test.mask), weight, 0.0)
    padding = np.where(np.asarray(federation.test.mask), weight, np.nan)
    for data in (
        federation.test._replace(weight=jnp.asarray(padding)),
        federation.test._replace(mask=jnp.asarray(mask)),
    ):
        names = ["accuracy", "balanced_accuracy", "log_loss"]
        scores, _ = metrics_of_clients(task.problem.apply, names, models, data, batch_size=16)
        mean = score_clients(task.problem.apply, task.problem.score, models, data, batch_size=16)
        for client, size in enumerate(SIZES):
            y, z, w = labels[client], logits[client], weight[client, :size]
            p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
            guess = z.argmax(axis=1)
            accuracy = accuracy_score(y, guess, sample_weight=w)
            np.testing.assert_allclose(scores["accuracy"][client], accuracy, rtol=1e-5)
            np.testing.assert_allclose(mean[client], accuracy, rtol=1e-5)
            expected = -log_loss(y, p, sample_weight=w, labels=[0, 1])
            np.testing.assert_allclose(scores["log_loss"][client], expected, rtol=1e-5)
            if size > 1:
                expected = balanced_accuracy_score(y, guess, sample_weight=w)
                np.testing.assert_allclose(scores["balanced_accuracy"][client], expected, rtol=1e-5)
