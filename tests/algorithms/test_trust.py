"""Trust: its rounds beside NumPy, by each of the three comparisons, and the groups it finds."""

import numpy as np
import pytest
from toys import linear, made, opposite_groups, quick_key, run, shallow

from jaxfl.algorithms import local, trust
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients
from jaxfl.core.types import State

SIZES = [40, 25, 31, 4, 40]  # client 3 has no validation examples
DATA = opposite_groups(clients=5, sizes=SIZES)
ALONE = 3
SAME = np.equal.outer(np.arange(6) % 2, np.arange(6) % 2)


def trained_from(models, number, task):
    """The models after local training in this round."""
    state, _, _ = run(made(local, task), DATA, 1, state=State(Clients(models), ()), start=number)
    return state.clients.memory


def layer(stacked, name="Dense_0"):
    """The kernels [M, i, o] and biases [M, o] of a layer, in float64."""
    part = stacked["params"][name]
    return np.asarray(part["kernel"], np.float64), np.asarray(part["bias"], np.float64)


def flat(stacked, name="Dense_0"):
    """The parameters of a layer as rows."""
    kernel, bias = layer(stacked, name)
    return np.concatenate([kernel.reshape(len(kernel), -1), bias], axis=1)


def softmax(scores):
    exponentials = np.exp(scores - np.max(scores))
    return exponentials / exponentials.sum()


def cosines(matrix):
    """Of all pairs of rows, by loops."""
    return np.array(
        [[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in matrix] for a in matrix]
    )


def logits(stacked, model, client):
    """Those of a linear model on the validation inputs of a client, and the labels."""
    kernel, bias = layer(stacked)
    real = np.asarray(DATA.val.mask[client]) > 0
    x = np.asarray(DATA.val.x[client], np.float64)[real]
    return x @ kernel[model] + bias[model], np.asarray(DATA.val.y[client])[real]


def loss(stacked, model, client):
    outputs, y = logits(stacked, model, client)
    return -np.mean([np.log(softmax(row)[label]) for row, label in zip(outputs, y, strict=True)])


def distance(stacked, model, client):
    gaps = logits(stacked, client, client)[0] - logits(stacked, model, client)[0]
    return np.abs(gaps).sum(axis=1).mean()


def matrix_of(by, trained, temperature):
    """The trust matrix of the models of a round, row by row."""
    if by == "weights":
        return np.stack([softmax(row / temperature) for row in cosines(flat(trained))])
    rows = np.eye(5)
    for client in set(range(5)) - {ALONE}:
        if by == "validation":
            values = np.array([loss(trained, model, client) for model in range(5)])
        else:
            values = np.array([distance(trained, model, client) for model in range(5)])
            values = values / values.sum()
        rows[client] = softmax(-values / temperature)
    return rows


@pytest.mark.long(every=6)
@pytest.mark.parametrize("temperature", [None, 0.3])
@pytest.mark.parametrize(
    ("by", "default"), [("weights", 1.0), ("validation", 1.0), ("predictions", 0.1)]
)
def test_rounds_equal_numpy(by, default, temperature):
    options = {} if temperature is None else {"temperature": temperature}
    algorithm = trust(linear(), by=by, **options)
    state = algorithm.init(quick_key(0), DATA.train)
    for number in range(2):
        trained = trained_from(state.clients.memory, number, linear)
        state, info, _ = run(algorithm, DATA, 1, state=state, start=number)
        weights = matrix_of(by, trained, temperature or default)
        np.testing.assert_allclose(info.weights[0], weights, atol=1e-5)
        mixtures = weights @ flat(trained)
        np.testing.assert_allclose(flat(state.clients.memory), mixtures, atol=1e-5)
        assert np.ptp(weights[0]) > 1e-3
    floats = 8 * 2 + 2
    # All five models, which of them have arrived, and the client's place among them.
    assert info.down.tolist() == [[floats if by == "weights" else 5 * floats + 5 + 1] * 5]


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["raw", "delta"])
def test_each_layer_has_the_cosines_and_weights_of_its_own(similarity):
    algorithm = trust(shallow(), similarity=similarity, parts=True, temperature=0.2)
    start = algorithm.init(quick_key(0), DATA.train)
    trained = trained_from(start.clients.memory, 0, shallow)
    state, info, _ = run(algorithm, DATA, 1, state=start)
    assert sorted(info.weights) == ["Dense_0", "Dense_1"]
    for name in info.weights:
        models = flat(trained, name)
        initial = flat(start.clients.memory, name) if similarity == "delta" else 0
        weights = np.stack([softmax(row / 0.2) for row in cosines(models - initial)])
        np.testing.assert_allclose(info.weights[name][0], weights, atol=1e-5)
        np.testing.assert_allclose(flat(state.clients.memory, name), weights @ models, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"similarity": "delta", "temperature": 0.1},
        {"by": "validation", "temperature": 0.1},
        {"by": "predictions", "temperature": 0.02},
    ],
)
def test_trust_finds_opposite_groups(options):
    _, info, _ = run(trust(linear(steps=20), **options), opposite_groups(), 3)
    weights = info.weights[-1]
    assert weights[SAME].min() > 10 * weights[~SAME].max()


def test_options_of_another_comparison_are_refused():
    with pytest.raises(InputError, match="choose by=weights"):
        trust(linear(), by="predictions", parts=True)
    with pytest.raises(InputError, match="choose by=weights"):
        trust(linear(), by="validation", similarity="delta")
