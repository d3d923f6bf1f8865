import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import close, equal, quick_key, stack

from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort, Dataset
from jaxfl.training.batches import minibatches
from jaxfl.training.gradients import accumulated_gradient, full_gradient
from jaxfl.training.objectives import masked_mean
from jaxfl.training.trainer import trainer


def order(key, real, padded, batch, **amount):
    mask = np.arange(padded) < real
    rows, counts = minibatches(quick_key(key), jnp.asarray(mask), batch, **amount)
    return np.asarray(rows), np.asarray(counts)


cases = st.sampled_from([(1, 4, 3), (7, 7, 3), (7, 12, 3), (6, 9, 3), (5, 5, 8)])


@pytest.mark.slow(seconds=15)
@settings(deadline=None, max_examples=25)
@given(cases, st.integers(0, 1000))
def test_every_epoch_visits_each_example_once_and_its_last_batch_is_short(case, key):
    real, padded, batch = case
    rows, counts = order(key, real, padded, batch, epochs=3)
    per_epoch = -(-real // batch)
    active = counts.any(axis=1)
    assert active.sum() == 3 * per_epoch
    assert active[: 3 * per_epoch].all()
    for epoch in range(3):
        block = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        assert sorted(rows[block][counts[block]]) == list(range(real))
        assert counts[block].sum(axis=1).tolist() == [batch] * (real // batch) + (
            [real % batch] if real % batch else []
        )


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(cases, st.integers(0, 1000))
def test_steps_run_through_epochs_and_reshuffle(case, key):
    real, padded, batch = case
    rows, counts = order(key, real, padded, batch, steps=11)
    per_epoch = -(-real // batch)
    assert counts.any(axis=1).all()
    for epoch in range(11 // per_epoch):
        block = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        assert sorted(rows[block][counts[block]]) == list(range(real))


@pytest.mark.slow
def test_epochs_have_different_orders():
    rows, _ = order(0, 30, 30, 30, epochs=4)
    assert len({tuple(row) for row in rows}) == 4


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000))
def test_the_order_does_not_depend_on_padding(key):
    lean = order(key, 7, 7, 3, steps=9)
    wide = order(key, 7, 12, 3, steps=9)
    np.testing.assert_array_equal(lean[1], wide[1])
    np.testing.assert_array_equal(lean[0][lean[1]], wide[0][wide[1]])


def test_steps_that_are_epochs_have_the_order_of_the_sequence():
    """Clients of 5 and 6 examples and batches of 6: a longer array is sorted as a sequence."""
    for real in (5, 6):
        lean = order(3, real, 6, 6, steps=9)
        wide = order(3, real, 7, 6, steps=9)
        np.testing.assert_array_equal(lean[1], wide[1])
        np.testing.assert_array_equal(lean[0][lean[1]], wide[0][wide[1]])


@pytest.mark.slow
def test_padding_may_stand_anywhere():
    mask = jnp.array([False, True, False, True, True])
    rows, counts = minibatches(quick_key(0), mask, 2, epochs=1)
    assert sorted(np.asarray(rows)[np.asarray(counts)]) == [1, 3, 4]


def test_a_client_without_data_takes_no_step():
    _, counts = order(0, 0, 5, 2, steps=4)
    assert not counts.any()


def mean_squares(params, batch, anchor, key):
    loss = masked_mean(jnp.square(batch.x @ params["w"] - batch.y), batch.mask)
    return loss, loss


def cohort(sizes=(9, 4), features=3, pad=0):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, features)).astype(np.float32) for n in sizes]
    ys = [rng.normal(size=n).astype(np.float32) for n in sizes]
    data = stack(xs, ys, pad)
    return Cohort(jnp.array([5, 2]), data, data), xs, ys


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimizer", [optax.sgd(0.1, 0.9), optax.adam(0.05)], ids=["momentum", "adam"]
)
@pytest.mark.parametrize("amount", [{"steps": 7}, {"epochs": 2}], ids=["steps", "epochs"])
def test_fit_equals_a_loop_over_clients_and_batches(optimizer, amount):
    clients, xs, ys = cohort(pad=3)
    key = quick_key(1)
    start = {"w": jnp.ones((2, 3))}
    fitted, loss, taken = trainer(mean_squares, optimizer, batch_size=4, **amount)(
        key, start, None, clients
    )
    for i in range(2):
        order_key, _ = jax.random.split(jax.random.fold_in(key, int(clients.ids[i])))
        rows, counts = minibatches(order_key, clients.train.mask[i], 4, **amount)
        params = {"w": jnp.ones(3)}
        losses = []
        state = optimizer.init(params)
        for r, c in zip(np.asarray(rows), np.asarray(counts), strict=True):
            if c.any():
                x = xs[i][r[c]]
                y = ys[i][r[c]]
                value, gradient = jax.value_and_grad(
                    lambda p, x=x, y=y: jnp.mean((x @ p["w"] - y) ** 2)
                )(params)
                updates, state = optimizer.update(gradient, state, params)
                params = optax.apply_updates(params, updates)
                losses.append(value)
        np.testing.assert_allclose(fitted["w"][i], params["w"], atol=1e-6)
        np.testing.assert_allclose(loss[i], np.mean(losses), rtol=1e-5)
        assert taken[i] == len(losses)


