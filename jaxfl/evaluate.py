"""Evaluation: the model that each client deploys, before and after fine-tuning, scored on its own data."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxfl import tree
from jaxfl.objectives import data_loss
from jaxfl.types import (
    Algorithm,
    Chunk,
    Cohort,
    Dataset,
    Federation,
    Params,
    Pool,
    PRNGKey,
    State,
    Task,
)


class Scores(NamedTuple):
    """Mean score of each client; NaN for a client that has no such data."""

    val: Float[Array, "*m"]  # [M]
    test: Float[Array, "*m"]  # [M]


class Evaluation(NamedTuple):
    """Scores of the deployed models, and of the same models after each client has fine-tuned its own."""

    before: Scores
    after: Scores


def score_clients(
    apply: Callable,
    score: Callable,
    params: Params,
    data: Dataset | Pool,
    *,
    batch_size: int | None = None,
    chunk: Chunk = "auto",
) -> Float[Array, "m"]:
    """Weighted mean score of each client's model on its data [M].

    Args:
      apply: (params, x [B]) -> prediction [B] of one client.
      score: (prediction [B], y [B]) -> [B].
      params: [M, ...].
      data: [M, n, ...], or one pool [n, ...] with weights [M, n].
      batch_size: examples predicted at a time. None: 20 for images on CPU, whose patches fit the
        cache, else 256.
      chunk: clients side by side, see `tree.over_clients`.
    """
    features = data.x.ndim - (1 if isinstance(data, Pool) else 2)
    if batch_size is None:
        batch_size = 20 if features == 3 and jax.default_backend() == "cpu" else 256

    def one(params: Params, data: Dataset) -> Float[Array, ""]:
        def batch(part: Dataset):
            values = score(apply(params, part.x), part.y)
            return jnp.sum(jnp.where(part.mask > 0, values * part.mask, 0.0)), jnp.sum(
                part.mask, dtype=jnp.float32
            )

        total, weight = tree.sum_batches(batch, data, min(batch_size, max(data.mask.size, 1)))
        return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1.0), jnp.nan)

    if isinstance(data, Pool):
        return tree.over_clients(lambda p, mask: one(p, Dataset(data.x, data.y, mask)), chunk)(
            params, data.mask
        )
    return tree.over_clients(one, chunk)(params, data)


def make_evaluate(
    algorithm: Algorithm, task: Task, *, batch_size: int | None = None, chunk: Chunk = "auto"
) -> Callable:
    """The jitted function that evaluates the clients `ids`.

    Fine-tuning is the task's own local training on its data loss, from the model that the algorithm
    deploys; it leaves the state alone. Who diverges in it keeps the deployed model.

    Args:
      algorithm: says which model a client deploys, and how it predicts; before and after
        fine-tuning it recalls.
      task: its loss fine-tunes, its score scores.
      batch_size: examples predicted at a time, see `score_clients`.
      chunk: clients side by side, see `tree.over_clients`.

    Returns:
      evaluate(key, federation, state, ids [M]) -> Evaluation with scores [M].
    """
    fine_tune = task.trainer(data_loss(task.problem, algorithm.apply))

    @jax.jit
    def evaluate(
        key: PRNGKey, federation: Federation, state: State, ids: Int[Array, "m"]
    ) -> Evaluation:
        cohort = Cohort(ids, tree.take(federation.train, ids), tree.take(federation.val, ids))
        shared = isinstance(federation.test, Pool)
        test = (
            federation.test._replace(mask=federation.test.mask[ids])
            if shared
            else tree.take(federation.test, ids)
        )

        def scores(params: Params) -> Scores:
            if task.problem.recall is not None:
                params = tree.over_clients(task.problem.recall, chunk)(params, cohort.train)
            if algorithm.recall is not None:
                params = tree.over_clients(algorithm.recall, chunk)(params, cohort.train)
            return Scores(
                *(
                    score_clients(
                        algorithm.apply,
                        task.problem.score,
                        params,
                        data,
                        batch_size=batch_size,
                        chunk=chunk,
                    )
                    for data in (cohort.val, test)
                )
            )

        deployed = algorithm.models(state, ids)
        tuned = fine_tune(key, deployed, None, cohort).params
        tuned = tree.choose(tree.finite(tuned, ids.size), tuned, deployed)
        return Evaluation(scores(deployed), scores(tuned))

    return evaluate


def summarise(scores: np.ndarray, sizes: np.ndarray) -> dict[str, float | None]:
    """The numbers that papers report of one evaluation.

    Args:
      scores: of each client [M]; NaN for a client that has no such data, which is left out.
      sizes: examples that each client owns [M].

    Returns:
      `mean`, `weighted` (by sizes), `std` (population), `worst10` (mean of the lowest tenth, at
      least one client); each None if no client has a score.
    """
    known = ~np.isnan(scores)
    scores, sizes = np.asarray(scores, float)[known], np.asarray(sizes, float)[known]
    scores = np.clip(
        scores, -1e30, 1e30
    )  # squares of errors may overflow, and JSON knows no infinity
    if scores.size == 0:
        return dict.fromkeys(("mean", "weighted", "std", "worst10"))
    worst = np.sort(scores)[: max(1, round(0.1 * scores.size))]
    return {
        "mean": float(scores.mean()),
        "weighted": float(np.average(scores, weights=sizes if sizes.sum() > 0 else None)),
        "std": float(scores.std()),
        "worst10": float(worst.mean()),
    }


def select_on_val(val: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Each client's test score at its own best validation score so far, never looking at the test scores to choose.

    Args:
      val: [E, C] by evaluation; NaN where a client was not evaluated or has no validation data.
      test: [E, C].

    Returns:
      [C]: the test score at the first evaluation with the highest validation score; for a client
        without validation
      scores its last known test score; NaN if it was never evaluated.
    """
    best = np.argmax(np.where(np.isnan(val), -np.inf, val), axis=0)
    seen = ~np.isnan(test)
    last = len(test) - 1 - np.argmax(seen[::-1], axis=0)
    chosen = np.where(np.isnan(val).all(axis=0), last, best)
    return test[chosen, np.arange(test.shape[1])]
