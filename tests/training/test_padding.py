"""Padding that is NaN or infinite changes no value, and no derivative of what masks it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxfl.core.types import Cohort, Dataset
from jaxfl.training.gradients import full_gradient, full_loss
from jaxfl.training.loop import sum_parts
from jaxfl.training.objectives import masked_mean
from jaxfl.training.trainer import trainer

# Padding may stand anywhere; the second client has no examples.
MASK = np.array([[0, 1, 1, 0, 1, 1, 0, 1, 0], [0] * 9])
X = np.random.default_rng(0).normal(size=(2, 9, 3)).astype(np.float32)
Y = np.sum(X, axis=2)
START = jnp.zeros((2, 3))


def data(padding):
    x = np.where(MASK[..., None], X, padding).astype(np.float32)
    y = np.where(MASK, Y, padding).astype(np.float32)
    return Dataset(jnp.asarray(x), jnp.asarray(y), jnp.asarray(MASK, bool))


def loss(w, batch, anchor, key):
    value = masked_mean(jnp.square(batch.x @ w - batch.y), batch.mask)
    return value, value


def everything(padding, models=START):
    """The results of all functions that read the clients' examples in parts."""
    examples, key, ids = data(padding), jax.random.key(0), jnp.arange(2)
    cohort = Cohort(ids, examples, examples)
    fits = [
        trainer(loss, optax.sgd(0.1), batch_size=2, **options)(key, models, None, cohort).params
        for options in ({"steps": 4}, {"epochs": 2}, {"epochs": 1, "chunk": 1})
    ]
    grads = full_gradient(loss, batch_size=2)(key, models, examples, ids)
    losses = full_loss(loss, batch_size=4)(key, models, examples, ids)
    return fits, grads.loss, grads.grads, losses


@pytest.mark.long
@pytest.mark.parametrize("padding", [np.nan, np.inf])
def test_padding_that_is_not_finite_changes_no_bit(padding):
    jax.tree.map(np.testing.assert_array_equal, everything(padding), everything(0.0))


@pytest.mark.slow
def test_padding_that_is_not_finite_changes_no_derivative_in_reverse_mode():
    """The second client has no examples, and a pass over its data has steps without any."""

    def total(models, padding):
        return sum(x.sum() for x in jax.tree.leaves(everything(padding, models)))

    grads = [jax.grad(total)(jnp.ones((2, 3)), padding) for padding in (np.nan, 0.0)]
    assert np.isfinite(grads[1]).all()
    np.testing.assert_array_equal(*grads)


def test_parts_are_those_of_numpy_whatever_padding_holds():
    examples = jax.tree.map(lambda x: x[0], data(np.nan))
    sums = sum_parts(lambda part: jnp.sum(jnp.square(part.x) * part.mask[:, None], 0), examples, 2)
    expected = np.square(X[0][MASK[0] == 1]).sum(axis=0)
    np.testing.assert_allclose(sums, expected, rtol=1e-6)
