"""Objectives that local training lowers: (params, batch, anchor, key) -> (loss, aux).

The aux is the plain data loss, so that the training losses of all methods can be compared.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxfl import tree
from jaxfl.batch_statistics import parameters
from jaxfl.types import Dataset, Objective, Params, PRNGKey, Problem, Scalar


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
    evaluated = problem.apply if apply is None else apply

    def predict(params: Params, x: Array, mask: Array, key: PRNGKey):
        if problem.predict is not None and evaluated is problem.apply:
            return problem.predict(params, x, mask, key)
        return evaluated(params, x), None

    return loss_of(problem, predict)


def loss_of(problem: Problem, predict: Callable) -> Objective:
    """The mean error of a batch's predictions, given the function that predicts.

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
        mean = masked_mean(problem.error(predictions, batch.y), batch.mask)
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
        squared = tree.squared_distance(parameters(params), parameters(anchor))
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
    objective: Objective, augment: Callable[[PRNGKey, Array], Array]
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
