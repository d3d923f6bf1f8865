"""Regression: its loss, its score, and what it is trained to."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.linear_model import LinearRegression
from toys import differ, equal, opposite_groups
from toys import linear as logistic

import jaxfl
from jaxfl import tree
from jaxfl.errors import InputError
from jaxfl.models import linear, mlp
from jaxfl.types import Cohort, Dataset

KEY = jax.random.key(0)


def batch(outputs=(), seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    y = rng.normal(size=(12, *outputs)).astype(np.float32)
    return Dataset(jnp.asarray(x), jnp.asarray(y), jnp.arange(12) < 10)


@pytest.mark.parametrize("outputs", [(), (1,), (2,)])
def test_the_loss_is_the_mean_squared_error_of_real_examples(outputs):
    data = batch(outputs)
    task = jaxfl.regression(linear(*outputs), jnp.zeros(3))
    params = task.init(KEY)
    assert not any(x.any() for x in jax.tree.leaves(params))
    np.testing.assert_allclose(
        task.loss(params, data, None, KEY)[0], np.sum(data.y[:10] ** 2) / 10, rtol=1e-5
    )
    squares = np.sum(np.square(np.asarray(data.y)).reshape(12, -1), axis=1)
    np.testing.assert_allclose(task.score(task.apply(params, data.x), data.y), -squares, rtol=1e-5)


def test_training_reaches_least_squares():
    data = batch()
    task = jaxfl.regression(
        linear(), jnp.zeros(3), batch_size=12, steps=400, optimizer=optax.sgd(0.1)
    )
    stacked = jax.tree.map(lambda x: x[None], (task.init(KEY), data))
    fit = task.trainer(task.loss)
    model, _ = fit(
        jax.random.key(1), stacked[0], None, Cohort(jnp.arange(1), stacked[1], stacked[1])
    )
    best = LinearRegression().fit(data.x[:10], data.y[:10])
    layer = model["params"]["Dense_0"]
    np.testing.assert_allclose(layer["kernel"][0, :, 0], best.coef_, atol=1e-4)
    np.testing.assert_allclose(layer["bias"][0, 0], best.intercept_, atol=1e-4)
    assert "bias" not in linear(bias=False).init(KEY, data.x)["params"]["Dense_0"]


def test_targets_must_fit_the_model():
    task = jaxfl.regression(linear(2), jnp.zeros(3))
    with pytest.raises(
        InputError, match=r"predicts 2 numbers an example, the targets have shape \(12,\)"
    ):
        task.loss(task.init(KEY), batch(), None, KEY)


def test_features_are_what_enters_the_head():
    task = jaxfl.classification(mlp(3, hidden=(7,)), jnp.zeros(5))
    params, x = task.init(jax.random.key(0)), jax.random.normal(jax.random.key(1), (4, 5))
    head = params["params"][task.head]
    features = jax.jit(task.features)(params, x)
    assert features.shape == (4, 7)
    np.testing.assert_allclose(
        features @ head["kernel"] + head["bias"][None], task.apply(params, x), atol=1e-6
    )


def test_a_trainer_may_differ_in_steps_epochs_and_optimiser():
    data = opposite_groups()
    task, cohort = logistic(), Cohort(jnp.arange(6), data.train, data.val)
    start = tree.broadcast(task.init(jax.random.key(0)), 6)

    def trained(**changes):
        return task.trainer(task.loss, **changes)(jax.random.key(1), start, None, cohort)[0]

    equal(trained(), trained(steps=5))
    equal(trained(optimizer=optax.sgd(0.0)), start)
    assert differ(trained(), trained(steps=6))
    equal(trained(epochs=1), trained(steps=4))  # 32 examples in batches of 8


def test_batches_are_counted_as_training_takes_them():
    data = opposite_groups(clients=4, sizes=[40, 25, 9, 1])  # of which 32, 20, 8 and 1 train
    cohort = Cohort(jnp.arange(4), data.train, data.val)
    task = logistic()  # batches of 8
    assert task.batches(cohort).tolist() == [5, 5, 5, 5]
    assert task.batches(cohort, epochs=2).tolist() == [8, 6, 2, 2]
    assert logistic(steps=None, epochs=1).batches(cohort).tolist() == [4, 3, 1, 1]
