"""Properties of single kernels that make, compare and move models; the table has those of many."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from claims import KEY
from claims_models import contrasted, fitted
from draws import clients, draws, extreme, general, moderate
from hypothesis import given
from hypothesis import strategies as st

from jaxfl.algorithms.steps import admm
from jaxfl.kernels import (
    alignment,
    attention,
    coupling,
    gaussian,
    hypernet,
    neighbours,
    server_optimizer,
    similarity,
)

jit = functools.cache(jax.jit)
KINDS = ["cosine", "approx", "inner", "l2", "l1"]


def of_clients(c):  # one program with most results that are checked below
    x = c.models
    y = c.models[:, ::-1] + 1
    learner = coupling.init("learned", 2, 0.7)
    net = hypernet.init_hypernet(KEY, x[0], 2, 4, 1)
    return {
        "normal": attention.layer_norm(x),
        "unit": attention.layer_norm(x, unit=True),
        "flat": attention.layer_norm(x[:, :1] * jnp.ones_like(x)),
        "start": [
            attention.attention_weights(attention.init_attention(KEY, x[0], s, 2, 3), x, s)
            for s in ("gat", "gatv2", "dot")
        ],
        "own": jax.vmap(
            lambda a: gaussian.divergence(gaussian.Gaussian(a, a), gaussian.Gaussian(a, a))
        )(x),
        "other": jax.vmap(
            lambda a, b: gaussian.divergence(gaussian.Gaussian(a, b), gaussian.Gaussian(b, a))
        )(x, y),
        "tau": coupling.strength(learner),
        "taus": [
            coupling.strength(coupling.update(learner, s, 0.1))
            for s in (x[0, 0], jnp.nan * x[0, 0])
        ],
        "made": hypernet.generate(net, x[0, :1] * jnp.ones(2)),
        "served": server_optimizer.optimizer_step(
            optax.sgd(1.0), optax.sgd(1.0).init(x[0]), x[0], y[0]
        )[0],
        "still": admm.ascend(x, y, y, 0.5),
        "away": [alignment.misalignment(x[0], x[0], 0.5, kind) for kind in KINDS],
        "halves": similarity.scaled(x),
    }


def measured(c):
    return jax.tree.map(np.asarray, jit(of_clients)(c))


@pytest.mark.slow
@draws
@given(clients(extreme(30)))
def test_normalised_models_have_mean_zero_and_length_one_unless_constant(some):
    found = measured(some)
    assert not found["flat"].any()
    size = some.models.shape[1]
    np.testing.assert_allclose(found["normal"].sum(axis=1), 0, atol=1e-3)
    lengths = np.linalg.norm(found["unit"], axis=1)
    np.testing.assert_allclose(lengths, lengths > 0, atol=1e-4)
    np.testing.assert_allclose(
        np.linalg.norm(found["normal"], axis=1), size**0.5 * lengths, atol=1e-3
    )
    spread = np.ptp(some.models, axis=1)
    assert (lengths[spread > 1e-5 * np.abs(some.models).max(axis=1)] > 0).all()


@pytest.mark.slow
@draws
@given(clients(moderate))
def test_attention_starts_at_equal_weights(some):
    for weights in measured(some)["start"]:
        np.testing.assert_allclose(weights, 1 / len(some.ids), atol=1e-6)


@pytest.mark.slow
@draws
@given(clients(moderate))
def test_only_different_distributions_have_a_divergence(some):
    found = measured(some)
    np.testing.assert_allclose(found["own"], 0, atol=1e-5)
    apart = np.abs(some.models - some.models[:, ::-1] - 1).max(axis=1) > 1e-2
    assert (found["other"][apart] > 0).all()


@draws
@given(clients(extreme(30)))
def test_the_strength_moves_against_its_gradient_and_not_at_all_if_that_is_nan(some):
    """Adam's first step is the rate, whatever the size of the gradient."""
    found = measured(some)
    grad = some.models[0, 0]
    np.testing.assert_allclose(found["tau"], 0.7, rtol=1e-5)
    moved, unmoved = found["taus"]
    np.testing.assert_allclose(unmoved, 0.7, rtol=1e-5)
    theta = np.log(np.expm1(0.7)) - 0.1 * np.sign(grad)
    if abs(grad) > 1e-5:
        np.testing.assert_allclose(moved, np.log1p(np.exp(theta)), rtol=1e-2)


@draws
@given(clients(moderate))
def test_starts_and_fixed_points(some):
    """A new hypernetwork makes its first model, SGD at rate 1 the average; a dual may rest."""
    found = measured(some)
    np.testing.assert_array_equal(found["made"], some.models[0])
    np.testing.assert_allclose(found["served"], some.models[0, ::-1] + 1, atol=1e-5)
    np.testing.assert_array_equal(found["still"], some.models)


@draws
@given(clients(moderate))
def test_the_misalignment_of_a_model_with_itself_in_closed_form(some):
    square = np.sum(np.square(some.models[0], dtype=np.float64))
    expected = [-0.5 * square**0.5, -0.5 * square**0.5, -0.5 * square, 0, 0]
    np.testing.assert_allclose(measured(some)["away"], expected, rtol=1e-4, atol=1e-5)


@draws
@given(clients(extreme(30)))
def test_a_model_over_a_power_of_two_loses_no_digit(some):
    small, power = measured(some)["halves"]
    largest = np.abs(small).max(axis=1)
    assert ((largest == 0) | ((largest > 0.6) & (largest < 1.6))).all()
    mantissa, _ = np.frexp(power)
    np.testing.assert_array_equal(mantissa, 0.5)
    back = small * power[:, None]
    normal = np.abs(some.models) > 1e-36  # smaller entries are zero to XLA
    np.testing.assert_array_equal(
        back[normal & (np.abs(small) > 1e-36)], some.models[normal & (np.abs(small) > 1e-36)]
    )


@draws
@given(clients(moderate))
def test_the_gradient_of_the_objective_is_zero_at_a_fitted_model(some):
    """w - x + 2 decay w - dual + rho (w - centre), of loss |w - x|^2 / 2, no dual and centre -x."""
    w = np.asarray(jit(fitted)(some), np.float64)
    x = some.models
    grad = w - x + 2 * 0.1 / len(x) * w + 0.5 * (w + x)
    np.testing.assert_allclose(grad, 0, atol=1e-4)


@draws
@given(clients(general))
def test_a_contrast_is_the_softplus_of_the_cosines(some):
    def cosine(a, b):
        return np.sum(a * b, axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)

    near = cosine(some.models, some.models[:, ::-1])
    far = cosine(some.models, -some.models)
    np.testing.assert_allclose(
        jit(contrasted)(some), np.log1p(np.exp((far - near) / 0.5)), rtol=1e-4
    )


@pytest.mark.slow
@draws
@given(clients(general), st.sampled_from([np.nan, np.inf, 1e30]))
def test_padding_is_never_a_neighbour(some, rubbish):
    def labels(query, stored, ids, mask):
        return neighbours.neighbour_labels(query, stored, ids % 3, mask, 3, 2, 1.0)

    filled = np.where(some.reported[:, None], some.models, np.float32(rubbish))
    found, expected = (
        jit(labels)(some.models[:2], x, some.ids, some.reported) for x in (filled, some.models)
    )
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(np.sum(found, axis=1), some.reported.any(), atol=1e-6)
