"""Statistics of BatchNorm and dropout in every method, and in options that the defaults leave out.

The first six features of client i are e_i, and the model normalises them as they come. So whatever
its parameters are, training leaves the mean e_i and the variance 0 in the statistics of client i's
model, and a mean of models with weights w has the mean w and, with the initial model, whose mean is
0 and variance 1, the variance 1 - sum(w).
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toys import Marked, close, deployed, jit, made, marked, marked_groups, pick, quick_key

import jaxfl
from jaxfl.algorithms import (
    fedala,
    gfedmtl,
    pfedgat,
    pfedme,
    push_sum,
    scaffold,
)
from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.trainable import of_statistics
from jaxfl.core.types import Cohort
from jaxfl.simulation.evaluate import fine_tuning_loss
from jaxfl.testing.variants import variants
from jaxfl.training.batch_statistics import statistics

C = 6
# Each client sends to the next, and client 0 to client 2 as well: shares are not doubly stochastic.
DIRECTED = np.roll(np.eye(C), 1, axis=0) + np.outer(np.eye(C)[2], np.eye(C)[0])
KEY = quick_key(0)


def everybody():
    data = marked_groups()
    return Cohort(jnp.arange(C), data.train, data.val, jnp.int32(0))


def rounds(algorithm, count=2):
    """The state after some rounds of all clients, and the info of the last one."""
    state = jit(algorithm.init)(KEY, marked_groups().train)
    for number in range(count):
        key = jax.random.fold_in(KEY, number)
        state, info = jit(algorithm.round)(key, state, everybody()._replace(round=number))
    return state, info


@pytest.mark.long
def test_statistics_are_averages_of_those_of_the_data_that_passed_through_a_model(factory):
    algorithm = made(factory, marked)
    # An odd number: an extrapolation twice over would be within bounds again.
    state, info = rounds(algorithm, 3)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state, info)))

    def moments(models):
        leaves = [
            (keys[-1].key, np.asarray(x))
            for keys, x in jax.tree_util.tree_leaves_with_path(statistics(models))
        ]
        means = [x for name, x in leaves if name == "mean"]
        variances = [x for name, x in leaves if name == "var"]
        assert len(means) == len(variances) > 0
        return zip(means, variances, strict=True)

    # A client's own training leaves the statistics of its own data, and one on the data of all
    # those of all.
    for mean, variance in moments(info.trained):
        if facts_of(factory).pools:
            np.testing.assert_allclose(mean.sum(axis=1), 1, atol=1e-5)
        else:
            np.testing.assert_allclose(mean, np.eye(C), atol=1e-5)
            np.testing.assert_allclose(variance, 0, atol=1e-5)
    # What clients deploy has averages of these and of the initial ones.
    models = deployed(algorithm, state, C, marked_groups())
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(models))
    for mean, variance in moments(models):
        assert mean.min() > -1e-5
        assert variance.min() > -1e-5
        rest = np.broadcast_to(1 - mean.sum(axis=1, keepdims=True), variance.shape)
        if info.weights is None:  # the aggregate is no mean: each number is one of the clients'
            assert max(mean.max(), variance.max()) < 1 + 1e-5
        else:
            np.testing.assert_allclose(variance, rest, atol=1e-5)
    if facts_of(factory).personal.startswith("the normalisation"):
        assert np.ptp(mean, axis=0).max() > 0.1


def trace(algorithm):
    """The shapes of the state, of a round's info and of the deployed models."""
    state = jax.eval_shape(algorithm.init, KEY, marked_groups().train)
    state, info = jax.eval_shape(algorithm.round, KEY, state, everybody())
    return state, info, jax.eval_shape(algorithm.models, state, everybody())


@pytest.mark.long
def test_statistics_that_clients_recompute_are_no_part_of_the_models(factory):
    """Where a method reads features in training, it refuses them."""
    try:
        algorithm = made(factory, functools.partial(marked, statistics="recomputed"))
    except InputError as error:
        if "features" not in str(error):
            raise
        return
    for keys, leaf in jax.tree_util.tree_leaves_with_path(trace(algorithm)):
        assert not of_statistics(tree.path(keys)) or leaf.size == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options", "count"),
    [
        (scaffold, {"server_rate": 3.0}, 1),
        (pfedme, {"beta": 2.0}, 1),
        (gfedmtl, {}, 3),
        (push_sum, {"graph": DIRECTED}, 3),
        (fedala, {"layers": ".*", "rate": 50.0}, 2),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_rates_of_a_server_do_not_apply_to_statistics(method, options, count):
    algorithm = method(marked(), **options)
    state, _ = rounds(algorithm, count)
    models = deployed(algorithm, state, C, marked_groups())
    norm = statistics(models)["batch_stats"]["BatchNorm_0"]
    right = np.broadcast_to(1 - norm["mean"].sum(axis=1, keepdims=True), norm["var"].shape)
    np.testing.assert_allclose(norm["var"], right, atol=1e-5)
    for leaf in jax.tree.leaves(statistics((models, state.server))):
        assert np.min(leaf) > -1e-5


@pytest.mark.slow
def test_an_integral_of_distances_has_none_of_statistics():
    state, _ = rounds(gfedmtl(marked(), agreement="integral"))
    integral = state.server[2]
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(statistics(integral)))
    assert any((np.asarray(x) != 0).any() for x in jax.tree.leaves(integral))


