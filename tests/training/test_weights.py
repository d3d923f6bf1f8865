"""Weights of examples in losses and gradients, against the mathematics in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import linear, quick_key

from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort, Dataset
from jaxfl.training.acceptance import accept_validated
from jaxfl.training.gradients import full_gradient, full_loss, private
from jaxfl.training.objectives import data_loss
from jaxfl.training.trainer import trainer

SIZES = [9, 6]
RATE = 0.5


def toy(rubbish=np.nan):
    """Two clients whose examples weigh between 0 and 3, with padding that is not a number."""
    rng = np.random.default_rng(0)
    mask = np.arange(9)[None] < np.array(SIZES)[:, None]
    x = np.where(mask[..., None], rng.normal(size=(2, 9, 8)), rubbish).astype(np.float32)
    y = rng.integers(0, 2, size=(2, 9)).astype(np.int32)
    weight = np.where(mask, rng.uniform(0, 3, size=(2, 9)), rubbish).astype(np.float32)
    weight[0, :5] = 0
    return Dataset(*map(jnp.asarray, (x, y, mask, weight)))


def models():
    return jax.vmap(linear().problem.init)(jax.random.split(quick_key(1), 2))


def of_numpy(params, data, client):
    """The loss sum w l / sum w of a client, and its gradient by the kernel and by the bias."""
    layer = jax.tree.map(lambda leaf: np.asarray(leaf[client], float), params["params"]["Dense_0"])
    size = SIZES[client]
    x, y, w = (np.asarray(leaf[client, :size], float) for leaf in (data.x, data.y, data.weight))
    logits = x @ layer["kernel"] + layer["bias"]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = np.eye(2)[y.astype(int)]
    residuals = (w / w.sum())[:, None] * (p - label)
    loss = -np.sum(w * np.log(p[np.arange(size), y.astype(int)])) / w.sum()
    return loss, x.T @ residuals, residuals.sum(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("micro", [None, 2])
def test_losses_and_gradients_are_weighted_means(micro):
    params, data, ids = models(), toy(), jnp.arange(2)
    loss = data_loss(linear().problem)
    key = quick_key(0)
    answer = full_gradient(loss, batch_size=4, micro=micro)(key, params, data, ids)
    losses = full_loss(loss, batch_size=4, micro=micro)(key, params, data, ids)
    # One step on all examples of a client is a step down this gradient.
    fit = trainer(loss, optax.sgd(RATE), batch_size=10, steps=1, micro=micro)
    fitted = fit(key, params, None, Cohort(ids, data, data))
    for client in range(2):
        value, kernel, bias = of_numpy(params, data, client)
        np.testing.assert_allclose(answer.loss[client], value, rtol=1e-5)
        np.testing.assert_allclose(losses[client], value, rtol=1e-5)
        np.testing.assert_allclose(fitted.loss[client], value, rtol=1e-5)
        grads = answer.grads["params"]["Dense_0"]
        np.testing.assert_allclose(grads["kernel"][client], kernel, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(grads["bias"][client], bias, rtol=1e-4, atol=1e-6)
        before, after = (tree["params"]["Dense_0"]["kernel"] for tree in (params, fitted.params))
        step = before[client] - RATE * kernel
        np.testing.assert_allclose(after[client], step, rtol=1e-4, atol=1e-6)


def test_weights_change_no_number_of_examples_or_batches():
    data = toy()
    cohort = Cohort(jnp.arange(2), data, data)
    assert cohort.sizes.tolist() == [18, 12]
    fit = trainer(data_loss(linear().problem), optax.sgd(RATE), batch_size=4, epochs=1)
    assert fit(quick_key(0), models(), None, cohort).batches.tolist() == [3, 2]


def test_a_batch_whose_examples_all_weigh_nothing_changes_nothing():
    data = toy()._replace(weight=jnp.zeros((2, 9)))
    fit = trainer(data_loss(linear().problem), optax.sgd(RATE), batch_size=4, steps=3, micro=2)
    fitted = fit(quick_key(0), models(), None, Cohort(jnp.arange(2), data, data))
    jax.tree.map(np.testing.assert_array_equal, fitted.params, models())
    assert fitted.loss.tolist() == [0, 0]


def test_weights_and_clipping_example_by_example_are_refused_together():
    loss = data_loss(linear().problem)
    model = linear().problem.init(quick_key(0))
    batch = jax.tree.map(lambda leaf: leaf[0], toy(0.0))
    with pytest.raises(InputError, match="leave out one of the two"):
        private(loss, 1.0, 0.0)(model, batch, None, quick_key(0))


@pytest.mark.slow
def test_a_client_accepts_by_the_weighted_mean_of_its_validation_losses():
    """The offer is better on the example that weighs much, and worse on the three others."""
    task = linear()
    own = jax.tree.map(jnp.zeros_like, task.problem.init(quick_key(0)))
    layer = {"kernel": jnp.zeros((8, 2)).at[0, 1].set(2.0), "bias": jnp.zeros(2)}
    offer = {"params": {"Dense_0": layer}}
    x = np.zeros((1, 4, 8), np.float32)
    x[..., 0] = 1
    y = np.array([[1, 0, 0, 0]], np.int32)
    mask = np.ones((1, 4), bool)
    accept = accept_validated(task.problem, task.evaluate)
    stacked = [jax.tree.map(lambda leaf: leaf[None], model) for model in (own, offer)]
    for weight, accepted in ((None, False), ([[30.0, 1.0, 1.0, 1.0]], True)):
        data = Dataset(*map(jnp.asarray, (x, y, mask)), weight and jnp.array(weight))
        cohort = Cohort(jnp.arange(1), data, data)
        assert accept(*stacked, cohort)[1].tolist() == [accepted]
