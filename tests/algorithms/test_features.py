"""Methods about the features of a network with one hidden layer, beside NumPy: FedBABU and others.

Each client's batch holds all of its examples, so that a local step is a gradient step.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from perceptron import DATA, RATE, SIZES, STEPS, TASK, X, Y, as_numpy
from scipy.optimize import minimize
from scipy.special import softmax
from toys import deployed, quick_key, run

from jaxfl.algorithms import fedbabu, feddbe, fedgh, fedpac, fedproto, fedtgp


def forward(model, x, memory=0.0):
    """Features, logits and probabilities; the memory is added to the features."""
    features = np.maximum(x @ model[0] + model[1], 0)
    logits = (features + memory) @ model[2] + model[3]
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    return features, logits, probabilities / probabilities.sum(axis=1, keepdims=True)


def gradients(model, x, y, memory=0.0, more=0.0):
    """Gradients by the layers and by the memory; `more` is a further gradient by the features."""
    features, _, error = forward(model, x, memory)
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    by_features = error @ model[2].T
    hidden = (by_features + more) * (features > 0)
    by_layer = [x.T @ hidden, hidden.sum(axis=0), (features + memory).T @ error, error.sum(axis=0)]
    return by_layer, by_features.sum(axis=0)


def mean(models):
    share = SIZES / SIZES.sum()
    return [
        sum(p * layer for p, layer in zip(share, same, strict=True))
        for same in zip(*models, strict=True)
    ]


def assert_layers(found, expected):
    for one, other in zip(as_numpy(found), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_rounds_of_fedbabu_train_the_body_alone():
    algorithm = fedbabu(TASK)
    state = algorithm.init(quick_key(0), DATA.train)
    model = as_numpy(jax.tree.map(lambda v: v[0], deployed(algorithm, state, 1)))
    first = model
    state, _, _ = run(algorithm, DATA, 2, state=state)
    for _ in range(2):
        trained = []
        for x, y in zip(X, Y, strict=True):
            own = model
            for _ in range(STEPS):
                by_layer, _ = gradients(own, x, y)
                own = [own[0] - RATE * by_layer[0], own[1] - RATE * by_layer[1], *own[2:]]
            trained.append(own)
        model = mean(trained)
    assert_layers(jax.tree.map(lambda v: v[2], deployed(algorithm, state, 3)), model)
    np.testing.assert_allclose(model[2], first[2])


def test_rounds_of_feddbe_equal_numpy():
    """A round of FedAvg, the consensus, and two rounds with the memory and the regulariser."""
    kappa = 0.8
    algorithm = feddbe(TASK, kappa=kappa)
    state = algorithm.init(quick_key(0), DATA.train)
    model = as_numpy(state.server.model)
    state, info, _ = run(algorithm, DATA, 3, state=state)
    memories = np.zeros((3, 5))
    consensus = None
    for _ in range(3):
        trained = []
        for i, (x, y) in enumerate(zip(X, Y, strict=True)):
            own = model
            for _ in range(STEPS):
                more = 0.0
                if consensus is not None:
                    gap = forward(own, x)[0].mean(axis=0) - consensus
                    more = kappa * gap / 5 / len(y)
                by_layer, by_memory = gradients(own, x, y, memories[i], more)
                own = [w - RATE * g for w, g in zip(own, by_layer, strict=True)]
                if consensus is not None:
                    memories[i] -= RATE * by_memory
            trained.append(own)
        if consensus is None:
            means = [forward(own, x)[0].mean(axis=0) for own, x in zip(trained, X, strict=True)]
            consensus = SIZES / SIZES.sum() @ np.stack(means)
        model = mean(trained)
    np.testing.assert_allclose(state.server.consensus, consensus, atol=1e-5)
    np.testing.assert_allclose(state.clients.memory, memories, atol=2e-5)
    assert_layers(state.server.model, model)
    assert info.up.tolist() == [[43 + 5] * 3, [43] * 3, [43] * 3]
    served = jax.tree.map(lambda v: v[1], deployed(algorithm, state, 3))
    logits = forward(model, X[1], memories[1])[1]
    np.testing.assert_allclose(algorithm.apply(served, jnp.asarray(X[1])), logits, atol=1e-4)


def towards(models, prototypes, lam):
    """Trains the clients towards the prototypes of their classes; their mean features by class."""
    sent = {}
    for i, (x, y) in enumerate(zip(X, Y, strict=True)):
        for _ in range(STEPS):
            features = forward(models[i], x)[0]
            target = np.stack([prototypes.get(c, f) for c, f in zip(y, features, strict=True)])
            more = lam * 2 * (features - target) / 5 / len(y)
            by_layer, _ = gradients(models[i], x, y, more=more)
            models[i] = [w - RATE * g for w, g in zip(models[i], by_layer, strict=True)]
        add_means(sent, models[i], x, y)
    return sent


def add_means(sent, model, x, y):
    """Adds the mean features of a client's classes to what was sent of them."""
    features = forward(model, x)[0]
    for c in np.unique(y):
        sent.setdefault(c, []).append(features[y == c].mean(axis=0))


