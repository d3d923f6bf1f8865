"""Optimisers by name, and learning rates that change from round to round."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxfl
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort, Dataset
from jaxfl.experiment import Setting
from jaxfl.experiment.session.make_task import make_optimizer
from jaxfl.training.objectives import data_loss
from jaxfl.training.optimizers import OPTIMIZERS, SCHEDULES
from tests.toys import close, differ, equal, linear, normed, opposite_groups, run

KEY = jax.random.key(0)
DATA = opposite_groups()


def only_in_round_0(number):
    """SGD whose learning rate is 0 after round 0."""
    return jaxfl.sgd(jnp.where(number == 0, 0.1, 0.0), weight_decay=0.0)


def parameters(model):
    return model.get("params", model)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        ("exponential", {0: 0.8, 1: 0.4, 3: 0.1}),
        ("step", {0: 0.8, 2: 0.8, 3: 0.4, 5: 0.4, 6: 0.2}),
        ("cosine", {0: 0.8, 4: 0.4, 8: 0.0}),
    ],
)
def test_a_schedule_starts_at_the_given_rate_and_falls(name, rates):
    schedule = SCHEDULES[name](0.8, 8, 0.5, 3)
    assert {number: float(schedule(number)) for number in rates} == pytest.approx(rates, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("make", [linear, normed])
def test_a_round_has_its_own_rate_also_in_a_run_that_goes_on(make):
    algorithm = jaxfl.algorithms.fedavg(make(optimizer=only_in_round_0))
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(6))
    start = algorithm.init(KEY, DATA.train)
    once, _ = rounds(KEY, DATA, start, start=0, length=1)
    twice, _ = rounds(KEY, DATA, once, start=1, length=1)
    # The statistics of batches follow the data, whatever the rate.
    assert differ(parameters(start.server), parameters(once.server))
    close(parameters(once.server), parameters(twice.server))
    together, _ = rounds(KEY, DATA, start, start=0, length=2)
    equal(together, twice)


def test_fine_tuning_has_the_rate_of_the_round_that_is_given():
    task = linear(optimizer=only_in_round_0)
    algorithm = jaxfl.algorithms.fedavg(task)
    evaluate = jaxfl.make_evaluate(algorithm, task)
    state = algorithm.init(KEY, DATA.train)
    still = evaluate(KEY, DATA, state, jnp.arange(6), round=1)
    equal(still.deployed, still.fine_tuned)
    moved = evaluate(KEY, DATA, state, jnp.arange(6), round=0)
    assert (np.asarray(moved.fine_tuned.test) > np.asarray(moved.deployed.test)).any()
    with pytest.raises(InputError, match="round=0"):
        evaluate(KEY, DATA, state, jnp.arange(6))


def test_a_cohort_without_a_round_is_refused():
    algorithm = jaxfl.algorithms.fedavg(linear(optimizer=only_in_round_0))
    state = algorithm.init(KEY, DATA.train)
    with pytest.raises(InputError, match="no round is given"):
        algorithm.round(KEY, state, Cohort(jnp.arange(6), DATA.train, DATA.val))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_an_optimiser_goes_downhill_and_decays_weights(name):
    def walk(weight_decay):
        optimizer = OPTIMIZERS[name](0.1, 0.0, weight_decay)

        def step(carry, _):
            x, state = carry
            updates, state = optimizer.update(2 * (x - 1), state, x)
            return (optax.apply_updates(x, updates), state), None

        start = jnp.float32(3.0)
        return jax.lax.scan(step, (start, optimizer.init(start)), length=100)[0][0]

    assert 0.9 < walk(0.0) < 3.0
    assert walk(1.0) < walk(0.0)


def test_the_options_of_a_run_make_its_optimiser():
    gradient = jnp.float32(1.0)

    def change(optimizer):
        return float(optimizer.update(gradient, optimizer.init(gradient), jnp.float32(0.0))[0])

    options = {"schedule": "step", "decay": 0.25, "decay_every": 2}
    of_round = make_optimizer(Setting(lr=0.5, optimizer="adam", **options), 20)
    changes = [change(of_round(number)) for number in range(4)]
    assert changes == pytest.approx([-0.5, -0.5, -0.125, -0.125], rel=1e-4)
    cosine = make_optimizer(Setting(lr=0.5, schedule="cosine"), 10)
    assert change(cosine(5)) == pytest.approx(-0.25)
    constant = make_optimizer(Setting(lr=0.5), 20)
    assert change(constant) == -0.5


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("by_round", [False, True], ids=["all rounds", "by round"])
def test_steps_of_several_batches_are_those_of_their_mean_gradient(momentum, by_round):
    """Three epochs of four batches of two examples are three steps of eight, in NumPy."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 3)).astype(np.float32)
    y = rng.normal(size=8).astype(np.float32)
    optimizer = optax.MultiSteps(jaxfl.sgd(0.1, momentum, 0.0), 4)
    task = jaxfl.regression(
        jaxfl.models.linear(),
        x[0],
        optimizer=(lambda number: optimizer) if by_round else optimizer,
        batch_size=2,
        epochs=3,
    )
    start = jax.tree.map(jnp.zeros_like, task.problem.init(jax.random.key(0)))
    train = Dataset(jnp.asarray(x[None]), jnp.asarray(y[None]), jnp.ones((1, 8), bool))
    cohort = Cohort(jnp.arange(1), train, train, 0)
    fit = task.trainer(data_loss(task.problem))
    fitted = fit(jax.random.key(0), jaxfl.tree.broadcast(start, 1), None, cohort)

    inputs = np.concatenate([x, np.ones((8, 1))], axis=1)
    weights, speed = np.zeros(4), np.zeros(4)
    for _ in range(3):
        speed = momentum * speed + 2 * inputs.T @ (inputs @ weights - y) / 8
        weights = weights - 0.1 * speed
    learned = fitted.params["params"]["Dense_0"]
    np.testing.assert_allclose(learned["kernel"][0, :, 0], weights[:3], atol=1e-6)
    np.testing.assert_allclose(learned["bias"][0], weights[3:], atol=1e-6)
    assert fitted.batches.tolist() == [12]


@pytest.mark.slow
def test_statistics_move_with_each_batch_whatever_the_optimiser_collects():
    """Four batches are one step of the parameters, and four of the statistics."""
    shares = []
    for optimizer in (jaxfl.sgd(0.0, 0.0, 0.0), optax.MultiSteps(jaxfl.sgd(0.0, 0.0, 0.0), 4)):
        algorithm = jaxfl.algorithms.fedavg(normed(optimizer=optimizer, steps=4))
        state, _, _ = run(algorithm, DATA, 1)
        shares.append(state.server["batch_stats"])
    close(*shares)


@pytest.mark.parametrize(
    ("optimizer", "words"),
    [
        (
            optax.lbfgs(),
            "needs more than the gradient .* 'grad', and 'value_fn'",
        ),
        (optax.chain(optax.clip(1.0), optax.polyak_sgd()), "needs more than .* .'value'."),
        (optax.contrib.schedule_free_sgd(0.1), "has two sets of parameters"),
        (optax.lookahead(optax.sgd(0.1), 5, 0.5), "has two sets of parameters"),
    ],
    ids=["line search", "value of the loss", "schedule-free", "lookahead"],
)
def test_an_optimiser_that_takes_more_than_gradients_is_refused(optimizer, words):
    algorithm = jaxfl.algorithms.local(linear(optimizer=optimizer))
    with pytest.raises(InputError, match=words):
        run(algorithm, DATA, 1)