@pytest.mark.parametrize("micro", [1, 2, 4, 3])
def test_micro_batches_give_the_same_gradient(micro):
    """Parts of short batches have different sizes; a term without examples counts once."""

    def pulled(params, batch, anchor, key):
        loss, aux = mean_squares(params, batch, anchor, key)
        return loss + 0.5 * jnp.sum((params["w"] - anchor) ** 2), aux

    clients, _, _ = cohort((9, 6))
    options = {"batch_size": 4, "steps": 5}
    arguments = (quick_key(0), {"w": jnp.ones((2, 3))}, jnp.zeros((2, 3)), clients)
    whole = trainer(pulled, optax.sgd(0.1), **options)(*arguments)
    close(trainer(pulled, optax.sgd(0.1), micro=micro, **options)(*arguments), whole)


def test_parts_of_a_batch_have_sums_in_float32():
    """64 terms of 1 + 1/64 in bfloat16 parameters: sums in bfloat16 would lose the fractions."""

    def linear_loss(params, batch, anchor, key):
        x = batch.x.astype(params.dtype)
        return jnp.mean(x) * params, jnp.zeros(())

    batch = Dataset(jnp.ones(64) + 1 / 64, jnp.zeros(64), jnp.ones(64, bool))
    gradient = accumulated_gradient(linear_loss, batch_size=64, micro=1)
    grads, _ = jax.jit(gradient)(jnp.ones((), jnp.bfloat16), batch, None, quick_key(0))
    assert grads.dtype == jnp.bfloat16
    assert float(grads) == 1 + 1 / 64


@pytest.mark.slow
def test_an_empty_batch_changes_nothing():
    """Beside a large client, a small client's empty batches change no bit of its result."""
    alone, _, _ = cohort((4,))
    alone = alone._replace(ids=jnp.array([2]))
    beside, _, _ = cohort((9, 4))
    rng = np.random.default_rng(3)
    same = rng.normal(size=(4, 3)).astype(np.float32)
    alone = alone._replace(train=alone.train._replace(x=jnp.asarray(same)[None]))
    beside = beside._replace(train=beside.train._replace(x=beside.train.x.at[1, :4].set(same)))
    beside = beside._replace(
        train=beside.train._replace(y=beside.train.y.at[1, :4].set(alone.train.y[0]))
    )

    def noisy(params, batch, anchor, key):
        loss, aux = mean_squares(params, batch, anchor, key)
        return loss + jnp.sum(params["w"] * jax.random.normal(key, (3,))), aux

    fit = trainer(noisy, optax.adam(0.1), batch_size=4, epochs=2)
    key = quick_key(0)
    one, one_loss, _ = fit(key, {"w": jnp.zeros((1, 3))}, None, alone)
    two, two_loss, _ = fit(key, {"w": jnp.zeros((2, 3))}, None, beside)
    equal((one["w"][0], one_loss[0]), (two["w"][1], two_loss[1]))


