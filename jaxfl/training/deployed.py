"""Losses of models as clients deploy them, by which clients choose among models."""

from collections.abc import Callable

import jax
from jaxtyping import Array, Float

from jaxfl.core.options import checked
from jaxfl.core.over_clients import over_clients
from jaxfl.core.types import Chunk, Cohort, Dataset, Params, Problem, Task
from jaxfl.training.objectives import deployed_loss


@checked
def completion(problem: Problem, chunk: Chunk = "auto") -> Callable[[Params, Cohort], Params]:
    """What `Problem.apply` takes: the models, or the models with statistics of the clients' data.

    Args:
      problem: its `recall` completes a model before it predicts.
      chunk: clients computed side by side, see `over_clients`.

    Returns:
      (models [M, ...], cohort) -> the models [M, ...], complete.

    Example:
      >>> models = jax.vmap(task.problem.init)(jax.random.split(jax.random.key(0), 4))
      >>> completion(task.problem)(models, cohort) is models  # no statistics are recomputed
      True
    """

    def complete(models: Params, cohort: Cohort) -> Params:
        if problem.recall is None:
            return models
        return over_clients(problem.recall, chunk)(models, cohort.train)

    return complete


def deployed_losses(task: Task) -> Callable[[Params, Dataset, Cohort], Float[Array, "m"]]:
    """The mean losses of models on data of the clients, as they would be if clients deployed them.

    Dropout is off, and statistics of BatchNorm are the models' own or, if they are recomputed,
    those of the client's training examples. No key enters.

    Returns:
      (models [M, ...], data [M, n], cohort) -> losses [M]; 0 for a client without examples.

    Example:
      >>> models = jax.vmap(task.problem.init)(jax.random.split(jax.random.key(0), 4))
      >>> deployed_losses(task)(models, cohort.train, cohort).shape
      (4,)
    """
    evaluate = task.evaluate(deployed_loss(task.problem))
    complete = completion(task.problem)

    def losses(models: Params, data: Dataset, cohort: Cohort) -> Float[Array, "m"]:
        # Nothing is random in evaluation, so any key will do.
        return evaluate(jax.random.key(0), complete(models, cohort), data, cohort.ids)

    return losses
