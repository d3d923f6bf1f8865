"""safe_graph: what it shares with FedAvg, what it chooses, and that a wrong graph does no harm."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from toys import (
    close,
    deployed,
    equal,
    federation,
    half,
    linear,
    made,
    make_evaluate,
    opposite_groups,
    quick_key,
    run,
)

import jaxfl
from jaxfl.algorithms import fedavg, local, safe_graph
from jaxfl.algorithms.safe_graph import SIGNS, embeddings
from jaxfl.core import tree
from jaxfl.core.types import Cohort, Dataset
from jaxfl.training.held_out import held_out_values, hold_out

GROUPS = opposite_groups(examples=60)
SAME = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)


def accuracy(algorithm, state, data=GROUPS):
    task = linear()
    evaluate = make_evaluate(algorithm, task, after="none")
    clients = data.train.mask.shape[0]
    found = evaluate(quick_key(0), data, state, jnp.arange(clients))
    return np.asarray(found.deployed.test)


@pytest.mark.slow
def test_the_global_model_is_that_of_fedavg():
    state, _, _ = run(made(safe_graph), GROUPS, 2)
    other, _, _ = run(made(fedavg), GROUPS, 2)
    close(state.server, other.server)


@pytest.mark.slow
def test_groups_are_found_and_their_mixtures_are_taken():
    state, info, _ = run(made(safe_graph), GROUPS, 4)
    weights = np.asarray(info.weights[-1])
    np.testing.assert_allclose(weights[~SAME], 0)
    assert (weights[SAME] > 0.1).all()
    scores = accuracy(made(safe_graph), state)
    assert scores.mean() >= accuracy(made(local), run(made(local), GROUPS, 4)[0]).mean()
    assert scores.min() > 0.85


def mix_evenly(means, variances, reported):
    return jnp.full((reported.size, reported.size), 1 / reported.size)


@pytest.mark.slow
def test_a_graph_that_mixes_opposite_clients_leaves_local_training(monkeypatch):
    module = importlib.import_module("jaxfl.algorithms.safe_graph")
    monkeypatch.setattr(module, "embedding_rows", mix_evenly)
    algorithm = safe_graph(linear())
    state, info, _ = run(algorithm, GROUPS, 4)
    assert np.asarray(info.metrics["mixture"][-1]) == 0
    alone = accuracy(made(local), run(made(local), GROUPS, 4)[0])
    assert accuracy(algorithm, state).mean() > alone.mean() - 0.03


@pytest.mark.slow
def test_clients_of_one_population_take_what_all_have_learned():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=8)
    xs = [rng.normal(size=(12, 8)).astype(np.float32) for _ in range(8)]
    data = federation(xs, [(x @ normal > 0).astype(np.int32) for x in xs])
    state, info, _ = run(made(safe_graph), data, 4)
    # Each one mixes with most of the others.
    assert (np.asarray(info.weights[-1]) > 0).mean() > 0.8
    together = accuracy(made(fedavg), run(made(fedavg), data, 4)[0], data)
    assert accuracy(made(safe_graph), state, data).mean() > together.mean() - 0.03


@pytest.mark.slow
def test_who_was_never_there_deploys_the_global_model_and_who_is_away_what_it_chose():
    algorithm = made(safe_graph)
    state, _, ids = run(algorithm, GROUPS, 1, participation=half(6))
    away = np.setdiff1d(np.arange(6), np.ravel(ids))
    before = deployed(algorithm, state, 6, GROUPS)
    for client in away:
        equal(jax.tree.map(lambda x, c=client: x[c], before), state.server)
    after, _, _ = run(algorithm, GROUPS, 1, state=state, start=1)
    later, _, ids = run(algorithm, GROUPS, 1, state=after, start=2, participation=half(6))
    follows = ~np.asarray(after.clients.memory.chosen.seen)
    for client in np.setdiff1d(np.arange(6), np.ravel(ids)):
        rows = [
            jax.tree.map(lambda x, c=client: x[c], deployed(algorithm, s, 6, GROUPS))
            for s in (after, later)
        ]
        equal(rows[1], later.server if follows[client] else rows[0])


def test_what_is_held_out_is_never_trained_on():
    """Labels of every fifth example change what a client sends if it has validation data alone."""

    def trained(validates):
        models = []
        for flip in (False, True):
            data = GROUPS._replace(val=GROUPS.val._replace(mask=GROUPS.val.mask & validates))
            fifth = data.train.mask & (jnp.cumsum(data.train.mask, axis=1) % 5 == 0)
            y = jnp.where(fifth & flip, 1 - data.train.y, data.train.y)
            data = data._replace(train=data.train._replace(y=y))
            models.append(run(made(safe_graph), data, 1)[0].server)
        return [np.concatenate([np.ravel(x) for x in jax.tree.leaves(m)]) for m in models]

    np.testing.assert_array_equal(*trained(False))
    assert np.abs(np.subtract(*trained(True))).max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("validates", [True, False])
def test_values_are_those_of_the_held_out_examples(validates):
    task = linear()
    data = GROUPS._replace(val=GROUPS.val._replace(mask=GROUPS.val.mask & validates))
    cohort = Cohort(jnp.arange(6), data.train, data.val)
    keys = jax.random.split(quick_key(0), 18).reshape(3, 6)
    models = [jax.vmap(task.problem.init)(row) for row in keys]
    found, counts = held_out_values(task)(models, cohort)
    part = data.val if validates else hold_out(cohort)[1]
    for client in range(6):
        real = np.asarray(part.mask[client]) > 0
        x, y = np.asarray(part.x[client])[real], np.asarray(part.y[client])[real]
        logits = [
            np.asarray(task.problem.apply(tree.at(m, client), jnp.asarray(x)), np.float64)
            for m in models
        ]

        def values(y, logits=logits):
            rows = np.arange(len(y))
            true = [softmax(row, axis=1)[rows, y] for row in logits]
            return np.array(true) + [np.argmax(row, axis=1) == y for row in logits]

        own, others = values(y), values(np.roll(y, -1))
        relative = own - own.mean(axis=0)
        np.testing.assert_allclose(found.means[client], relative.mean(axis=1), atol=1e-6)
        np.testing.assert_allclose(found.squares[client], (relative**2).mean(axis=1), atol=1e-6)
        best = np.argmax(own.mean(axis=1) - others.mean(axis=1))
        for moments, of in ((found.best, own[best]), (found.chance, others[best])):
            np.testing.assert_allclose(moments[client], [of.mean(), (of**2).mean()], atol=1e-6)
        assert counts[client] == real.sum()


@pytest.mark.slow
def test_clients_with_random_labels_take_the_model_of_fedavg():
    rng = np.random.default_rng(0)
    normal = rng.normal(size=8)
    xs = [rng.normal(size=(1000, 8)).astype(np.float32) for _ in range(8)]
    ys = [(x @ normal > 0).astype(np.int32) for x in xs]
    ys[:2] = [rng.integers(0, 2, 1000).astype(np.int32) for _ in range(2)]
    data = federation(xs, ys)
    state, info, _ = run(made(safe_graph), data, 4)
    models = deployed(made(safe_graph), state, 8, data)
    equal(tree.take(models, jnp.arange(2)), tree.broadcast(state.server, 2))
    assert np.asarray(info.metrics["common"][-1]) < 0.9


def test_an_embedding_is_the_mean_of_products_of_unit_vectors():
    """By pairs: <m_i, m_j> is the mean kernel of two clients' examples, and v_i their variance."""
    problem = linear().problem
    # One example a client: its mean is its embedding.
    train = GROUPS.train
    x, y = np.asarray(train.x)[0][:, None], np.asarray(train.y)[0][:, None]
    single = jaxfl.types.Dataset(jnp.asarray(x), jnp.asarray(y), jnp.ones(x.shape[:2], bool))
    each = np.asarray(embeddings(problem)(single).mean)
    real = np.asarray(train.mask[0]) > 0
    each = each[real]
    np.testing.assert_allclose((each**2).sum(axis=1), 1, rtol=1e-5)
    labels = y[real, 0]
    # The kernel of the inputs is 1 - 2 a / pi of their angle, up to 64 signs; labels are signs.
    centred = x[real, 0] - x[real, 0].mean(axis=1, keepdims=True)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    kernel = 1 - 2 * np.arccos(np.clip(unit @ unit.T, -1, 1)) / np.pi
    kernel *= np.where(labels[:, None] == labels[None], 1, -1)
    assert np.abs(each @ each.T - kernel).mean() < 0.15
    found = embeddings(problem)(train)
    np.testing.assert_allclose(found.mean[0], each.mean(axis=0), atol=1e-6)
    covariance = np.cov(each.T)
    np.testing.assert_allclose(found.variance[0], np.trace(covariance) / len(each), rtol=1e-4)


def test_an_embedding_is_the_sum_of_products_of_signs_and_pulls():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 9, 5)).astype(np.float32), rng.integers(0, 3, (2, 9))
    mask = np.arange(9) < np.array([[9], [6]])
    task = jaxfl.classification(jaxfl.models.linear(3), np.zeros(5))
    found = embeddings(task.problem)(Dataset(*map(jnp.asarray, (x, y, mask))))
    directions = np.asarray(jax.random.normal(jax.random.key(0), (5, SIGNS)))
    for client in range(2):
        own, labels = x[client, mask[client]], y[client, mask[client]]
        signs = np.where((own - own.mean(axis=1, keepdims=True)) @ directions >= 0, 1, -1)
        # The gradient of the cross-entropy of three logits of 0.
        pulls = 1 / 3 - np.eye(3)[labels]
        pulls /= np.linalg.norm(pulls, axis=1, keepdims=True)
        expected = signs.T @ pulls / np.sqrt(SIGNS) / len(own)
        np.testing.assert_allclose(found.mean[client], expected.reshape(-1), atol=1e-5)
