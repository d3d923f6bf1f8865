"""Loops end when the work does: what is computed, and the same results and derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import close, equal, full, linear, opposite_groups, quick_key, stack

import jaxfl
from jaxfl.core.types import Cohort, Dataset
from jaxfl.training import batches
from jaxfl.training.batches import minibatches
from jaxfl.training.gradients import full_gradient, full_loss
from jaxfl.training.loop import repeat, repeat_in_lanes, sum_parts
from jaxfl.training.objectives import masked_mean
from jaxfl.training.trainer import trainer

TARGETS = np.arange(30, dtype=np.float32).reshape(5, 6) / 10
COUNTS = [0, 3, 5, 1, 0, 2, 4]


class Counter:
    """Counts how often a program reaches a place."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1

    def read(self, results):
        """The count of one run, whose results are given."""
        jax.block_until_ready(results)
        jax.effects_barrier()
        times = self.times
        self.times = 0
        return times


def counted(counter):
    """Mean squares of a linear model, which count the batches on which they are computed."""

    def objective(params, batch, anchor, key):
        # The argument makes the callback run once for each client under `vmap`.
        jax.debug.callback(lambda _: counter(), batch.mask)
        loss = masked_mean(jnp.square(batch.x @ params["w"] - batch.y), batch.mask)
        return loss, loss

    return objective


def mean_squares(params, batch, anchor, key):
    loss = masked_mean(jnp.square(batch.x @ params["w"] - batch.y), batch.mask)
    return loss, loss


def cohort(sizes, pad=0):
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=(n, 3)).astype(np.float32) for n in sizes]
    ys = [rng.normal(size=n).astype(np.float32) for n in sizes]
    data = stack(xs, ys, pad)
    return Cohort(jnp.arange(len(sizes)), data, data)


def start(clients):
    return {"w": jnp.ones((clients, 3))}


def by_hand(rate, w, count, pull):
    for number in range(count):
        w = w - rate * (w - TARGETS[number] - pull) * jnp.cos(w)
    return w


def advance(rate, w, number, pull):
    return w - rate * (w - jnp.asarray(TARGETS)[number] - pull) * jnp.cos(w)


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_loop_has_the_result_and_the_derivatives_of_its_steps(count):
    def looped(rate, w):
        def step(carry, number):
            return advance(rate, carry[0], number, 0.5), carry[1] + 1

        end, steps = repeat(step, (w, jnp.zeros((), int)), jnp.array(count), most=5)
        return jnp.sum(end**2), (end, steps)

    def expected(rate, w):
        end = by_hand(rate, w, count, 0.5)
        return jnp.sum(end**2), (end, count)

    w = jnp.linspace(-1, 1, 6)
    found = jax.jit(jax.value_and_grad(looped, argnums=(0, 1), has_aux=True))(0.1, w)
    close(found, jax.value_and_grad(expected, argnums=(0, 1), has_aux=True)(0.1, w))
    forward = jax.jvp(lambda rate: looped(rate, w)[0], (0.1,), (1.0,))[1]
    close(forward, found[1][0])


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 2, 7])
def test_lanes_have_the_results_and_the_derivatives_of_single_loops(lanes):
    starts = jnp.linspace(-1, 1, 7 * 6).reshape(7, 6)

    def together(rate):
        def step(client, carry, number):
            return advance(rate, carry, number, client.astype(float) / 7)

        ends = repeat_in_lanes(step, starts, jnp.array(COUNTS), lanes=lanes, most=5)
        return jnp.sum(ends**2), ends

    def alone(rate):
        ends = [
            by_hand(rate, w, n, c / 7) for c, w, n in zip(range(7), starts, COUNTS, strict=True)
        ]
        return jnp.sum(jnp.stack(ends) ** 2), jnp.stack(ends)

    close(
        jax.jit(jax.value_and_grad(together, has_aux=True))(0.1),
        jax.value_and_grad(alone, has_aux=True)(0.1),
    )


def test_lanes_take_no_more_steps_than_a_good_schedule():
    """Clients of 5, 4, 3, 2 and 1 steps fit into three lanes of five steps."""
    counter = Counter()

    def step(client, carry, number):
        jax.debug.callback(lambda _: counter(), carry)
        return carry + 1

    run = jax.jit(lambda counts: repeat_in_lanes(step, jnp.zeros(7), counts, lanes=3, most=5))
    ends = run(jnp.array(COUNTS))
    assert ends.tolist() == COUNTS
    assert counter.read(ends) == 3 * 5


@pytest.mark.parametrize(("chunk", "computed"), [(1, 10), (2, 2 * 6), ("all", 3 * 6)])
def test_local_training_computes_only_batches_with_examples(chunk, computed):
    """Two epochs of 5, 2 and 1 examples in batches of 2 are 6, 2 and 2 steps.

    Of two clients side by side, one takes 6 steps and the other place takes 2 and 2. All side by
    side take 6 steps.
    """
    counter = Counter()
    clients = cohort([5, 2, 1], pad=9)
    fit = jax.jit(trainer(counted(counter), jaxfl.sgd(0.1), batch_size=2, epochs=2, chunk=chunk))
    fitted = fit(quick_key(0), start(3), None, clients)
    assert fitted.batches.tolist() == [6, 2, 2]
    assert counter.read(fitted) == computed