@pytest.mark.slow
def test_a_server_that_learns_from_updates_learns_nothing_where_statistics_alone_move():
    """With a rate of 0 training moves statistics, and start - trained is no gradient of theirs."""
    task = marked(optimizer=jaxfl.sgd(0.0, 0.0, 0.0))
    algorithm = pfedgat(task, wire="update", feature="round", eta=1.0, heads=2)
    first = algorithm.init(KEY, marked_groups().train)
    state, _ = rounds(algorithm, 3)
    close(state.server[0], first.server[0], 1e-6)


def of_definition(model, x, y):
    """The loss of the deployed model: flax in evaluation, and the cross-entropy by NumPy."""
    logits = np.asarray(Marked().apply(model, x), np.float64)
    total = np.log(np.exp(logits).sum(axis=1))
    return (total - logits[np.arange(len(y)), np.asarray(y)]).mean()


@pytest.mark.long
def test_losses_by_which_clients_choose_are_those_of_deployed_models(factory):
    """Whatever option is chosen: without dropout, with the model's own statistics."""
    objectives = []

    def evaluate(objective):
        # An objective of several models compares them and is no loss.
        if next(iter(inspect.signature(objective).parameters)) not in ("pair", "models"):
            objectives.append(objective)
        return marked().evaluate(objective)

    for hyper in [{}, *variants(factory)]:
        try:
            factory(marked()._replace(evaluate=evaluate), **hyper)
        except InputError:  # an option that takes effect beside another one only
            continue
    if not objectives:
        return
    model = marked().problem.init(KEY)
    model = model | {"batch_stats": jax.tree.map(lambda x: x + 2.0, model["batch_stats"])}
    mask = np.asarray(marked_groups().train.mask[0])
    batch = jax.tree.map(lambda x: x[0][mask], marked_groups().train)
    expected = of_definition(model, batch.x, batch.y)
    for objective in objectives[:1] + objectives[-1:]:
        for seed in (0, 1):
            value = objective(model, batch, None, quick_key(seed))[0]
            np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.long
def test_training_has_no_derivative_by_features_of_evaluation(factory):
    """Features of training are of the pass that predicts: others may be constants."""
    used = []

    def constant(params, x):
        used.append(x)
        return marked().problem.features(jax.lax.stop_gradient(params), x)

    task = marked()
    algorithm = factory(task._replace(problem=task.problem._replace(features=constant)))
    state = jax.eval_shape(algorithm.init, KEY, marked_groups().train)
    used.clear()
    jax.eval_shape(algorithm.round, KEY, state, everybody())
    if used:
        close(rounds(algorithm)[0], rounds(made(factory, marked))[0], 1e-5)


seen = set()


@pytest.mark.long
def test_fine_tuning_trains_by_the_training_pass(factory):
    """Dropout is on, and the statistics move to those of the batch."""
    algorithm = made(factory, marked)
    predictions = (algorithm.predict, algorithm.apply)
    if predictions in seen:  # and so the loss, as most methods have it
        return
    seen.add(predictions)
    data = marked_groups()
    state = jit(algorithm.init)(KEY, data.train)
    model = jax.tree.map(jnp.asarray, pick(deployed(algorithm, state, C, data), 2))
    mask = np.asarray(data.train.mask[2])
    batch = jax.tree.map(lambda x: x[2][mask], data.train)
    loss = fine_tuning_loss(algorithm, marked().problem)
    values, grads = zip(
        *(jax.value_and_grad(loss, has_aux=True)(model, batch, None, quick_key(s)) for s in (0, 1)),
        strict=True,
    )
    assert values[0][0] != values[1][0]
    moved = jax.tree.map(lambda old, g: old - g, statistics(model), statistics(grads[0]))
    for keys, x in jax.tree_util.tree_leaves_with_path(moved):
        right = np.eye(C)[2] if keys[-1].key == "mean" else np.zeros(C)
        np.testing.assert_allclose(x, right, atol=1e-5)
