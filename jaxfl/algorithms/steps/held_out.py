"""Scores of several models on examples from which a client does not train, by which it chooses."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from jaxfl.core import tree
from jaxfl.core.types import Cohort, Dataset, Params, PRNGKey, Task
from jaxfl.training.deployed import completion
from jaxfl.training.objectives import masked_mean

# A client without validation data holds out one of so many examples of its training.
FOLD = 5


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


def relative_scores(
    task: Task,
) -> Callable[[Sequence[Params], Cohort], tuple[Array, Array, Float[Array, "m"]]]:
    """Scores of K deployed models on held-out examples, each less the mean score of all of them.

    Returns:
      (K models [M, ...], cohort) -> the mean of each client's relative scores [M, K], the mean of
      their squares [M, K], and its number of held-out examples [M]. These are its validation
      examples, or those of `hold_out`.

    Example:
      >>> model = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> means, squares, counts = relative_scores(task)((model, model, model), cohort)
      >>> means.shape, counts.tolist() == cohort.val.mask.sum(axis=1).tolist()
      ((4, 3), True)
    """

    def moments(models: PyTree, batch: Dataset, anchor: PyTree, key: PRNGKey):
        target = task.problem.compared(batch.x, batch.y)
        scores = [task.problem.score(task.problem.apply(m, batch.x), target) for m in models]
        each = jnp.stack(scores, axis=1)
        relative = each - each.mean(axis=1, keepdims=True)
        both = jnp.concatenate([relative, relative**2], axis=1)
        value = jax.vmap(lambda column: masked_mean(column, batch.weights), in_axes=1)(both)
        return value, value

    evaluate = task.evaluate(moments)
    complete = completion(task.problem)

    def scores(models: Sequence[Params], cohort: Cohort) -> tuple[Array, Array, Float[Array, "m"]]:
        deployed = tuple(complete(model, cohort) for model in models)
        # Nothing is random in evaluation, so any key will do.
        key = jax.random.key(0)
        held_out = hold_out(cohort)[1]
        of_val = evaluate(key, deployed, cohort.val, cohort.ids)
        of_train = evaluate(key, deployed, held_out, cohort.ids)
        own = (jnp.asarray(cohort.val.mask) > 0).sum(axis=1)
        counts = jnp.where(own > 0, own, held_out.mask.sum(axis=1))
        means, squares = jnp.split(jnp.where(own[:, None] > 0, of_val, of_train), 2, axis=1)
        return means, squares, counts.astype(float)

    return scores


def pick(models: Sequence[Params], places: Int[Array, "m"]) -> Params:
    """The model of each client at its place among several.

    Args:
      models: K stacked models [M, ...].
      places: of the client's among them [M].

    Example:
      >>> pick((jnp.zeros(3), jnp.ones(3)), jnp.array([0, 1, 1])).tolist()
      [0.0, 1.0, 1.0]
    """
    chosen = models[0]
    for place, model in enumerate(models[1:], start=1):
        chosen = tree.choose(places == place, model, chosen)
    return chosen
