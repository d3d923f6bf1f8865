"""Local training with clipped gradients and noise, against a loop over examples in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from toys import close, equal, linear, quick_key, stack

from jaxfl.algorithms import pfedme
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort, Dataset
from jaxfl.training.batches import minibatches
from jaxfl.training.gradients import private
from jaxfl.training.objectives import masked_mean
from jaxfl.training.trainer import trainer

RNG = np.random.default_rng(0)
SIZES = (9, 5)
B = 4
XS = [RNG.normal(size=(n, 3)).astype(np.float32) for n in SIZES]
YS = [3 * RNG.normal(size=n).astype(np.float32) for n in SIZES]
START = {"w": jnp.ones((2, 3)), "b": jnp.zeros(2)}


def objective(params, batch, anchor, key):
    loss = masked_mean(jnp.square(batch.x @ params["w"] + params["b"] - batch.y), batch.mask)
    return loss + 0.05 * jnp.sum(params["w"] ** 2), loss


def cohort(pad=0, rubbish=0.0):
    data = stack(XS, YS, pad, rubbish)
    return Cohort(jnp.array([5, 2]), data, data)


def looped(x, y, key, clip, rate, **amount):
    """The training of one client, example by example, without noise."""
    order_key, _ = jax.random.split(key)
    rows, counts = minibatches(order_key, jnp.ones(len(y), bool), B, **amount)
    w = np.ones(3)
    b = 0.0
    losses = []
    for r, c in zip(np.asarray(rows), np.asarray(counts), strict=True):
        total = np.zeros(4)
        loss = 0.0
        for i in r[c]:
            gap = x[i] @ w + b - y[i]
            gradient = np.array([*(2 * gap * x[i] + 0.1 * w), 2 * gap])
            total += gradient * min(1, clip / np.linalg.norm(gradient))
            loss += gap**2
        if c.any():
            w = w - rate * total[:3] / c.sum()
            b = b - rate * total[3] / c.sum()
            losses.append(loss / c.sum())
    return w, b, np.mean(losses)


@pytest.mark.long
@pytest.mark.parametrize("amount", [{"steps": 7}, {"epochs": 2}], ids=["steps", "epochs"])
def test_clipping_equals_a_loop_over_examples_and_padding_adds_nothing(amount):
    """The last batch of an epoch is short, and padded rows hold NaN."""
    key = quick_key(1)
    fit = jax.jit(trainer(objective, optax.sgd(0.1), batch_size=B, example_clip=1.5, **amount))
    fitted, loss, taken = fit(key, START, None, cohort())
    for i, number in enumerate((5, 2)):
        w, b, mean = looped(XS[i], YS[i], jax.random.fold_in(key, number), 1.5, 0.1, **amount)
        np.testing.assert_allclose(fitted["w"][i], w, atol=1e-5)
        np.testing.assert_allclose(fitted["b"][i], b, atol=1e-5)
        np.testing.assert_allclose(loss[i], mean, rtol=1e-5)
    if "steps" in amount:
        padded = fit(key, START, None, cohort(pad=3, rubbish=np.nan))
        close(tuple(padded), (fitted, loss, taken), 1e-6)


def test_a_wide_clip_is_plain_training():
    options = {"batch_size": B, "steps": 3}
    plain = trainer(objective, optax.sgd(0.01), **options)(quick_key(0), START, None, cohort())
    close(
        trainer(objective, optax.sgd(0.01), example_clip=1e6, **options)(
            quick_key(0), START, None, cohort()
        ),
        plain,
    )


def flat(params, batch, anchor, key):
    return jnp.zeros(()), jnp.zeros(())


@pytest.mark.slow
def test_the_noise_of_a_batch_is_divided_by_its_real_examples():
    wide = {"w": jnp.zeros(4000), "b": jnp.zeros(1000)}
    batch = Dataset(jnp.zeros((8, 3)), jnp.zeros(8), jnp.arange(8) < 5)
    draw = private(flat, 2.0, 1.5)
    found, aux = draw(wide, batch, None, quick_key(0))
    noise = np.concatenate([found["w"], found["b"]])
    assert noise.mean() == pytest.approx(0, abs=5 * 0.6 / np.sqrt(5000))
    assert noise.std() == pytest.approx(2.0 * 1.5 / 5, rel=5 / np.sqrt(2 * 5000))
    assert aux == 0
    equal(found, draw(wide, batch, None, quick_key(0))[0])
    other = draw(wide, batch, None, quick_key(1))[0]
    assert abs(np.corrcoef(found["w"], other["w"])[0, 1]) < 5 / np.sqrt(4000)


@pytest.mark.slow
def test_each_client_and_each_step_has_different_noise():
    start = {"w": jnp.zeros((2, 3)), "b": jnp.zeros(2)}
    options = {"batch_size": 9, "example_clip": 1.0, "example_noise": 1.0}
    one, two = (
        np.asarray(
            trainer(flat, optax.sgd(1.0), steps=s, **options)(quick_key(0), start, None, cohort())[
                0
            ]["w"]
        )
        for s in (1, 2)
    )
    assert (one[0] / 5 != one[1] / 9).all()
    second = two - one
    assert (np.abs(second - one) > 1e-4).all()


@pytest.mark.slow
def test_each_example_has_different_random_numbers_in_the_objective():
    def noisy(params, batch, anchor, key):
        return params["w"] @ jax.random.normal(key, (3,)), jax.random.uniform(key)

    batch = Dataset(jnp.zeros((2, 3)), jnp.zeros(2), jnp.ones(2, bool))
    params = {"w": jnp.zeros(3)}
    keys = jax.random.split(jax.random.split(quick_key(7))[1], 2)
    found, _ = private(noisy, 1e6, 0.0)(params, batch, None, quick_key(7))
    drawn = jax.vmap(lambda key: jax.random.normal(key, (3,)))(keys)
    np.testing.assert_allclose(found["w"], drawn.mean(axis=0), rtol=1e-6)
    assert (drawn[0] != drawn[1]).all()


def test_a_model_without_parameters_has_an_empty_gradient():
    """Such as the body of a model that is all head."""

    def constant(params, batch, anchor, key):
        return jnp.mean(batch.x), jnp.float32(3)

    batch = Dataset(jnp.ones(2), jnp.zeros(2), jnp.ones(2, bool))
    found, loss = private(constant, 1.0, 1.0)({"w": None}, batch, None, quick_key(7))
    assert found == {"w": None}
    assert loss == 3


def test_bad_numbers():
    with pytest.raises(InputError, match=r"example_clip is 0\.0: expected a positive number"):
        trainer(objective, optax.sgd(0.1), batch_size=B, steps=1, example_clip=0.0)
    with pytest.raises(InputError, match=r"example_noise is -1\.0: expected a non-negative number"):
        trainer(
            objective, optax.sgd(0.1), batch_size=B, steps=1, example_clip=1.0, example_noise=-1.0
        )
    with pytest.raises(InputError, match="trains on a batch as a whole"):
        pfedme(linear(example_clip=1.0))
