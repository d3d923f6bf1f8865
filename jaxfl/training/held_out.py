"""What the examples that a client holds out say of several models, of which it takes one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jaxfl.core.over_clients import over_clients
from jaxfl.core.types import Cohort, Dataset, Params, Problem, Task
from jaxfl.training.acceptance import effective_count
from jaxfl.training.batches import read
from jaxfl.training.deployed import completion
from jaxfl.training.loop import sum_parts

# A client without validation data holds out one of so many examples of its training.
FOLD = 5
# number of examples whose values are computed at a time
PART = 32


class HeldOut(NamedTuple):
    """What a client's held-out examples say of K models, which it sends."""

    means: Float[Array, "m k"]  # of the value of each less the mean value of all
    squares: Float[Array, "m k"]  # of these
    best: Float[Array, "m 2"]  # of the values of the best one, and of their squares
    chance: Float[Array, "m 2"]  # the same, with the targets of other examples


def hold_out(cohort: Cohort) -> tuple[Cohort, Dataset]:
    """The cohort as it trains, and the training examples that are held out.

    A client without validation examples holds out every fifth of its training examples, the same in
    each round; another one holds out none.

    Args:
      cohort: the clients.

    Example:
      >>> rest, held_out = hold_out(cohort)
      >>> held_out.mask.sum(axis=1).tolist(), rest.train.mask.sum() == cohort.train.mask.sum()
      ([0, 0, 0, 0], Array(True, dtype=bool))
      >>> empty = cohort._replace(val=cohort.val._replace(mask=jnp.zeros_like(cohort.val.mask)))
      >>> bool(hold_out(empty)[1].mask.any())
      True
    """
    mask = jnp.asarray(cohort.train.mask) > 0
    validates = (jnp.asarray(cohort.val.mask) > 0).any(axis=1, keepdims=True)
    out = mask & ~validates & (jnp.cumsum(mask, axis=1) % FOLD == 0)
    train = cohort.train._replace(mask=mask & ~out)
    return cohort._replace(train=train), cohort.train._replace(mask=out)


def value(
    problem: Problem, model: Params, x: PyTree, target: PyTree, weights: Array
) -> Float[Array, "b"]:
    """What a model is worth on each example [B]: its score, and its e^-error.

    The accuracy of classes, and the probability of the true one: among models that are right
    equally often the surer one is better.

    Args:
      problem: of the scores and errors.
      model: complete.
      x: inputs [B].
      target: what predictions are compared with [B].
      weights: of the examples [B].

    Example:
      >>> model = task.problem.init(jax.random.key(0))
      >>> x, target = jnp.zeros((2, 8)), jnp.array([0, 1])  # both logits are 0
      >>> value(task.problem, model, x, target, jnp.ones(2)).tolist()
      [1.5, 0.5]
    """
    predictions = problem.apply(model, x)
    error = problem.errors(predictions, target, weights)
    return problem.scores(predictions, target, weights) + jnp.exp(-error)


def held_out_values(
    task: Task,
) -> Callable[[Sequence[Params], Cohort], tuple[HeldOut, Float[Array, "m"]]]:
    """The values of K deployed models on held-out examples.

    Returns:
      (K models [M, ...], cohort) -> what the client tells of them, and its number of held-out
      examples [M]. These are its validation examples, or those of `hold_out`.

    Example:
      >>> model = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> held_out, counts = held_out_values(task)((model, model, model), cohort)
      >>> held_out.means.shape, counts.tolist() == cohort.val.mask.sum(axis=1).tolist()
      ((4, 3), True)
    """
    problem = task.problem
    complete = completion(problem)

    def of_client(models: Sequence[Params], data: Dataset) -> Float[Array, "6 k"]:
        """Means of each model's relative values, of its values, and of those by chance; squares."""

        def sums(part: Dataset) -> Array:
            y, places = part.y
            target = problem.compared(part.x, y)
            # The targets of other examples.
            x, y = (read(of, (places,), jnp.array(True)) for of in (data.x, data.y))
            others = problem.compared(x, y)
            given = part.weights
            each = jnp.stack([value(problem, model, part.x, target, given) for model in models])
            chance = jnp.stack([value(problem, model, part.x, others, given) for model in models])
            relative = each - each.mean(axis=0, keepdims=True)
            columns = jnp.stack([relative, relative**2, each, each**2, chance, chance**2])
            weights = jnp.asarray(part.weights, float)[None, None]
            return jnp.sum(jnp.where(weights > 0, columns * weights, 0.0), axis=-1)

        with_places = data._replace(y=(data.y, partners(data.mask)))
        total = data.weights.sum()
        return sum_parts(sums, with_places, PART) / jnp.where(total > 0, total, 1)

    means = over_clients(of_client, "auto")

    def values(models: Sequence[Params], cohort: Cohort) -> tuple[HeldOut, Float[Array, "m"]]:
        rest, held_out = hold_out(cohort)
        deployed = tuple(complete(model, rest) for model in models)
        own = (jnp.asarray(cohort.val.mask) > 0).sum(axis=1)
        counts = jnp.where(own > 0, effective_count(cohort.val), effective_count(held_out))
        of_val, of_train = means(deployed, cohort.val), means(deployed, held_out)
        found = jnp.where((own > 0)[:, None, None], of_val, of_train)
        best = (found[:, 2] - found[:, 4]).argmax(axis=1)
        of_best = jnp.take_along_axis(found[:, 2:], best[:, None, None], axis=2)[..., 0]
        told = HeldOut(found[:, 0], found[:, 1], of_best[:, :2], of_best[:, 2:])
        return told, counts.astype(float)

    return values


def partners(mask: Array) -> Int[Array, "n"]:
    """For each example of a client the place of the next one; the last one has the first.

    Args:
      mask: of the examples that are there [n].

    Example:
      >>> partners(jnp.array([1, 0, 1, 1])).tolist()
      [2, 1, 3, 0]
    """
    real = jnp.asarray(mask) > 0
    order = jnp.argsort(~real, stable=True)
    place = jnp.arange(order.size)
    after = order[(place + 1) % jnp.maximum(real.sum(), 1)]
    return jnp.zeros_like(order).at[order].set(jnp.where(place < real.sum(), after, order))
