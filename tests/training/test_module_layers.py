"""Modules whose BatchNorm or dropout would not do what is meant are refused by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import jaxfl
from jaxfl.core.errors import InputError, RunWarning
from jaxfl.core.types import Dataset

KEY = jax.random.key(0)


class TimeFirst(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.BatchNorm(use_running_average=not train)(jnp.swapaxes(x, 0, 1))
        return nn.Dense(2)(x.mean(axis=0))


class Merged(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        rows = nn.BatchNorm(use_running_average=not train)(x.reshape(-1, 3))
        return nn.Dense(2)(rows.reshape(x.shape[0], -1))


class Deterministic(nn.Module):
    rate: float = 0.5

    @nn.compact
    def __call__(self, x, deterministic=True):
        return nn.Dense(2)(nn.Dropout(self.rate, deterministic=deterministic)(x.mean(axis=1)))


class Off(nn.Module):
    @nn.compact
    def __call__(self, x, train=False, deterministic=True):
        return nn.Dense(2)(nn.Dropout(0.5)(x.mean(axis=1), deterministic))


class Attention(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        x = nn.MultiHeadDotProductAttention(1, dropout_rate=0.5, deterministic=True)(x)
        return nn.Dense(2)(x.mean(axis=1))


class On(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(2)(nn.Dropout(0.5, deterministic=False)(x.mean(axis=1)))


class Spectral(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.SpectralNorm(nn.Dense(2))(x.mean(axis=1), update_stats=train)


class Frozen(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(2)(nn.BatchNorm(use_running_average=True)(x.mean(axis=1)))


class Half(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return nn.BatchNorm(use_running_average=not train)(x), None


class Twice(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        half = Half()
        return nn.Dense(2)(half(half(x.mean(axis=1), train)[0], train)[0])


class Scan(nn.Module):
    """Three layers whose program is traced several times."""

    @nn.compact
    def __call__(self, x, train=False):
        axes = {"params": 0, "batch_stats": 0}
        layers = nn.scan(Half, axes, split_rngs={"params": True}, in_axes=nn.broadcast, length=3)
        return nn.Dense(2)(layers()(x.mean(axis=1), train)[0])


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (
            TimeFirst(),
            {},
            r"BatchNorm_0 of TimeFirst normalises an array \(8, 2, 3\) of",
        ),
        (Merged(), {}, r"BatchNorm_0 of Merged normalises an array \(16, 3\) of a batch of 2"),
        (
            Deterministic(),
            {},
            r"Deterministic has dropout \(Dropout_0\), and its __call__ takes no",
        ),
        (Off(), {}, "dropout Dropout_0 of Off is off in training"),
        (Attention(), {}, "dropout MultiHeadDotProductAttention_0 of Attention is off in training"),
        (On(), {}, "Dropout_0 of On does in evaluation what it does in training"),
        (Spectral(), {"statistics": "recomputed"}, "Dense_0/kernel/sigma is no statistic of a Ba"),
        (Frozen(), {"statistics": "recomputed"}, "BatchNorm_0 keeps its running statistics in"),
        (Twice(), {"statistics": "recomputed"}, "Half_0/BatchNorm_0 is called more than once in a"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_modules_that_would_train_on_what_nobody_meant_are_refused(module, options, message):
    with pytest.raises(InputError, match=message) as refusal:
        jaxfl.classification(module, np.zeros((8, 3), np.float32), **options)
    assert "\n" not in str(refusal.value)


def test_dropout_of_rate_0_and_statistics_that_are_averaged_pass():
    for module in (Deterministic(rate=0.0), Spectral()):
        jaxfl.classification(module, np.zeros((8, 3), np.float32))


def test_statistics_of_a_scan_over_layers_are_recomputed():
    task = jaxfl.classification(Scan(), np.zeros((8, 3), np.float32), statistics="recomputed")
    assert task.problem.recall
    x = jax.random.normal(KEY, (64, 8, 3)) + 2
    data = Dataset(x, jnp.zeros(64, int), jnp.ones(64, bool))
    statistics = task.problem.recall(task.problem.init(KEY), data)["batch_stats"]
    (norm,) = jax.tree.leaves(statistics, is_leaf=lambda node: "mean" in node)
    np.testing.assert_allclose(norm["mean"][0], np.asarray(x).mean(axis=(0, 1)), rtol=1e-5)
    # Each layer normalises for the next.
    np.testing.assert_allclose(norm["mean"][1:], 0, atol=1e-5)


@pytest.mark.slow
def test_frozen_statistics_give_a_warning_and_training_leaves_them_alone():
    with pytest.warns(RunWarning, match="BatchNorm_0 of Frozen keeps its running statistics"):
        problem = jaxfl.classification(Frozen(), np.zeros((8, 3), np.float32)).problem
    predict = problem.predict
    assert predict
    model = problem.init(KEY)
    x = jax.random.normal(KEY, (5, 8, 3))

    def loss(model):
        predictions, term = predict(model, x, jnp.ones(5, bool), KEY)
        assert term is not None
        return jnp.square(predictions).sum() + term

    change = jax.grad(loss)(model)["batch_stats"]
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(change))


class Net(nn.Module):
    """BatchNorm and dropout below the head."""

    head = "Dense_1"

    @nn.compact
    def __call__(self, x, train=False, until_head=False):
        x = nn.BatchNorm(use_running_average=not train)(nn.Dense(8)(x))
        x = nn.Dropout(0.5, deterministic=not train)(nn.relu(x))
        return x if until_head else nn.Dense(2)(x)


class Calls(Net):
    def features(self, x):
        return self(x, until_head=True)


class Takes(Net):
    def features(self, x, train=False):
        return self(x, train, until_head=True)


def problem_of(module):
    problem = jaxfl.classification(module, np.zeros(3, np.float32)).problem
    assert problem.features
    assert problem.predict
    assert problem.training_features
    return problem, problem.features, problem.predict, problem.training_features


class Evaluates(Net):
    def features(self, x):
        return self(x, False, until_head=True)


@pytest.mark.slow
@pytest.mark.parametrize("module", [Calls(), Takes()], ids=["calls", "takes"])
def test_features_and_predictions_in_training_are_of_one_pass(module):
    """The head, applied to the features, gives the predictions: the same values are dropped."""
    problem, evaluate, predict, train = problem_of(module)
    model = problem.init(KEY)
    head = model["params"]["Dense_1"]
    x = jax.random.normal(KEY, (5, 3))
    mask = jnp.arange(5) < 4
    results = []
    for seed in (1, 2):
        given = model, x, mask, jax.random.key(seed)
        features = train(*given)
        predictions, _ = predict(*given)
        right = np.asarray(features) @ np.asarray(head["kernel"]) + np.asarray(head["bias"])
        np.testing.assert_allclose(predictions, right, atol=1e-6)
        results.append(features)
    assert (results[0] != results[1]).any()
    # Neither they nor the features of evaluation have a derivative by the statistics.
    for function in (
        lambda model: train(model, x, mask, KEY),
        lambda model: evaluate(model, x),
    ):
        grads = jax.grad(lambda model, f=function: jnp.square(f(model)).sum())(model)
        assert all((leaf == 0).all() for leaf in jax.tree.leaves(grads["batch_stats"]))


def test_features_that_stay_in_evaluation_are_refused():
    problem, *_, train = problem_of(Evaluates())
    model = problem.init(KEY)
    with pytest.raises(InputError, match="`features` of Evaluates calls BatchNorm_0 as in evalua"):
        train(model, jnp.ones((5, 3)), jnp.ones(5, bool), KEY)
