"""FedNova on least squares, beside NumPy written from the paper."""

import warnings

import jax
import numpy as np
import optax
import pytest
from toys import close, federation, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, fednova
from jaxfl.core import tree
from jaxfl.core.errors import RunWarning
from jaxfl.core.types import Cohort
from jaxfl.models.mlp import mlp

RATE = 0.05
EPOCHS = 3
# Of the training examples; another fifth is for validation. With batches of four a client takes
# one, two or four steps an epoch.
SIZES = (4, 8, 16)
rng = np.random.default_rng(0)
X = [rng.normal(size=(n * 5 // 4, 2)).astype(np.float32) for n in SIZES]
Y = [(x @ np.array([1, -1]) + 2 * rng.normal()).astype(np.float32)[:, None] for x in X]
DATA = federation(X, Y)


def task(momentum):
    return jaxfl.regression(
        mlp(1, hidden=()),
        np.zeros(2),
        batch_size=4,
        epochs=EPOCHS,
        optimizer=optax.sgd(RATE, momentum or None),
    )


def flat(model):
    return np.asarray(tree.ravel(model), np.float64)


def norm(momentum, steps):
    """|a|: the sum of the factors with which the gradients of the steps enter x - y, over eta."""
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


@pytest.mark.long(every=4)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("work", "steps"),
    [(None, [3, 6, 12]), (np.array([1 / 3, 1, 2 / 3], np.float32), [1, 6, 8])],
    ids=["all_epochs", "one_three_and_two_epochs"],
)
def test_a_round_equals_numpy_written_from_the_paper(momentum, work, steps):
    algorithm = fednova(task(momentum))
    state = algorithm.init(quick_key(0), DATA.train)
    cohort = Cohort(np.arange(3), DATA.train, DATA.val, work=work)
    after, info = jax.jit(algorithm.round)(quick_key(1), state, cohort)
    x = flat(tree.broadcast(state.server, 1))[0]
    assert info.batches.tolist() == steps
    a = norm(momentum, np.array(steps))
    p = np.array(SIZES) / sum(SIZES)
    d = (x - flat(info.trained)) / (RATE * a[:, None])
    expected = x - RATE * (p @ a) * (p @ d)
    np.testing.assert_allclose(flat(tree.broadcast(after.server, 1))[0], expected, atol=1e-5)
    # The middle client takes twice the steps of the first with twice its examples.
    weights = np.asarray(info.weights[0])
    np.testing.assert_allclose(weights[1] / weights[0], 2 * a[0] / a[1], rtol=1e-5)


# With the small rate clients get less far than a thousandth along a gradient of 1.
@pytest.mark.parametrize("rate", [RATE, 1e-4])
def test_it_is_fedavg_where_all_clients_take_the_same_steps(rate):
    same = jaxfl.regression(
        mlp(1, hidden=()), np.zeros(2), batch_size=4, steps=5, optimizer=optax.sgd(rate)
    )
    states = [run(method(same), DATA, 2)[0] for method in (fednova, fedavg)]
    close(*states, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_warning_says_by_how_much_short_trainings_are_multiplied(momentum):
    sizes = np.array([4, 40, 40])
    x = [np.zeros((n * 5 // 4, 2), np.float32) for n in sizes]
    unequal = federation(x, [one[:, :1] for one in x])
    a = norm(momentum, EPOCHS * sizes / 4)
    factor = (sizes @ a) / sizes.sum() / a[0]
    algorithm = fednova(task(momentum))
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(3))
    state = algorithm.init(quick_key(0), unequal.train)
    with pytest.warns(RunWarning, match=rf"with 4 training examples by {factor:.3g},"):
        rounds(quick_key(0), unequal, state, 0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # It is said once.
        rounds(quick_key(0), unequal, state, 1, 1)
        algorithm.warn_of_sizes(np.array([0, 30, 40]))