def test_a_client_without_data_keeps_its_model():
    clients, _, _ = cohort()
    empty = clients.train._replace(mask=clients.train.mask.at[1].set(False))
    fit = trainer(mean_squares, optax.adam(0.1), batch_size=4, steps=3)
    fitted, loss, taken = fit(
        quick_key(0), {"w": jnp.ones((2, 3))}, None, clients._replace(train=empty)
    )
    equal(fitted["w"][1], jnp.ones(3))
    assert loss[1] == 0
    assert taken.tolist() == [3, 0]


def test_the_anchor_is_each_clients_own():
    def pulled(params, batch, anchor, key):
        loss, _ = mean_squares(params, batch, None, key)
        return 0 * loss + 0.5 * jnp.sum((params["w"] - anchor) ** 2), loss

    clients, _, _ = cohort()
    anchors = jnp.array([[1.0, 2, 3], [-1, 0, 1]])
    fit = trainer(pulled, optax.sgd(0.5), batch_size=4, steps=40)
    fitted = fit(quick_key(0), {"w": jnp.zeros((2, 3))}, anchors, clients).params
    close(fitted["w"], anchors)


@pytest.mark.parametrize("batch_size", [2, 16])
def test_the_full_gradient_is_that_of_the_weighted_mean_over_all_examples(batch_size):
    """Two clients by hand, and a third client without examples; padding changes no bit."""
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 3)).astype(np.float32) for n in (5, 3, 1)]
    ys = [rng.normal(size=n).astype(np.float32) for n in (5, 3, 1)]
    weights = rng.uniform(0.1, 2.0, size=(3, 5)).astype(np.float32)
    params = {"w": jnp.asarray(rng.normal(size=(3, 3)), jnp.float32)}

    def answers(pad):
        data = stack(xs, ys, pad, rubbish=1e3)
        mask = jnp.pad(jnp.asarray(weights), [(0, 0), (0, pad)]) * data.mask
        ask = full_gradient(mean_squares, batch_size=batch_size)
        return jax.jit(ask)(
            quick_key(0), params, data._replace(mask=mask.at[2].set(0.0)), jnp.arange(3)
        )

    loss, gradient, batches = answers(0)
    assert batches.tolist() == [-(-n // batch_size) for n in (*map(len, ys[:2]), 0)]
    equal((loss, gradient), answers(9)[:2])
    for i, (x, y) in enumerate(zip(xs[:2], ys[:2], strict=True)):
        relative = weights[i, : len(y)] / weights[i, : len(y)].sum()
        w = np.asarray(params["w"][i], np.float64)
        np.testing.assert_allclose(loss[i], relative @ (x @ w - y) ** 2, rtol=1e-5)
        np.testing.assert_allclose(gradient["w"][i], 2 * (relative * (x @ w - y)) @ x, rtol=1e-4)
    assert loss[2] == 0
    assert not gradient["w"][2].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either steps or epochs"),
        ({"steps": 1, "epochs": 1}, "either steps or epochs"),
        ({"steps": 0}, "steps of local training is 0"),
        ({"steps": 1, "batch_size": 0}, "batch size of local training is 0"),
        ({"steps": 1, "chunk": 0}, "chunk of local training is 0"),
        ({"steps": 1, "micro": 0}, "micro of local training is 0"),
    ],
)
def test_bad_amounts(options, message):
    with pytest.raises(InputError, match=message):
        trainer(mean_squares, optax.sgd(0.1), **({"batch_size": 4} | options))


@pytest.mark.parametrize("noise", [0.5, jnp.float32(0.5)])
def test_noise_on_examples_without_a_clip_is_refused(noise):
    with pytest.raises(InputError, match="example_noise is in units of example_clip"):
        trainer(mean_squares, optax.sgd(0.1), batch_size=4, steps=1, example_noise=noise)