@pytest.mark.slow
def test_many_clients_side_by_side_compute_little_more_than_their_batches(monkeypatch):
    """Twelve clients, of which one has 20 batches and the others have 1, in three places."""
    monkeypatch.setattr("jaxfl.training.trainer.MANY", 12)
    counter = Counter()
    sizes = [1, 1, 40, *[2] * 9]
    clients = cohort(sizes)
    options = {"batch_size": 2, "epochs": 1}
    fit = jax.jit(trainer(counted(counter), jaxfl.sgd(0.1), chunk="all", **options))
    arguments = (quick_key(0), start(12), None, clients)
    fitted = fit(*arguments)
    assert counter.read(fitted) == 3 * 20
    alone = trainer(mean_squares, jaxfl.sgd(0.1), chunk=1, **options)(*arguments)
    close(fitted, alone, 1e-6)


@pytest.mark.slow
def test_lanes_train_clients_with_their_own_anchors_and_random_numbers():
    def pulled(params, batch, anchor, key):
        loss, aux = mean_squares(params, batch, None, key)
        noise = jnp.sum(params["w"] * jax.random.normal(key, (3,)))
        return loss + noise + jnp.sum((params["w"] - anchor["w"]) ** 2), aux

    clients = cohort([5, 0, 7, 1, 9])
    clients = clients._replace(ids=jnp.array([8, 1, 4, 6, 0]))
    anchors = {"w": jnp.arange(15.0).reshape(5, 3) / 10}
    fitted = {
        chunk: trainer(pulled, jaxfl.sgd(0.01), batch_size=2, epochs=2, chunk=chunk)(
            quick_key(0), start(5), anchors, clients
        )
        for chunk in (1, 2, "all")
    }
    assert fitted[1].batches.tolist() == [6, 0, 8, 2, 10]
    equal(fitted[1].params["w"][1], jnp.ones(3))
    close(fitted[2], fitted[1], 1e-6)
    close(fitted["all"], fitted[1], 1e-6)


@pytest.mark.parametrize("of_all", [full_gradient, full_loss])
def test_all_data_of_a_client_are_computed_without_their_padding(of_all):
    """5, 0 and 2 examples in parts of 2 are 3, 0 and 1 parts."""
    counter = Counter()
    data = cohort([5, 0, 2], pad=9).train
    ask = jax.jit(of_all(counted(counter), batch_size=2, chunk=1))
    found = ask(quick_key(0), start(3), data, jnp.arange(3))
    assert counter.read(found) == 4


@pytest.mark.parametrize("size", [1, 3, 7, 20])
def test_sums_over_parts_take_every_example_once(size):
    data = Dataset(jnp.arange(9.0), jnp.ones((9, 2)), jnp.arange(9) < 7)
    total = sum_parts(lambda part: {"x": part.mask @ part.x, "y": part.mask @ part.y}, data, size)
    assert total["x"] == 21
    assert total["y"].tolist() == [7, 7]


@pytest.mark.parametrize("n", [1, 1000, 70_000])
def test_random_numbers_are_sorted_as_numpy_sorts_them(n):
    """Many are equal in one half or in both, and more than 2^16 take another way."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, n, dtype=np.uint32)
    bits[rng.integers(0, n, n // 3)] = 2**32 - 1
    bits[rng.integers(0, n, n // 3)] &= 3
    bits[rng.integers(0, n, n // 3)] &= 0xFFFF0000
    found = jax.jit(batches._stable_argsort)(jnp.asarray(bits))
    np.testing.assert_array_equal(found, np.argsort(bits, kind="stable"))


@pytest.mark.slow
def test_epochs_have_the_order_of_as_many_steps():
    mask = jnp.arange(40) < 23
    by_epochs = minibatches(quick_key(3), mask, 4, epochs=3)
    by_steps = minibatches(quick_key(3), mask, 4, steps=18)
    counts = by_steps[1]
    np.testing.assert_array_equal(by_epochs[1][:18], counts)
    np.testing.assert_array_equal(by_epochs[0][:18][counts], by_steps[0][counts])
    assert not by_epochs[1][18:].any()


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [1, 2, "all"])
def test_a_gradient_goes_back_through_rounds_of_epochs(chunk):
    """The derivative by the learning rate in reverse and forward mode, and by a difference."""
    data = opposite_groups(clients=4, sizes=[20, 7, 12, 5], pad=3)

    @jax.jit
    def loss(rate):
        task = linear.__wrapped__(
            steps=None, epochs=2, chunk=chunk, optimizer=jaxfl.sgd(rate, momentum=0.5)
        )
        algorithm = jaxfl.algorithms.fedavg(task)
        rounds = jaxfl.make_rounds(algorithm, full(4))
        key = quick_key(0)
        state, _ = rounds(key, data, algorithm.init(key, data.train), 0, 2)
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(state))

    backward = jax.jit(jax.grad(loss))(0.1)
    _, forward = jax.jit(lambda rate: jax.jvp(loss, (rate,), (1.0,)))(0.1)
    np.testing.assert_allclose(backward, forward, rtol=1e-5)
    np.testing.assert_allclose(backward, (loss(0.11) - loss(0.09)) / 0.02, rtol=0.05)
