"""A client that refuses the model which the server offers to it: the mirror of an upload."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.core import tree
from jaxfl.core.options import checked
from jaxfl.core.types import (
    Accept,
    Chunk,
    Cohort,
    Dataset,
    Evaluate,
    Objective,
    Params,
    PRNGKey,
    Problem,
)
from jaxfl.training.deployed import completion
from jaxfl.training.objectives import masked_mean

__all__ = ["Acceptance", "accept_validated", "effective_count"]

# A client always takes the model that the server offers to it, or only a model that is not clearly
# worse on its validation data than its own.
Acceptance = Literal["always", "validated"]
# Standard errors above which a mean difference of losses is no chance
CLEARLY = 1.0


@checked
def accept_validated(
    problem: Problem, evaluate_of: Callable[[Objective], Evaluate], chunk: Chunk = "auto"
) -> Accept:
    """A client keeps its own model where the offered one is clearly worse on its validation data.

    That is, where the mean over its validation examples of (loss of the offered model - loss of its
    own model) is positive and more than one standard error of that mean. Without this margin,
    benign mixtures would be refused by chance where a client has few validation examples.

    A client also keeps its own model where the offered model or its loss is not finite, unless its
    own loss is not finite either. A client without validation data takes every finite offer.

    Args:
      problem: its `recall` completes a model before it predicts.
      evaluate_of: the task's function that makes an `Evaluate` of an objective.
      chunk: clients computed side by side, see `over_clients`.

    Example:
      >>> accept = accept_validated(task.problem, task.evaluate)
      >>> models = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> offers = jax.tree.map(lambda x: x * jnp.nan, models)
      >>> accept(models, offers, cohort)[1].tolist()
      [False, False, False, False]
    """

    def differences(models: tuple[Params, Params], batch: Dataset) -> Float[Array, "b"]:
        target = problem.compared(batch.x, batch.y)
        predictions = [problem.apply(model, batch.x) for model in models]
        error, offer_error = (problem.errors(p, target, batch.weights) for p in predictions)
        return offer_error - error

    def first_moment(models: PyTree, batch: Dataset, anchor: PyTree, key: PRNGKey):
        value = masked_mean(differences(models, batch), batch.weights)
        return value, value

    def second_moment(models: PyTree, batch: Dataset, anchor: PyTree, key: PRNGKey):
        value = masked_mean(differences(models, batch) ** 2, batch.weights)
        return value, value

    mean_of = evaluate_of(first_moment)
    square_of = evaluate_of(second_moment)
    complete = completion(problem, chunk)

    def accept(model: Params, offer: Params, cohort: Cohort) -> tuple[Params, Bool[Array, "m"]]:
        models = (complete(model, cohort), complete(offer, cohort))
        # A deployed model predicts without random numbers, so any key will do.
        key = jax.random.key(0)
        mean = mean_of(key, models, cohort.val, cohort.ids)
        square = square_of(key, models, cohort.val, cohort.ids)
        count = jnp.maximum(effective_count(cohort.val), 1)
        error = jnp.sqrt(jnp.maximum(square - mean**2, 0.0) / count)
        # Without finite squares there is no standard error, and the mean alone decides.
        error = jnp.where(jnp.isfinite(error), error, 0.0)
        finite = tree.finite(offer, cohort.ids.size)
        model_finite = tree.finite(model, cohort.ids.size)
        accepted = finite & ((mean <= CLEARLY * error) | ~model_finite)
        return tree.choose(accepted, offer, model), accepted

    return accept


def effective_count(data: Dataset) -> Array:
    """How many examples of equal weight have a mean with the same standard error [M] (Kish).

    Args:
      data: of the clients [M, n].

    Example:
      >>> mask = jnp.array([[True, True, False], [True, True, True]])
      >>> weight = jnp.array([[3.0, 3.0, 3.0], [1.0, 0.0, 0.0]])
      >>> effective_count(Dataset(mask, mask, mask, weight)).tolist()
      [2.0, 1.0]
    """
    if data.weight is None:
        return jnp.sum(data.mask > 0, axis=1)
    weights = data.weights
    squares = jnp.sum(weights**2, axis=1)
    return jnp.sum(weights, axis=1) ** 2 / jnp.where(squares > 0, squares, 1.0)
