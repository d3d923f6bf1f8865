"""pFedCCG: two rounds beside NumPy and SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import entropy
from toys import federation, made, quadratic, quick_key, run

import jaxfl
from jaxfl.algorithms import fedavg, local, pfedccg
from jaxfl.core.errors import InputError
from jaxfl.core.messages import Clients

rng = np.random.default_rng(0)
X = [(c + 0.3 * rng.normal(size=(n, 3))).astype(np.float32) for c, n in enumerate((10, 20, 15, 5))]
# Client 0 and client 2 have the same two labels.
Y = [
    rng.choice(labels, len(x)).astype(np.int32)
    for x, labels in zip(X, ((0, 1), (2,), (0, 1), (0, 2)), strict=True)
]
DATA = federation(X, Y)


def weights_of(round_number):
    """The weights for each pair, in float64: divergences in bits, then the quadratic program."""
    shares = [np.bincount(y[: len(y) - len(y) // 5], minlength=3) for y in Y]
    shares = [s / s.sum() for s in shares]

    def similarity(a, b):
        mean = (a + b) / 2
        return 1 - (entropy(a, mean, base=2) + entropy(b, mean, base=2)) / 2

    s = np.array([[similarity(a, b) for b in shares] for a in shares])
    q = np.array([len(y) for y in Y]) / sum(map(len, Y))
    a = 0.5 + 2 / (1 + np.exp((1 - round_number) / 0.5))
    found = minimize(
        lambda k: (k.reshape(4, 4) ** 2 / q[:, None]).sum() - 2 * a * k @ s.ravel(),
        np.outer(q, q).ravel(),
        bounds=[(0, None)] * 16,
        constraints=[
            {"type": "eq", "fun": lambda k: k.reshape(4, 4).sum(axis=1) - q},
            {
                "type": "eq",
                "fun": lambda k: (k.reshape(4, 4) - k.reshape(4, 4).T)[np.triu_indices(4, 1)],
            },
        ],
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return found.x.reshape(4, 4) / q[:, None]


def test_two_rounds_equal_the_program_applied_to_the_trained_models():
    algorithm = pfedccg(quadratic(), first=0.5, rise=2.0, middle=1.0, width=0.5)
    start = algorithm.init(quick_key(0), DATA.train)
    models = start.clients.memory
    state = start
    for number in range(2):
        trained, _, _ = run(
            made(local, quadratic),
            DATA,
            1,
            state=jaxfl.types.State(Clients(models), ()),
            start=number,
        )
        state, info, _ = run(algorithm, DATA, 1, state=state, start=number)
        expected = weights_of(number)
        np.testing.assert_allclose(info.weights[0], expected, atol=1e-5)
        mixed = expected @ np.asarray(trained.clients.memory["w"], np.float64)
        np.testing.assert_allclose(state.clients.memory["w"], mixed, atol=1e-5)
        models = state.clients.memory
    assert info.up.tolist() == [[3 + 3] * 4]  # the model and three counts
    assert info.down.tolist() == [[3] * 4]


def test_without_strength_it_is_fedavg():
    found, info, _ = run(pfedccg(quadratic(), first=0.0, rise=0.0), DATA, 2)
    expected, told, _ = run(made(fedavg, quadratic), DATA, 2)
    np.testing.assert_allclose(info.weights, told.weights, atol=1e-6)
    for model in np.asarray(found.clients.memory["w"]):
        np.testing.assert_allclose(model, expected.server["w"], atol=1e-5)


def test_data_without_labels_are_refused():
    train = DATA.train._replace(y=jnp.zeros(DATA.train.y.shape))
    with pytest.raises(InputError, match="pFedCCG needs labels"):
        pfedccg(quadratic()).init(quick_key(0), train)
