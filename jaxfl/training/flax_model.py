"""A flax module as pure functions: parameters, dropout, batch statistics.

A module with dropout or batch statistics behaves differently in training. Its `__call__` then takes
an argument `train`, as is usual in flax.

The statistics of BatchNorm are handled in one of two ways.

- "averaged": the statistics are a part of the model, in the collection `batch_stats`. Every method
  sends, mixes and deploys them like parameters. A method that keeps some layers on the clients can
  keep the statistics there: `fedbn` does so, and with `norms="batch_stats"` it keeps nothing else.
  Local training updates the statistics by a term of the loss, whose value is 0 and whose gradient
  is the change of the statistics with its sign turned. The optimiser subtracts that gradient
  unchanged. Nothing else has a derivative by the statistics: predictions and features take them
  for constants, and a penalty of a method's objective is on the parameters alone
  (`core.trainable`).
- "recomputed": the statistics are not a part of the model. Before a client predicts with a model,
  it computes the statistics on its own training examples.

Padded rows do not count in the statistics. For that, the first axis of what a BatchNorm normalises
is the batch; `module_layers` refuses a module where it is not.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.trainable import STATISTICS, of_statistics
from jaxfl.core.types import Dataset, Params, PRNGKey
from jaxfl.training.batch_statistics import change_term
from jaxfl.training.dense_rows import dense_rows
from jaxfl.training.functions import Functions
from jaxfl.training.loop import sum_parts
from jaxfl.training.module_layers import (
    call_arguments,
    check_evaluation,
    check_features,
    check_recomputable,
    check_training,
    first_input,
    layers_of_call,
)

# number of examples on which statistics are recomputed at a time
PART = 256

Statistics = Literal["averaged", "recomputed"]


@checked
def functions(module: nn.Module, example: PyTree, statistics: Statistics) -> Functions:
    """The module as pure functions.

    Args:
      module: maps x [B, *feature] to predictions.
      example: the shape of one input [1, *feature] of the module, or a pytree of shapes.
      statistics: how batch statistics are handled.

    Raises:
      InputError: the module has batch statistics or dropout and its `__call__` takes no `train`, or
        a layer does not do in training or evaluation what it should, see `module_layers`.

    Example:
      >>> pure = functions(nn.Dense(2), jax.ShapeDtypeStruct((1, 3), "float32"), "averaged")
      >>> model = pure.init(jax.random.key(0), jnp.ones((1, 3)))
      >>> pure.apply(model, jnp.ones((5, 3))).shape
      (5, 2)
    """
    name = type(module).__name__
    trains = "train" in inspect.signature(type(module).__call__).parameters
    evaluation: dict[str, Any] = {"train": False} if trains else {}

    def init_all(key: PRNGKey, x: PyTree) -> Params:
        return module.init(key, x, **evaluation)

    with dense_rows() as rows:
        shapes, layers = layers_of_call(init_all, jax.random.key(0), example)
    most = max(rows, default=1)
    stateful = STATISTICS in shapes
    check(
        trains or not stateful,
        f"{name} has batch statistics, and its __call__ takes no `train`: add the argument, as in "
        "BatchNorm(use_running_average=not train)",
    )
    check_evaluation(name, layers, trains)
    averaged = stateful and statistics == "averaged"
    recomputed = stateful and not averaged
    # A layer may have a number of that name.
    has_features = callable(getattr(module, "features", None))
    takes_train = has_features and "train" in inspect.signature(module.features).parameters

    def apply(model: Params, x: PyTree) -> PyTree:
        model = _constant_statistics(model) if stateful else model
        return _array(module.apply(model, x, **evaluation))

    def features(model: Params, x: PyTree) -> Array:
        model = _constant_statistics(model) if stateful else model
        options: Any = {"train": False} if takes_train else {}
        return _array(module.apply(model, x, method="features", **options))

    # Recomputed statistics are not known during training, so there are no features then.
    readable = features if has_features and not recomputed else None

    if not trains:

        def plain(model: Params, x: PyTree, mask: Array, key: PRNGKey) -> tuple[PyTree, None]:
            return apply(model, x), None

        return Functions(init_all, apply, plain, readable, rows=most)

    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.get(STATISTICS, {}))

    def init(key: PRNGKey, x: PyTree) -> Params:
        model = init_all(key, x)
        return model if averaged else {name: model[name] for name in model if name != STATISTICS}

    def train(
        model: Params, x: PyTree, mask: Array, key: PRNGKey, **options: Any
    ) -> tuple[PyTree, Params]:
        before = _constant_statistics({STATISTICS: zeros} | model) if stateful else model
        options |= {"mutable": [STATISTICS], "rngs": {"dropout": key}}
        with _counting(mask):
            result, updates = module.apply(before, x, **options)
        return _array(result), updates.get(STATISTICS, {})

    def predict(model: Params, x: PyTree, mask: Array, key: PRNGKey) -> tuple[PyTree, Array | None]:
        predictions, after = train(model, x, mask, key, train=True)
        return predictions, change_term(model[STATISTICS], after) if averaged else None

    # The layers of a training pass, which is traced for batches of two sizes.
    def train_all(model: Params, x: PyTree, key: PRNGKey) -> tuple:
        rngs = {"dropout": key}
        return module.apply(model, x, train=True, mutable=[STATISTICS], rngs=rngs)

    passes = {}
    for batch in (2, 3):
        x = tree.shapes(example, batch, axes=1)
        _, passes[batch] = layers_of_call(train_all, shapes, x, jax.random.key(0))
    if recomputed:
        check_recomputable(shapes[STATISTICS], passes[2])
    check_training(name, passes)
    on = {layer.path for layer in passes[2] if layer.trains}

    # With the mask and the key of `predict`, layers compute what they compute there.
    def training_features(model: Params, x: PyTree, mask: Array, key: PRNGKey) -> Array:
        options: Any = {"train": True} if takes_train else {}
        with _training_calls(module):
            (embeddings, _), layers = layers_of_call(
                partial(train, method="features", **options), model, x, mask, key, shapes=False
            )
        check_features(name, [layer for layer in layers if layer.path in on])
        return embeddings

    def recall(models: Params, data: Dataset, model_input: Callable[[PyTree], PyTree]) -> Params:
        def of_inputs(model: Params, x: PyTree, mask: Array, key: PRNGKey) -> tuple[PyTree, Params]:
            return train(model, model_input(x), mask, key, train=True)

        return jax.tree.map(
            lambda model: model | {STATISTICS: _statistics(of_inputs, model, data)},
            models,
            is_leaf=_is_model,
        )

    return Functions(
        init,
        apply,
        predict,
        readable,
        None if readable is None else training_features,
        recall if recomputed else None,
        whole_batch=stateful,
        rows=most,
    )


def _array(predictions: Any) -> Array:
    """The predictions or features of a module, which flax does not declare to be arrays."""
    return predictions


def _is_model(node: Any) -> bool:
    return isinstance(node, dict) and "params" in node


def _counting(mask: Array, momenta: dict | None = None) -> AbstractContextManager:
    """A context in which BatchNorm counts only the rows of the mask, or all rows if it is empty.

    Each BatchNorm writes its momentum into `momenta`, under its path.
    """
    counts = (mask > 0) | ~(mask > 0).any()

    def intercept(call: Callable, arguments: tuple, named: dict, context: Any):
        norm = context.module
        if isinstance(norm, nn.BatchNorm) and context.method_name == "__call__":
            x = first_input(call_arguments(norm, arguments, named))
            rows = counts.reshape(-1, *[1] * (x.ndim - 1))
            named = named | {"mask": rows}
            if momenta is not None:
                momenta[norm.path] = norm.momentum
        return call(*arguments, **named)

    return nn.intercept_methods(intercept)


def _statistics(train: Callable, model: Params, data: Dataset) -> PyTree:
    """The mean and the variance of the input of each BatchNorm over all examples."""
    momenta: dict = {}
    # A fixed key for dropout, so that the statistics of a model are always the same.
    key = jax.random.key(0)

    def sums(part: Dataset) -> tuple[PyTree, PyTree, Array]:
        with _counting(part.mask, momenta):
            _, updates = train(model, part.x, part.mask, key)
        count = jnp.sum(part.mask > 0)
        # A step moves the statistics from 0 by (1 - momentum) times the statistics of the batch.
        means = {}
        squares = {}
        for path, (mean, variance) in _norms(updates):
            means[path] = mean / (1 - momenta[path])
            squares[path] = variance / (1 - momenta[path]) + jnp.square(means[path])
        return jax.tree.map(lambda x: count * x, (means, squares, jnp.ones(())))

    means, squares, total = sum_parts(sums, data, PART)
    collection: dict = {}
    for path in means:
        mean = means[path] / jnp.maximum(total, 1)
        variance = squares[path] / jnp.maximum(total, 1) - jnp.square(mean)
        at = collection
        for name in path:
            at = at.setdefault(name, {})
        at["mean"] = mean
        at["var"] = jnp.where(total > 0, jnp.maximum(variance, 0.0), 1.0)
    return collection


def _norms(statistics: PyTree, path: tuple = ()):
    """(path, (mean, variance)) of each BatchNorm."""
    if "mean" in statistics:
        yield path, (statistics["mean"], statistics["var"])
    else:
        for name, below in statistics.items():
            yield from _norms(below, (*path, name))


def _constant_statistics(model: Params) -> Params:
    """The model with statistics that have no derivative, and variances of at least 0.

    Noise or a server's step can make variances negative.
    """

    def leaf(keys: tuple, x: PyTree) -> Array:
        names = tree.path(keys)
        if not of_statistics(names):
            return x
        x = jnp.maximum(x, 0.0) if names.endswith("/var") else x
        return jax.lax.stop_gradient(jnp.asarray(x))

    return jax.tree_util.tree_map_with_path(leaf, model)


def _training_calls(module: nn.Module) -> AbstractContextManager:
    """A context in which the module calls itself with train=True, unless it says otherwise."""

    def intercept(call: Callable, arguments: tuple, named: dict, context: Any):
        outermost = context.method_name == "__call__" and context.module.path == ()
        if outermost and "train" not in call_arguments(module, arguments, named):
            named = named | {"train": True}
        return call(*arguments, **named)

    return nn.intercept_methods(intercept)
