"""Local training of a cohort and the upload of what it trained, as most rounds begin."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from jaxfl.core import tree
from jaxfl.core.streams import stream
from jaxfl.core.types import (
    Cohort,
    Fit,
    Fitted,
    Info,
    Params,
    PRNGKey,
    Task,
)


class Round(NamedTuple):
    """The result of local training and upload in a round."""

    # [M, ...] the models after local training
    trained: Params
    # [M, ...] what the server received; for a client that has not reported, the model before
    received: Params
    # counts one training and one upload; the method adds its weights and whatever else it does
    info: Info


def train_and_upload(
    task: Task,
    fit: Fit,
    key: PRNGKey,
    start: Params,
    anchor: PyTree,
    cohort: Cohort,
    sends: Callable[[Params], Params] = lambda model: model,
) -> Round:
    """Local training of a cohort, and the upload of the trained models.

    Args:
      task: has the upload.
      fit: local training, made by `task.trainer`.
      key: of the round.
      start: the model from which each client trains [M, ...].
      anchor: what the objective needs for each client [M, ...], or None.
      cohort: the clients of the round.
      sends: model -> the part that a client uploads; the whole model by default.

    Returns:
      The `Round`. Its info has no weights yet, and `down` equals `up`.

    Example:
      >>> key = jax.random.key(0)
      >>> start = tree.broadcast(task.problem.init(key), 4)
      >>> fit = task.trainer(jaxfl.training.objectives.data_loss(task.problem))
      >>> result = jax.eval_shape(lambda: train_and_upload(task, fit, key, start, None, cohort))
      >>> result.info.loss.shape
      (4,)
    """
    fitted = fit(stream(key, "fit"), start, anchor, cohort)
    received, info = upload(task, key, fitted, sends(start), sends(fitted.params), cohort)
    return Round(fitted.params, received, info)


def upload(
    task: Task, key: PRNGKey, fitted: Fitted, before: Params, after: Params, cohort: Cohort
) -> tuple[Params, Info]:
    """The upload of a round, and the `Info` of the round so far.

    Args:
      task: has the upload.
      key: of the round.
      fitted: the result of local training; the info takes its loss, its batches and, as `trained`,
        its models.
      before: the value from before the round of what is uploaded [M, ...].
      after: what is uploaded [M, ...].
      cohort: the clients of the round.

    Returns:
      What the server receives [M, ...], and an `Info` without weights in which `down` equals `up`.

    Example:
      >>> after = jnp.array([[1.0], [2.0], [3.0], [jnp.nan]])
      >>> fitted = Fitted(after, loss=jnp.zeros(4), batches=jnp.full(4, 5))
      >>> result = upload(task, jax.random.key(0), fitted, jnp.zeros((4, 1)), after, cohort)
      >>> result[0].tolist(), result[1].reported.tolist()
      ([[1.0], [2.0], [3.0], [0.0]], [True, True, True, False])
    """
    upload_key = stream(key, "upload")
    received, reported = task.upload(upload_key, before, after, cohort.ids, cohort.lost)
    return received, round_info(fitted, reported, tree.size(after) // cohort.ids.size)


def round_info(fitted: Fitted, reported: Bool[Array, "m"], floats: int) -> Info:
    """The `Info`, without weights, of a round in which a client sends and gets `floats` floats.

    Example:
      >>> fitted = Fitted(jnp.ones((2, 90)), loss=jnp.zeros(2), batches=jnp.full(2, 5))
      >>> round_info(fitted, jnp.ones(2, bool), 90).up.tolist()
      [90, 90]
    """
    counts = jnp.full(reported.shape, floats)
    return Info(fitted.loss, None, counts, counts, fitted.batches, reported, trained=fitted.params)
