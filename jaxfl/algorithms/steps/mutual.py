"""Mutual learning: a client trains its own model and a small one, each of which learns from both.

What clients exchange are the small models, which are of one architecture whatever their own are.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.problems import small_problem
from jaxfl.core.messages import Turn, Up, report_of
from jaxfl.core.streams import stream
from jaxfl.core.types import Cohort, Dataset, Params, PRNGKey, Scalar, Task
from jaxfl.training.objectives import data_loss, masked_mean, training_predictions


class Pair(NamedTuple):
    """The two models of a client."""

    own: Params
    small: Params


def mutual_training(
    task: Task, alpha: Scalar, beta: Scalar
) -> Callable[[PRNGKey, Params, Params, Cohort], Turn[Params]]:
    """The client's half of mutual learning (Shen et al., 2020, equations 5 and 6).

    Its own model minimises alpha times its loss and 1 - alpha times the divergence of the small
    model's predictions from its own, the small one likewise with beta.

    Args:
      task: the own model and its training, which is that of the small one too.
      alpha: weight of the labels for the own model.
      beta: weight of the labels for the small model.

    Returns:
      (key, own models [M, ...], small models [M, ...], cohort) -> the own models, the message with
      the small ones, and the report.

    Example:
      >>> models = jax.vmap(task.problem.init)(jax.random.split(jax.random.key(0), 4))
      >>> train = mutual_training(task, 0.5, 0.5)
      >>> own, up, report = train(jax.random.key(0), models, models, cohort)
      >>> report.loss.shape
      (4,)
    """
    small = small_problem(task)
    losses = Pair(data_loss(task.problem), data_loss(small))
    predictions = Pair(training_predictions(task.problem), training_predictions(small))

    def objective(pair: Pair, batch: Dataset, anchor: None, key: PRNGKey):
        logits = [
            predict(model, batch.x, batch.mask, key)[0]
            for predict, model in zip(predictions, pair, strict=True)
        ]
        values = [loss(model, batch, None, key) for loss, model in zip(losses, pair, strict=True)]
        total = 0.0
        for (value, error), weight, mine, other in zip(
            values, (alpha, beta), logits, logits[::-1], strict=True
        ):
            gap = masked_mean(divergence(jax.lax.stop_gradient(other), mine), batch.weights)
            # A term of statistics in the value keeps its weight.
            total += value + (1 - weight) * (gap - error)
        return total, values[0][1]

    fit = task.trainer(objective)

    def train(key: PRNGKey, own: Params, start: Params, cohort: Cohort) -> Turn[Params]:
        fitted = fit(stream(key, "fit"), Pair(own, start), None, cohort)
        # A gradient of each of the two.
        report = report_of(fitted, batches=2 * fitted.batches, trained=fitted.params.own)
        return fitted.params.own, Up(fitted.params.small, start), report

    return train


def divergence(logits: Float[Array, "b k"], other: Float[Array, "b k"]) -> Float[Array, "b"]:
    """The Kullback-Leibler divergence of the predictions of the second logits from the first.

    Example:
      >>> divergence(jnp.zeros((1, 2)), jnp.zeros((1, 2))).tolist()
      [0.0]
    """
    first, second = jax.nn.log_softmax(logits), jax.nn.log_softmax(other)
    return jnp.sum(jnp.exp(first) * (first - second), axis=-1)
