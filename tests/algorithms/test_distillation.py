"""FedDistill, FML and the graph over small models, beside NumPy and SciPy.

Each client's batch holds all of its examples, so that a local step is a gradient step.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from perceptron import DATA, RATE, SIZES, STEPS, TASK, X, Y, as_numpy
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from toys import full, opposite_groups, quick_key, run, shallow

import jaxfl
from jaxfl.algorithms import feddistill, fml, mutual_graph

ONES = [np.eye(3)[y] for y in Y]


def row(stack, place):
    return as_numpy(jax.tree.map(lambda x: x[place], stack))


def logits(model, x):
    return np.maximum(x @ model[0] + model[1], 0) @ model[2] + model[3]


def step(model, x, error):
    """A gradient step; the error is the gradient by the logits of each example."""
    features = np.maximum(x @ model[0] + model[1], 0)
    hidden = error / len(x) @ model[2].T * (features > 0)
    gradient = [x.T @ hidden, hidden.sum(axis=0), features.T @ error / len(x), error.mean(axis=0)]
    return [w - RATE * g for w, g in zip(model, gradient, strict=True)]


def close(stack, models):
    for place, model in enumerate(models):
        for found, expected in zip(row(stack, place), model, strict=True):
            np.testing.assert_allclose(found, expected, atol=2e-5)


def mutual(own, small, x, ones, alpha, beta):
    """Both models after a round of a client, and its loss in the first step."""
    told = None
    for _ in range(STEPS):
        p, q = softmax(logits(own, x), axis=1), softmax(logits(small, x), axis=1)
        if told is None:
            told = -(ones * log_softmax(logits(own, x), axis=1)).sum(axis=1).mean()
        own, small = (
            step(own, x, alpha * (p - ones) + (1 - alpha) * (p - q)),
            step(small, x, beta * (q - ones) + (1 - beta) * (q - p)),
        )
    return own, small, told


def test_rounds_of_feddistill_equal_numpy():
    lam = 0.7
    algorithm = feddistill(TASK, lam=lam)
    state = algorithm.init(quick_key(0), DATA.train)
    models = [row(state.clients.memory, i) for i in range(3)]
    state, info, _ = run(algorithm, DATA, 3, state=state)
    sent = [{} for _ in X]
    for _ in range(3):
        before, sent = sent, []
        for i, (x, y, ones) in enumerate(zip(X, Y, ONES, strict=True)):
            for _ in range(STEPS):
                p = softmax(logits(models[i], x), axis=1)
                error = p - ones
                for place, label in enumerate(y):
                    others = [t[label] for j, t in enumerate(before) if j != i and label in t]
                    if others:
                        error[place] += lam * (p[place] - softmax(np.mean(others, axis=0)))
                models[i] = step(models[i], x, error)
            found = logits(models[i], x)
            sent.append({label: found[y == label].mean(axis=0) for label in np.unique(y)})
    close(state.clients.memory, models)
    # Of classes 0 and 1 there are two other senders each, of class 2 client 0 alone.
    expected = [[0, 1 / 2, 1 / 2], [2 / 3, 0, 1 / 3], [2 / 3, 1 / 3, 0]]
    np.testing.assert_allclose(info.weights["logits"][-1], expected, atol=1e-6)
    # Nine logits, and which classes it has.
    assert info.up.tolist() == [[9 + 3] * 3] * 3


def test_rounds_of_fml_equal_numpy():
    alpha, beta = 0.3, 0.6
    algorithm = fml(TASK, alpha=alpha, beta=beta)
    state = algorithm.init(quick_key(0), DATA.train)
    owns = [row(state.clients.memory.model, i) for i in range(3)]
    small = as_numpy(state.server)
    assert np.abs(small[0] - owns[0][0]).max() > 0.1
    state, info, _ = run(algorithm, DATA, 2, state=state)
    for _ in range(2):
        pairs = [mutual(o, small, x, y, alpha, beta) for o, x, y in zip(owns, X, ONES, strict=True)]
        owns = [own for own, _, _ in pairs]
        small = [
            np.tensordot(SIZES / SIZES.sum(), np.stack(same), 1)
            for same in zip(*(small for _, small, _ in pairs), strict=True)
        ]
    close(state.clients.memory.model, owns)
    close(jax.tree.map(lambda x: x[None], state.server), [small])
    assert info.batches.tolist() == [[2 * STEPS] * 3] * 2


def program(similarity, shares, balance):
    """A row of pFedGraph's program, by SciPy."""
    found = minimize(
        lambda r: balance * ((r - shares) ** 2).sum() - similarity @ r,
        shares,
        bounds=[(0, 1)] * len(shares),
        constraints={"type": "eq", "fun": lambda r: r.sum() - 1},
        tol=1e-12,
    )
    return found.x


def test_rounds_of_the_mutual_graph_equal_numpy():
    alpha, beta, balance = 0.3, 0.6, 0.8
    algorithm = mutual_graph(TASK, alpha=alpha, beta=beta, balance=balance)
    state = algorithm.init(quick_key(0), DATA.train)
    owns = [row(state.clients.memory, i) for i in range(3)]
    initial = as_numpy(state.server)
    starts = [initial] * 3
    state, info, _ = run(algorithm, DATA, 3, state=state)
    for number in range(3):
        pairs = [
            mutual(own, small, x, y, alpha, beta)
            for own, small, x, y in zip(owns, starts, X, ONES, strict=True)
        ]
        owns, sent = [own for own, _, _ in pairs], [small for _, small, _ in pairs]
        moves = np.stack(
            [
                np.concatenate([(a - b).ravel() for a, b in zip(s, initial, strict=True)])
                for s in sent
            ]
        )
        moves /= np.linalg.norm(moves, axis=1, keepdims=True)
        rows = np.stack([program(one, SIZES / SIZES.sum(), balance) for one in moves @ moves.T])
        np.testing.assert_allclose(info.weights["small"][number], rows, atol=1e-3)
        starts = [
            [np.tensordot(weights, np.stack(same), 1) for same in zip(*sent, strict=True)]
            for weights in rows
        ]
    assert rows.min() < 0.2
    for place, model in enumerate(owns):
        for found, expected in zip(row(state.clients.memory, place), model, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.slow(seconds=20)
def test_the_mutual_graph_finds_groups_across_architectures():
    """Clients of two opposite groups, each with clients of two architectures."""
    data = opposite_groups(clients=8, sizes=[40] * 8)
    large = jaxfl.classification(
        jaxfl.models.mlp(2, hidden=(16, 8)),
        jnp.zeros(8),
        steps=5,
        batch_size=8,
        optimizer=jaxfl.sgd(0.1),
    )
    of = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    task = jaxfl.heterogeneous({"small": shallow(), "large": large}, of)
    _, info, _ = run(mutual_graph(task, balance=0.5), data, 10, participation=full(8))
    weights = info.weights["small"][-1]
    same_group = np.equal.outer(np.arange(8) % 2, np.arange(8) % 2)
    same_model = np.equal.outer(of, of)
    assert (weights * same_group).sum(axis=1).min() > 0.95
    assert (weights * same_group * ~same_model).sum(axis=1).min() > 0.2