@pytest.mark.parametrize("predict", ["head", "prototypes"])
def test_rounds_of_fedproto_equal_numpy(predict):
    lam = 0.7
    algorithm = fedproto(TASK, lam=lam, predict=predict)
    state = algorithm.init(quick_key(0), DATA.train)
    models = [as_numpy(jax.tree.map(lambda v, i=i: v[i], state.clients.memory)) for i in range(3)]
    state, info, _ = run(algorithm, DATA, 2, state=state)
    prototypes = {}
    for _ in range(2):
        sent = towards(models, prototypes, lam)
        prototypes = {c: np.mean(each, axis=0) for c, each in sent.items()}
    expected = np.stack([prototypes[c] for c in range(3)])
    np.testing.assert_allclose(state.server.values, expected, atol=2e-5)
    for i in range(3):
        assert_layers(jax.tree.map(lambda v, i=i: v[i], state.clients.memory), models[i])
    # Client 0 sends three of the seven prototypes; in class 2 it is alone.
    weights = (2 * np.array([1, 1, 1]) / 3 + np.array([1, 0, 0])) / 3
    np.testing.assert_allclose(info.weights["prototypes"][0], np.tile(weights, (3, 1)), atol=1e-6)
    if predict == "prototypes":
        served = jax.tree.map(lambda v: v[1], deployed(algorithm, state, 3))
        found = softmax(algorithm.apply(served, jnp.asarray(X[0])), axis=1)
        features = forward(models[1], X[0])[0]
        gaps = ((features[:, None] - expected[None]) ** 2).sum(axis=2)
        np.testing.assert_allclose(found, softmax(-gaps, axis=1), atol=1e-4)


def push_apart(network, sent, tau, rate, steps):
    """The server's network of FedTGP after gradient descent, example by example."""
    means = [np.mean(sent[c], axis=0) for c in range(3)]
    nearest = [
        min(np.linalg.norm(means[c] - means[k]) for k in range(3) if k != c) for c in range(3)
    ]
    margin = min(tau, max(nearest))
    pairs = [(p, c) for c, each in sent.items() for p in each]
    for _ in range(steps):
        embedding, hidden, hidden_bias, out, out_bias = network
        inside = np.maximum(embedding @ hidden + hidden_bias, 0)
        made = inside @ out + out_bias
        by_made = np.zeros_like(made)
        for p, c in pairs:
            gaps = np.linalg.norm(p - made, axis=1)
            error = softmax(-(gaps + margin * np.eye(3)[c])) - np.eye(3)[c]
            by_made -= (error / gaps)[:, None] * (made - p) / len(pairs)
        before = by_made @ out.T * (inside > 0)
        grads = (
            *(before @ hidden.T, embedding.T @ before, before.sum(axis=0)),
            *(inside.T @ by_made, by_made.sum(axis=0)),
        )
        network = [w - rate * g for w, g in zip(network, grads, strict=True)]
    return network, np.maximum(network[0] @ network[1] + network[2], 0) @ network[3] + network[4]


# The margin is tau, or the distance of the means.
@pytest.mark.parametrize("tau", [0.05, 100.0])
def test_rounds_of_fedtgp_equal_numpy(tau):
    lam, rate, steps = 0.7, 0.2, 5
    algorithm = fedtgp(TASK, lam=lam, tau=tau, rate=rate, server_steps=steps)
    state = algorithm.init(quick_key(0), DATA.train)
    models = [as_numpy(jax.tree.map(lambda v, i=i: v[i], state.clients.memory)) for i in range(3)]
    network = [np.asarray(x, np.float64) for x in state.server.network]
    state, _, _ = run(algorithm, DATA, 3, state=state)
    prototypes = {}
    for _ in range(3):
        sent = towards(models, prototypes, lam)
        network, made = push_apart(network, sent, tau, rate, steps)
        prototypes = dict(enumerate(made))
    for found, expected in zip(state.server.network, network, strict=True):
        np.testing.assert_allclose(found, expected, atol=5e-5)
    for i in range(3):
        assert_layers(jax.tree.map(lambda v, i=i: v[i], state.clients.memory), models[i])


