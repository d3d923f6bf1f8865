"""Pooled data, beside gradient descent in NumPy on the examples of all clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import close, opposite_groups, pick, quick_key, run, shallow

import jaxfl
from jaxfl.algorithms import pooled
from jaxfl.algorithms.pooled import pool
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort, Dataset, Federation

SIZES = [9, 4, 7]
RATE = 0.05


def numbers(rng, weighted=False):
    """Clients of different sizes with numbers as targets, and padding that nobody may read."""
    x = rng.normal(size=(3, 10, 2)).astype(np.float32)
    y = x @ np.array([1.0, -2.0], np.float32) + rng.normal(size=(3, 10)).astype(np.float32)
    mask = np.arange(10)[None] < np.array(SIZES)[:, None]
    x[~mask], y[~mask] = np.nan, np.nan
    weight = rng.uniform(0.5, 2.0, size=mask.shape).astype(np.float32) if weighted else None
    train = jax.tree.map(jnp.asarray, Dataset(x, y, mask, weight))
    return (
        Federation(train, train, train),
        x[mask],
        y[mask],
        None if weight is None else weight[mask],
    )


def descent(x, y, weight, steps):
    """Steps of gradient descent on the mean of the squared errors of a linear model from 0."""
    theta, bias = np.zeros(2), 0.0
    weight = np.ones(len(y)) if weight is None else weight
    share = weight.astype(np.float64) / weight.sum()
    for _ in range(steps):
        residual = share * 2 * (x.astype(np.float64) @ theta + bias - y)
        theta, bias = theta - RATE * residual @ x, bias - RATE * residual.sum()
    return np.array([*theta, bias])


def task(**amount):
    model = jaxfl.models.linear(1)
    plain = jaxfl.sgd(RATE, 0.0, 0.0)
    made = jaxfl.regression(model, np.zeros(2), optimizer=plain, batch_size=64, **amount)
    zero = jax.tree.map(jnp.zeros_like, made.problem.init(quick_key(0)))
    return made._replace(problem=made.problem._replace(init=lambda key: zero))


def parameters(model):
    kernel, bias = model["params"]["Dense_0"]["kernel"], model["params"]["Dense_0"]["bias"]
    return np.array([*np.ravel(kernel), *np.ravel(bias)])


@pytest.mark.long(every=4)
@pytest.mark.parametrize(("amount", "steps"), [({"steps": 4}, 12), ({"epochs": 4}, 4)])
@pytest.mark.parametrize("weighted", [False, True])
def test_one_model_takes_the_gradients_of_all_clients_on_all_examples(amount, steps, weighted):
    """M times the steps of a client, or as many epochs, in each of two rounds."""
    data, x, y, weight = numbers(np.random.default_rng(0), weighted)
    state, info, _ = run(pooled(task(**amount)), data, 2)
    expected = descent(x, y, weight, 2 * steps)
    np.testing.assert_allclose(parameters(state.server), expected, rtol=1e-4)
    assert info.batches.sum(axis=1).tolist() == [steps] * 2
    assert not info.up.any()
    assert not info.down.any()


def test_a_client_with_an_example_that_is_not_finite_is_left_out_and_named():
    data, x, y, _ = numbers(np.random.default_rng(1))
    spoilt = data._replace(train=data.train._replace(y=data.train.y.at[1, 3].set(jnp.inf)))
    state, info, _ = run(pooled(task(steps=4)), spoilt, 1)
    others = np.repeat([True, False, True], SIZES)
    expected = descent(x[others], y[others], None, 12)
    np.testing.assert_allclose(parameters(state.server), expected, rtol=1e-4)
    assert info.reported.tolist() == [[True, False, True]]


@pytest.mark.slow
def test_only_the_examples_of_the_cohort_train():
    data, x, y, _ = numbers(np.random.default_rng(2))
    cohort = Cohort(jnp.array([0, 2]), pick(data.train, [0, 2]), pick(data.val, [0, 2]))
    algorithm = pooled(task(steps=3))
    key = quick_key(0)
    state, _ = algorithm.round(key, algorithm.init(key, data.train), cohort)
    of_cohort = np.repeat([True, False, True], SIZES)
    expected = descent(x[of_cohort], y[of_cohort], None, 6)
    np.testing.assert_allclose(parameters(state.server), expected, rtol=1e-4)


def test_no_example_is_copied():
    """Many images are held once, whatever their clients."""
    data = Dataset(
        jnp.zeros((50, 4, 2, 2, 1), jnp.uint8), jnp.zeros((50, 4)), jnp.ones((50, 4), bool)
    )
    program = jax.make_jaxpr(pool)(data, jnp.arange(50), jnp.ones(50, bool))
    images = [one for one in program.eqns if one.outvars[0].aval.shape[1:] == (2, 2, 1)]
    assert [one.primitive.name for one in images] == ["reshape"]


@pytest.mark.slow
def test_local_work_of_one_that_stands_for_several():
    """`times` is a factor of the steps and not of the epochs."""
    data = opposite_groups()
    one = Cohort(jnp.arange(6), data.train, data.val)
    start = jax.tree.map(lambda x: jnp.stack([x] * 6), shallow().problem.init(quick_key(1)))
    loss = jaxfl.objectives.data_loss(shallow().problem)

    def fitted(**changes):
        return shallow().trainer(loss, **changes)(quick_key(0), start, None, one)

    close(fitted(steps=2, times=3), fitted(steps=6))
    close(fitted(steps=None, epochs=2, times=3), fitted(steps=None, epochs=2))
    with pytest.raises(InputError, match="times of local training is 0: expected 1 or more"):
        fitted(times=0)
