"""Tasks: regression, features, training with other options, counted batches, missing heads."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from sklearn.linear_model import LinearRegression
from sklearn.metrics import hamming_loss, log_loss
from toys import differ, equal, marked, marked_groups, normed, opposite_groups, quick_key
from toys import linear as logistic

import jaxfl
from jaxfl.algorithms import fedah, fedper, fedrep, fedrod, knn_per, lg_fedavg, moon
from jaxfl.core import target, tree
from jaxfl.core.errors import InputError
from jaxfl.core.types import Cohort, Dataset
from jaxfl.data import load
from jaxfl.experiment import Setting
from jaxfl.experiment.config import by_subject
from jaxfl.experiment.session.make_task import make_task
from jaxfl.models import lenet, linear, lstm, mlp, transformer
from jaxfl.training.deployed import deployed_losses
from jaxfl.training.gradients import count_batches
from jaxfl.training.objectives import correct, cross_entropy, data_loss
from jaxfl.training.task import Training, supervised

KEY = quick_key(0)


def batch(outputs=(), seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    y = rng.normal(size=(12, *outputs)).astype(np.float32)
    return Dataset(jnp.asarray(x), jnp.asarray(y), jnp.arange(12) < 10)


@pytest.mark.parametrize("outputs", [(), (1,), (2,)])
def test_the_loss_is_the_mean_squared_error_of_real_examples(outputs):
    data = batch(outputs)
    task = jaxfl.regression(linear(*outputs), jnp.zeros(3))
    params = task.problem.init(KEY)
    assert not any(x.any() for x in jax.tree.leaves(params))
    np.testing.assert_allclose(
        data_loss(task.problem)(params, data, None, KEY)[0],
        np.mean(data.y[:10] ** 2),
        rtol=1e-5,
    )
    squares = np.mean(np.square(np.asarray(data.y)).reshape(12, -1), axis=1)
    np.testing.assert_allclose(
        task.problem.score(task.problem.apply(params, data.x), data.y), -squares, rtol=1e-5
    )


@pytest.mark.slow
def test_training_reaches_least_squares():
    data = batch()
    task = jaxfl.regression(
        linear(), jnp.zeros(3), batch_size=12, steps=400, optimizer=optax.sgd(0.1)
    )
    stacked = jax.tree.map(lambda x: x[None], (task.problem.init(KEY), data))
    fit = task.trainer(data_loss(task.problem))
    cohort = Cohort(jnp.arange(1), stacked[1], stacked[1])
    model = fit(quick_key(1), stacked[0], None, cohort).params
    best = LinearRegression().fit(data.x[:10], data.y[:10])
    layer = model["params"]["Dense_0"]
    np.testing.assert_allclose(layer["kernel"][0, :, 0], best.coef_, atol=1e-4)
    np.testing.assert_allclose(layer["bias"][0, 0], best.intercept_, atol=1e-4)
    assert "bias" not in linear(bias=False).init(KEY, data.x)["params"]["Dense_0"]


def with_frozen_layers(model, example):
    """A model of which the head alone is trained, fewer parameters than a small model has."""
    return jaxfl.freeze(model, jax.jit(model.init)(KEY, example[None]), model.head)


@pytest.mark.parametrize(
    ("model", "feature", "batch_size", "examples"),
    [
        (lenet(10), (28, 28, 1), 40, 10),
        (lenet(10), (28, 28, 1), 34, 34),
        (with_frozen_layers(lenet(10), np.zeros((28, 28, 1))), (28, 28, 1), 40, 10),
        (mlp(10, (256,)), (28, 28), 40, 40),
        (transformer(9, (9,), positions=True), (80,), 40, 4),
        (transformer(9, (9,), positions=True), (80,), 9, 3),
        (transformer(9, (9,), positions=True), (80,), 7, 7),
        (transformer(9, (9,), positions=True, width=16, depth=1), (80,), 40, 40),
        (transformer(9, (9_000,)), (80,), 40, 40),
        (lstm(9, (9,), positions=True), (80,), 40, 40),
        (jaxfl.lora(transformer(9, (9,)), 2), (160,), 40, 2),
        (with_frozen_layers(transformer(9, (9,)), np.zeros(80, int)), (80,), 40, 4),
    ],
)
def test_a_cpu_takes_as_many_examples_at_a_time_as_its_cache_holds(
    model, feature, batch_size, examples
):
    """A divisor of the batch that is not much smaller; all where parts do not pay."""
    example = np.zeros(feature, np.int32 if len(feature) == 1 else np.float32)
    task = jaxfl.classification(model, example, batch_size=batch_size, scale=None, steps=1)
    loss = data_loss(task.problem)
    seen = set()

    def objective(params, batch, anchor, key):
        seen.add(len(batch.mask))
        return loss(params, batch, anchor, key)

    rows = jnp.zeros((1, batch_size, *feature), example.dtype)
    labels = jax.eval_shape(lambda x: task.problem.apply(task.problem.init(KEY), x), rows[0])
    data = Dataset(rows, jnp.zeros((1, *labels.shape[:-1]), int), jnp.ones((1, batch_size), bool))
    start = tree.broadcast(task.problem.init(KEY), 1)
    cohort = Cohort(jnp.arange(1), data, data)
    jax.eval_shape(task.trainer(objective), KEY, start, None, cohort)
    assert min(seen) == examples


def test_targets_must_fit_the_model():
    task = jaxfl.regression(linear(2), jnp.zeros(3))
    with pytest.raises(
        InputError, match=r"predicts 2 numbers an example, the targets have shape \(12,\)"
    ):
        data_loss(task.problem)(task.problem.init(KEY), batch(), None, KEY)


def test_features_are_the_input_of_the_head():
    task = jaxfl.classification(mlp(3, hidden=(7,)), jnp.zeros(5))
    params = task.problem.init(quick_key(0))
    x = jax.random.normal(quick_key(1), (4, 5))
    head = params["params"][task.problem.head]
    features = jax.jit(task.problem.features)(params, x)
    assert features.shape == (4, 7)
    np.testing.assert_allclose(
        features @ head["kernel"] + head["bias"][None], task.problem.apply(params, x), atol=1e-6
    )


@pytest.mark.slow
def test_a_trainer_may_differ_in_steps_epochs_and_optimiser():
    data = opposite_groups()
    task = logistic()
    cohort = Cohort(jnp.arange(6), data.train, data.val)
    start = tree.broadcast(task.problem.init(quick_key(0)), 6)

    def trained(**changes):
        return task.trainer(data_loss(task.problem), **changes)(
            quick_key(1), start, None, cohort
        ).params

    equal(trained(), trained(steps=5))
    equal(trained(optimizer=optax.sgd(0.0)), start)
    assert differ(trained(), trained(steps=6))
    equal(trained(epochs=1), trained(steps=4))  # 32 examples in batches of 8


@pytest.mark.slow
def test_batches_are_counted_as_training_takes_them():
    # 32, 20, 8 and 1 of these examples are for training.
    data = opposite_groups(clients=4, sizes=[40, 25, 9, 1])
    cohort = Cohort(jnp.arange(4), data.train, data.val)
    start = tree.broadcast(logistic().problem.init(KEY), 4)

    def taken(task, **changes):
        fit = task.trainer(data_loss(task.problem), **changes)
        return fit(KEY, start, None, cohort).batches.tolist()

    task = logistic()  # batches of 8
    assert taken(task) == [5, 5, 5, 5]
    assert taken(task, epochs=2) == [8, 6, 2, 2]
    assert taken(logistic(steps=None, epochs=1)) == [4, 3, 1, 1]
    assert count_batches(data.train.mask, 8, epochs=2).tolist() == [8, 6, 2, 2]
    gradient = task.gradient(data_loss(task.problem))
    assert gradient(KEY, start, data.train, jnp.arange(4)).batches.tolist() == [4, 3, 1, 1]


@pytest.mark.slow
def test_the_loss_on_all_data_is_that_of_the_full_gradient():
    data = opposite_groups(clients=3, sizes=[40, 9, 1])
    task = logistic()
    start = jax.vmap(task.problem.init)(jax.random.split(KEY, 3))
    loss = data_loss(task.problem)
    found = task.evaluate(loss)(KEY, start, data.train, jnp.arange(3))
    asked = task.gradient(loss)(KEY, start, data.train, jnp.arange(3))
    np.testing.assert_allclose(found, asked.loss, rtol=1e-6)
    for i in range(3):
        alone = jax.tree.map(lambda x, i=i: x[i][data.train.mask[i]], data.train)
        one = jax.tree.map(lambda x, i=i: x[i], start)
        np.testing.assert_allclose(found[i], loss(one, alone, None, KEY)[0], rtol=1e-5)


@pytest.mark.slow
def test_the_gradient_of_a_model_with_statistics_is_that_of_finite_differences():
    """Along the line between two models, as servers take it for the derivative by a weight."""
    task = normed(batch_size=64)
    loss = data_loss(task.problem)
    data = opposite_groups(clients=1)
    first, second = (task.problem.init(quick_key(seed)) for seed in (0, 1))
    second["batch_stats"] = jax.tree.map(lambda x: x + 3.0, second["batch_stats"])
    between = jax.jit(lambda w: tree.broadcast(tree.interpolate(first, second, w), 1))

    def value(weight):
        return float(task.gradient(loss)(KEY, between(weight), data.train, jnp.arange(1)).loss[0])

    grads = task.gradient(loss)(KEY, between(0.4), data.train, jnp.arange(1)).grads
    towards = jax.tree.map(lambda b, a: (b - a)[None], second, first)
    taken = float(tree.dot(grads, towards))
    np.testing.assert_allclose(taken, (value(0.41) - value(0.39)) / 0.02, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("statistics", ["averaged", "recomputed"])
def test_deployed_losses_are_those_of_the_deployed_models(statistics):
    """By NumPy: without dropout, with the model's statistics or those of the client's examples."""
    data = marked_groups()
    task = marked(statistics=statistics)
    cohort = Cohort(jnp.arange(6), data.train, data.val)
    model = task.problem.init(KEY)
    if statistics == "averaged":
        model["batch_stats"]["BatchNorm_0"]["mean"] += 2.0
    found = deployed_losses(task)(tree.broadcast(model, 6), data.val, cohort)
    layers = jax.tree.map(lambda x: np.asarray(x, np.float64), model["params"])
    for i in range(6):
        mask = np.asarray(data.val.mask[i])
        x, y = np.asarray(data.val.x[i], np.float64)[mask], np.asarray(data.val.y[i])[mask]
        # Epsilon is 1; recomputed statistics are the mean e_i and the variance 0.
        mean, variance = (2.0, 1.0) if statistics == "averaged" else (np.eye(6)[i], 0.0)
        norm = layers["BatchNorm_0"]
        x[:, :6] = (x[:, :6] - mean) / np.sqrt(variance + 1) * norm["scale"] + norm["bias"]
        hidden = x @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"]
        logits = np.maximum(hidden, 0) @ layers["Dense_1"]["kernel"] + layers["Dense_1"]["bias"]
        losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(y)), y]
        np.testing.assert_allclose(found[i], losses.mean(), rtol=1e-5)


def test_a_model_without_a_head_is_refused_by_methods_that_need_one():
    class Headless(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(2)(x)

    task = jaxfl.classification(Headless(), jnp.zeros(5))
    assert task.problem.head is None
    for method in (fedper, fedrep, lg_fedavg, fedah):
        with pytest.raises(InputError, match="the model names none: give head=PATTERN"):
            method(task)
    for method in (moon, knn_per, fedrod):
        with pytest.raises(
            InputError, match="needs the model's features: give the flax module a method"
        ):
            method(task)
    assert fedper(task, head="bias").init(KEY, opposite_groups(features=5).train).server


@pytest.mark.parametrize("white", [16, 255])
def test_models_see_pixels_as_the_option_says(white):
    source = load("digits")._replace(scale=float(white))
    x = jnp.asarray([[0], [white]], jnp.uint8).reshape(2, 1, 1, 1)
    seen = {}
    for pixels in ("channels", "unit", "centred"):
        setting = Setting(model="linear", pixels=pixels, local_steps=1)
        task = make_task(
            by_subject(setting), source._replace(x_train=np.zeros((1, 1, 1, 1), np.uint8))
        )
        ones = jax.tree.map(jnp.ones_like, task.problem.init(quick_key(0)))
        seen[pixels] = (task.problem.apply(ones, x)[:, 0] - 1).tolist()
    assert seen == {"channels": [0, 1], "unit": [0, 1], "centred": [-1, 1]}


def test_the_keywords_of_classification_are_those_of_supervised():
    """A type checker reads `Training`, which lists the keywords of `supervised` once more."""
    stated = inspect.signature(supervised).parameters.values()
    options = {p.name: p.annotation for p in stated if p.kind is p.KEYWORD_ONLY}
    assert options == Training.__annotations__


@pytest.mark.slow
@pytest.mark.parametrize(
    ("platform", "features", "chunk"),
    [("cpu", 9_999, "all"), ("cpu", 10_001, 1), ("gpu", 10_001, "all")],
)
def test_a_cpu_trains_the_clients_of_large_models_one_by_one(
    platform, features, chunk, monkeypatch
):
    """A linear model of two outputs; other devices train all clients side by side."""
    monkeypatch.setattr(target, "platform", lambda: platform)
    data = Dataset(jnp.ones((3, 4, features)), jnp.zeros((3, 4), int), jnp.ones((3, 4), bool))
    cohort = Cohort(jnp.arange(3), data, data)
    model = linear(2)
    size = tree.size(model.init(KEY, jnp.ones((1, features))))

    def program(**options):
        task = jaxfl.classification(model, np.zeros(features), steps=2, batch_size=2, **options)
        models = jax.vmap(task.problem.init)(jax.random.split(KEY, 3))
        fit = task.trainer(data_loss(task.problem))
        return str(jax.make_jaxpr(lambda models: fit(KEY, models, None, cohort))(models))

    assert (size <= 20_000) == (features == 9_999)
    automatic = program()
    assert automatic == program(chunk=chunk)
    assert automatic != program(chunk=2)


@pytest.mark.slow
def test_the_loss_of_positions_is_a_mean_over_those_with_a_label():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 2, 3, 5)).astype(np.float32)
    y = rng.integers(0, 5, (4, 2, 3))
    y[0, 0], y[1, 1, 1], y[3] = -1, -1, -1
    errors, shares = np.zeros(4), np.zeros(4)
    for example in range(3):
        has = y[example] >= 0
        chosen, labels = logits[example][has].astype(float), y[example][has]
        chances = np.exp(chosen) / np.exp(chosen).sum(axis=1, keepdims=True)
        errors[example] = -np.log(chances[np.arange(len(labels)), labels]).mean()
        shares[example] = (chosen.argmax(axis=1) == labels).mean()
    np.testing.assert_allclose(
        cross_entropy(jnp.asarray(logits), jnp.asarray(y)), errors, rtol=1e-5
    )
    np.testing.assert_allclose(correct(jnp.asarray(logits), jnp.asarray(y)), shares, rtol=1e-6)
    gradient = jax.grad(lambda z: cross_entropy(z, jnp.asarray(y)).sum())(jnp.asarray(logits))
    assert np.isfinite(gradient).all()
    assert not gradient[y < 0].any()
    assert (np.abs(gradient[y >= 0]).sum(axis=1) > 0).all()
    with pytest.raises(InputError, match=r"labels for positions \(2, 3\)"):
        cross_entropy(jnp.zeros((4, 5)), jnp.asarray(y))


def test_the_loss_of_several_labels_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(7, 3)).astype(np.float32), rng.random((7, 3)) < 0.5
    task = jaxfl.multilabel(jaxfl.models.linear(3), np.zeros(2))
    chances = 1 / (1 + np.exp(-logits.astype(float)))
    error = task.problem.error(jnp.asarray(logits), jnp.asarray(y))
    score = task.problem.score(jnp.asarray(logits), jnp.asarray(y))
    for one in range(7):
        expected = log_loss(y[one], chances[one], labels=[False, True])
        assert error[one] == pytest.approx(expected, rel=1e-5)
    assert score.mean() == pytest.approx(1 - hamming_loss(y, logits > 0))
    with pytest.raises(InputError, match="expected booleans"):
        task.problem.error(jnp.asarray(logits), jnp.asarray(y.astype(int)))
