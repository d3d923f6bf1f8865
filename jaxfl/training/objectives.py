"""Objectives that local training lowers: (params, batch, anchor, key) -> (loss, aux).

The aux is the plain data loss, so that the training losses of all methods can be compared.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree, Shaped

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Dataset, Objective, Params, PRNGKey, Problem, Scalar


def data_loss(problem: Problem, apply: Callable | None = None) -> Objective:
    """The mean error of a batch's predictions in training.

    Args:
      problem: its error is averaged.
      apply: (params, x [B]) -> predictions [B], the same in training and evaluation. None: the
        problem's own predictions in training.

    Example:
      >>> params = task.problem.init(jax.random.key(0))
      >>> batch = Dataset(jnp.zeros((2, 8)), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> value, aux = data_loss(task.problem)(params, batch, None, jax.random.key(0))
      >>> round(value.item(), 3)  # two logits of 0
      0.693
    """
    if apply is None or apply is problem.apply:
        return loss_of(problem, training_predictions(problem))
    return loss_of(problem, lambda params, x, mask, key: (apply(params, x), None))


def deployed_loss(problem: Problem) -> Objective:
    """The mean error of a batch's predictions by the model as a client deploys it.

    Dropout is off and statistics are the model's own, so the value depends on no key.

    Example:
      >>> params = task.problem.init(jax.random.key(0))
      >>> batch = Dataset(jnp.zeros((2, 8)), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> value, aux = deployed_loss(task.problem)(params, batch, None, jax.random.key(0))
      >>> round(value.item(), 3)
      0.693
    """
    return loss_of(problem, lambda params, x, mask, key: (problem.apply(params, x), None))


def training_predictions(problem: Problem) -> Callable:
    """The predictions of a problem in training.

    Returns:
      (params, x [B], mask [B], key) -> (predictions [B], a term of the loss or None).

    Example:
      >>> params = task.problem.init(jax.random.key(0))
      >>> predict = training_predictions(task.problem)
      >>> predictions, term = predict(params, jnp.zeros((5, 8)), jnp.ones(5), jax.random.key(0))
      >>> predictions.shape, term
      ((5, 2), None)
    """
    if problem.predict is not None:
        return problem.predict
    return lambda params, x, mask, key: (problem.apply(params, x), None)


def loss_of(problem: Problem, predict: Callable) -> Objective:
    """The mean error of a batch's predictions by the weights of its examples: sum w e / sum w.

    Args:
      problem: its error is averaged.
      predict: (params, x [B], mask [B], key) -> (predictions [B], term). A term that is not None is
        added to the loss, but not to the aux.

    Example:
      >>> problem = jaxfl.regression(jaxfl.models.linear(), jnp.zeros(1)).problem
      >>> loss = loss_of(problem, lambda params, x, mask, key: (params * x, 0.5))
      >>> batch = Dataset(jnp.ones((2, 1)), jnp.zeros(2), jnp.ones(2, bool))
      >>> [part.item() for part in loss(3.0, batch, None, jax.random.key(0))]
      [9.5, 9.0]
    """

    def loss(params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey) -> tuple[Array, Array]:
        predictions, term = predict(params, batch.x, batch.mask, key)
        target = problem.compared(batch.x, batch.y)
        mean = masked_mean(problem.errors(predictions, target, batch.weights), batch.weights)
        return mean if term is None else mean + term, mean

    return loss


def proximal(loss: Objective, strength: Scalar) -> Objective:
    """The loss plus strength / 2 |w - anchor|^2 of the parameters; the anchor is a model.

    Example:
      >>> objective = proximal(data_loss(task.problem), strength=0.5)
      >>> params = task.problem.init(jax.random.key(0))
      >>> anchor = jax.tree.map(lambda x: x + 2, params)  # |w - anchor|^2 = 4 * 90
      >>> batch = Dataset(jnp.zeros((2, 8)), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> value, aux = objective(params, batch, anchor, jax.random.key(0))
      >>> round((value - aux).item(), 2)
      90.0
    """

    def objective(params: Params, batch: Dataset, anchor: Params, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        squared = tree.squared_distance(trainable(params), trainable(anchor))
        return value + strength / 2 * squared, aux

    return objective


def of_part(loss: Objective) -> Objective:
    """The loss of a model in two parts: one is trained, the other is the anchor (`tree.split`).

    Example:
      >>> params = task.problem.init(jax.random.key(0))
      >>> head, body = tree.split(params, "Dense_1")
      >>> batch = Dataset(jnp.zeros((2, 8)), jnp.array([0, 1]), jnp.ones(2, bool))
      >>> value, aux = of_part(data_loss(task.problem))(head, batch, body, jax.random.key(0))
      >>> round(value.item(), 3)
      0.693
    """

    def objective(part: Params, batch: Dataset, rest: Params, key: PRNGKey):
        return loss(tree.join(part, rest), batch, None, key)

    return objective


def with_augmentation(
    objective: Objective, augment: Callable[[PRNGKey, PyTree], PyTree]
) -> Objective:
    """The objective on batches whose inputs are augmented at random, by (key, x [B]) -> x [B].

    Example:
      >>> total = lambda params, batch, anchor, key: (batch.x.sum(), batch.x.sum())
      >>> brighter = with_augmentation(total, lambda key, x: x + 1)
      >>> batch = Dataset(jnp.zeros((2, 1)), jnp.zeros(2), jnp.ones(2))
      >>> brighter((), batch, None, jax.random.key(0))[0].item()
      2.0
    """

    def augmented(params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey):
        key, augment_key = jax.random.split(key)
        batch = batch._replace(x=augment(augment_key, batch.x))
        return objective(params, batch, anchor, key)

    return augmented


def masked_mean(values: Float[Array, "b"], mask: Array) -> Float[Array, ""]:
    """The mean of the values weighted by the mask; 0 if the mask is 0 everywhere.

    Example:
      >>> masked_mean(jnp.array([1.0, 3.0, 90.0]), jnp.array([True, True, False])).item()
      2.0
    """
    total = jnp.sum(mask, dtype=jnp.float32)
    return jnp.sum(jnp.where(mask > 0, values * mask, 0.0)) / jnp.where(total > 0, total, 1.0)


def cross_entropy(
    logits: Float[Array, "b *outputs"], y: Int[Array, "b *positions"]
) -> Float[Array, "b"]:
    """Softmax cross-entropy of each example; with one output it would be 0 whatever the model.

    Of an example with a label for each position it is the mean over its labelled positions, so that
    an example weighs the same however many of its positions have a label; -1 is a position without
    one, and an example of these alone has the error 0.

    Example:
      >>> print(cross_entropy(jnp.array([[0.0, 0.0], [90.0, 0.0]]), jnp.array([1, 0])).round(3))
      [0.693 0.   ]
      >>> tokens = jnp.zeros((1, 3, 2))
      >>> print(cross_entropy(tokens, jnp.array([[1, 0, -1]])).round(3))
      [0.693]
    """
    check(
        logits.shape[-1] > 1,
        "the model has one output, and its softmax is always 1: expected an output for each class, "
        "two or more; change the model, or use regression for targets that are numbers",
    )
    check(
        y.ndim < 2 or not jnp.issubdtype(y.dtype, jnp.integer) or y.shape == logits.shape[:-1],
        f"the examples have labels for positions {y.shape[1:]}, and the model's outputs for "
        f"a batch have shape {logits.shape}: expected a model that gives logits "
        f"{(*y.shape, 'classes')}, such as transformer for texts, lstm, or a module of your own "
        "(--plugin FILE --model NAME)",
    )
    check(
        jnp.issubdtype(y.dtype, jnp.integer) and y.ndim == logits.ndim - 1,
        f"the labels of a batch are {y.dtype} of shape {y.shape}, the model's outputs have shape "
        f"{logits.shape}: expected whole numbers, one for each row of outputs, such as "
        "y.astype(int); for numbers to predict there is jaxfl.regression",
    )
    if y.ndim == 1:
        return optax.softmax_cross_entropy_with_integer_labels(logits, y)
    errors = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(y, 0))
    return _mean_of_labelled(errors, y)


def correct(logits: Float[Array, "b *outputs"], y: Int[Array, "b *positions"]) -> Float[Array, "b"]:
    """1 for an example whose label has the largest logit, otherwise 0; the mean is the accuracy.

    Of an example with a label for each position it is the share of its labelled positions.

    Example:
      >>> correct(jnp.array([[1.0, 2.0], [1.0, 2.0]]), jnp.array([1, 0])).tolist()
      [1.0, 0.0]
    """
    right = (logits.argmax(axis=-1) == y).astype(jnp.float32)
    return right if y.ndim == 1 else _mean_of_labelled(right, y)


def _mean_of_labelled(
    values: Float[Array, "b *positions"], y: Int[Array, "b *positions"]
) -> Float[Array, "b"]:
    """The mean over the positions of each example that have a label; 0 if none has."""
    values, labelled = (x.reshape(len(y), -1) for x in (values, y >= 0))
    total = jnp.where(labelled, values, 0.0).sum(axis=1)
    return total / jnp.maximum(labelled.sum(axis=1), 1)


def sigmoid_cross_entropy(
    logits: Float[Array, "b *outputs"], y: Shaped[Array, "b *target"]
) -> Float[Array, "b"]:
    """Binary cross-entropy of each label of an example, which may have several, and their mean.

    Example:
      >>> logits = jnp.array([[0.0, 90.0]])
      >>> print(sigmoid_cross_entropy(logits, jnp.array([[True, True]])).round(4))
      [0.3466]
    """
    _check_several(logits, y)
    return optax.sigmoid_binary_cross_entropy(logits, y.astype(logits.dtype)).mean(axis=1)


def correct_labels(
    logits: Float[Array, "b *outputs"], y: Shaped[Array, "b *target"]
) -> Float[Array, "b"]:
    """The share of the labels of each example that are right: present where the logit is above 0.

    Example:
      >>> correct_labels(jnp.array([[2.0, -1.0]]), jnp.array([[True, True]])).tolist()
      [0.5]
    """
    _check_several(logits, y)
    return ((logits > 0) == y).mean(axis=1, dtype=jnp.float32)


def _check_several(logits: Array, y: Array) -> None:
    check(
        y.dtype == bool and y.ndim == 2 and y.shape == logits.shape,
        f"the labels of a batch are {y.dtype} of shape {y.shape}, the model's outputs have shape "
        f"{logits.shape}: expected booleans (B, labels), and an output for each label",
    )


def squared_error(
    prediction: Float[Array, "b *k"], y: Shaped[Array, "b *target"]
) -> Float[Array, "b"]:
    """Mean squared error of the k numbers of each prediction [B, k]; y is [B, k], or [B] if k is 1.

    Targets with more axes [B, k, l] have as many numbers, predicted in this form or as [B, k * l].

    Example:
      >>> squared_error(jnp.array([[2.0], [3.0]]), jnp.array([5.0, 3.0])).tolist()
      [9.0, 0.0]
    """
    check(
        prediction.size == y.size,
        f"the model predicts {math.prod(prediction.shape[1:])} numbers an example, the targets "
        "have shape "
        f"{y.shape}: expected as many",
    )
    squares = jnp.square(prediction - y.reshape(prediction.shape))
    return jnp.mean(squares.reshape(len(prediction), -1), axis=-1)