def test_rounds_of_fedgh_equal_numpy():
    rate, steps = 0.2, 5
    algorithm = fedgh(TASK, rate=rate, server_steps=steps)
    state = algorithm.init(quick_key(0), DATA.train)
    first = deployed(algorithm, state, 3)
    models = [as_numpy(jax.tree.map(lambda v, i=i: v[i], first)) for i in range(3)]
    state, info, _ = run(algorithm, DATA, 3, state=state)
    kernel, bias = models[0][2:]
    for _ in range(3):
        sent = {}
        for i, (x, y) in enumerate(zip(X, Y, strict=True)):
            models[i] = [*models[i][:2], kernel, bias]
            for _ in range(STEPS):
                by_layer, _ = gradients(models[i], x, y)
                models[i] = [w - RATE * g for w, g in zip(models[i], by_layer, strict=True)]
            add_means(sent, models[i], x, y)
        features = np.concatenate([sent[c] for c in range(3)])
        ones = np.repeat(np.eye(3), [len(sent[c]) for c in range(3)], axis=0)
        for _ in range(steps):
            error = (softmax(features @ kernel + bias, axis=1) - ones) / len(ones)
            kernel, bias = kernel - rate * features.T @ error, bias - rate * error.sum(axis=0)
    served = deployed(algorithm, state, 3)
    for i in range(3):
        assert_layers(jax.tree.map(lambda v, i=i: v[i], served), [*models[i][:2], kernel, bias])
    # Fifteen numbers, and which classes it has; it gets a head.
    assert (info.up.tolist()[0], info.down.tolist()[0]) == ([15 + 3] * 3, [5 * 3 + 3] * 3)


def statistics(model, x, y):
    """h and V of FedPAC, example by example."""
    features = forward(model, x)[0]
    h = np.zeros((3, 5))
    spread = 0.0
    for c in np.unique(y):
        own = features[y == c]
        share = len(own) / len(y)
        h[c] = share * own.mean(axis=0)
        spread += share * np.trace(own.T @ own / len(own)) - share**2 * own.mean(axis=0) @ own.mean(
            axis=0
        )
    return h.ravel(), spread / len(y)


@pytest.mark.slow
def test_rounds_of_fedpac_equal_numpy():
    lam = 0.7
    algorithm = fedpac(TASK, lam=lam)
    state = algorithm.init(quick_key(0), DATA.train)
    first = deployed(algorithm, state, 3)
    models = [as_numpy(jax.tree.map(lambda v, i=i: v[i], first)) for i in range(3)]
    state, info, _ = run(algorithm, DATA, 2, state=state)
    prototypes = {}
    for _ in range(2):
        told = [statistics(model, x, y) for model, x, y in zip(models, X, Y, strict=True)]
        sent = {}
        for i, (x, y) in enumerate(zip(X, Y, strict=True)):
            by_layer, _ = gradients(models[i], x, y)
            models[i] = [*models[i][:2], *(models[i][k] - RATE * by_layer[k] for k in (2, 3))]
            for _ in range(STEPS):
                features = forward(models[i], x)[0]
                target = np.stack([prototypes.get(c, f) for c, f in zip(y, features, strict=True)])
                more = lam * 2 * (features - target) / 5 / len(y)
                by_layer, _ = gradients(models[i], x, y, more=more)
                models[i] = [*(models[i][k] - RATE * by_layer[k] for k in (0, 1)), *models[i][2:]]
            add_means(sent, models[i], x, y)
        prototypes = {c: np.mean(each, axis=0) for c, each in sent.items()}
        rows = []
        for h_i, _ in told:
            matrix = np.diag([v for _, v in told]) + np.array(
                [[(h_i - one) @ (h_i - other) for other, _ in told] for one, _ in told]
            )
            found = minimize(
                lambda a, matrix=matrix: a @ matrix @ a,
                np.full(3, 1 / 3),
                jac=lambda a, matrix=matrix: 2 * matrix @ a,
                bounds=[(0, 1)] * 3,
                constraints={"type": "eq", "fun": lambda a: a.sum() - 1},
                method="SLSQP",
                options={"ftol": 1e-15, "maxiter": 500},
            )
            rows.append(found.x)
        body = mean(models)[:2]
        heads = [
            [sum(w * m[k] for w, m in zip(row, models, strict=True)) for k in (2, 3)]
            for row in rows
        ]
        models = [[*body, *own] for own in heads]
    np.testing.assert_allclose(info.weights["head"][1], rows, atol=2e-4)
    served = deployed(algorithm, state, 3)
    for i in range(3):
        assert_layers(jax.tree.map(lambda v, i=i: v[i], served), models[i])
