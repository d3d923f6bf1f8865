"""Objectives that local training lowers: (params, batch, anchor, key) -> (loss, aux).

The aux is the plain data loss, so that the training losses of all methods can be compared.
"""

from collections.abc import Callable

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
    """

    def loss(params: Params, batch: Dataset, anchor: PyTree, key: PRNGKey) -> tuple[Array, Array]:
        predictions, term = predict(params, batch.x, batch.mask, key)
        mean = masked_mean(problem.error(predictions, batch.y), batch.mask)
        return mean if term is None else mean + term, mean

    return loss


def proximal(loss: Objective, strength: Scalar) -> Objective:
    """The loss plus strength / 2 |w - anchor|^2 of the parameters; the anchor is a model."""

    def objective(params: Params, batch: Dataset, anchor: Params, key: PRNGKey):
        value, aux = loss(params, batch, None, key)
        squared = tree.squared_distance(parameters(params), parameters(anchor))
        return value + strength / 2 * squared, aux

    return objective


def of_part(loss: Objective) -> Objective:
    """The loss of a model in two parts: one is trained, the other is the anchor (`tree.split`)."""

    def objective(part: Params, batch: Dataset, rest: Params, key: PRNGKey):
        return loss(tree.join(part, rest), batch, None, key)

    return objective


def masked_mean(values: Float[Array, "b"], mask: Array) -> Float[Array, ""]:
    """The mean of the values weighted by the mask; 0 if the mask is 0 everywhere."""
    total = jnp.sum(mask, dtype=jnp.float32)
    return jnp.sum(jnp.where(mask > 0, values * mask, 0.0)) / jnp.where(total > 0, total, 1.0)
