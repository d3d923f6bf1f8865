"""Clients that train from their mixture and stay aligned with it, by equation (3) of pFedGraph.

Ye et al., ICML 2023, https://proceedings.mlr.press/v202/ye23b.html.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import PyTree

from jaxfl.algorithms.steps.client_steps import Init
from jaxfl.core import tree
from jaxfl.core.messages import Down, Report, ServerState, Turn
from jaxfl.core.options import checked
from jaxfl.core.types import Cohort, Dataset, Fit, Fitted, Params, PRNGKey, Problem, Scalar, Task
from jaxfl.kernels.alignment import Alignment, misalignment
from jaxfl.kernels.similarity import inverse_norms
from jaxfl.training.objectives import data_loss


class Aligned(NamedTuple):
    """What each client keeps."""

    # [C, ...] the mixture, which the client deploys and from which it trains
    model: Params
    # with which the client aligns its model: the normalised mixture of (3) [C, ...], or a factor of
    # `model` [C]; at first 0
    anchor: Params


@checked
def init_aligned(problem: Problem, anchor: Alignment, keep_initial: bool = False) -> Init:
    """The start of clients that keep an `Aligned` model, and of a server.

    Args:
      problem: what is learned.
      anchor: the regulariser.
      keep_initial: the server keeps the initial model; otherwise it keeps nothing.

    Example:
      >>> memory, _ = init_aligned(task.problem, "approx")(jax.random.key(0), cohort.train)
      >>> memory.anchor.shape
      (4,)
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[Aligned, ServerState]:
        model = problem.init(key)
        clients = train.mask.shape[0]
        stacked = tree.broadcast(model, clients)
        unaligned = tree.zeros_like(stacked) if anchor == "cosine" else jnp.zeros(clients)
        return Aligned(stacked, unaligned), ServerState(model if keep_initial else ())

    return init


@checked
def fit_aligned(task: Task, lam: Scalar, anchor: Alignment) -> Fit:
    """Local training that lowers the data loss plus lam / 2 times the misalignment.

    Args:
      task: the model and its training.
      lam: strength of the regulariser.
      anchor: the regulariser, see `kernels.alignment`.

    Returns:
      (key, models [M, ...], `Aligned` [M], cohort) -> Fitted.

    Example:
      >>> memory, _ = init_aligned(task.problem, "l2")(jax.random.key(0), cohort.train)
      >>> fit = fit_aligned(task, 0.1, "l2")
      >>> jax.eval_shape(fit, jax.random.key(0), memory.model, memory, cohort).loss.shape
      (4,)
    """
    loss = data_loss(task.problem)

    def objective(params: Params, batch: Dataset, aligned: tuple, key: PRNGKey):
        centre, factor = aligned
        value, aux = loss(params, batch, None, key)
        distance = misalignment(params, centre, factor, anchor)
        return value + lam / 2 * distance, aux

    fit = task.trainer(objective)

    def fit_models(key: PRNGKey, params: Params, memory: Aligned, cohort: Cohort) -> Fitted:
        ones = jnp.ones(cohort.ids.size)
        centre = (memory.anchor, ones) if anchor == "cosine" else memory
        return fit(key, params, centre, cohort)

    return fit_models


@checked
def offer_aligned(mix: Callable[[PyTree], PyTree], received: Params, anchor: Alignment) -> Down:
    """Each client's mixture, and with the regulariser "cosine" its mixture of normalised models.

    Args:
      mix: models [M, ...] -> mixtures [M, ...].
      received: models [M, ...].
      anchor: the regulariser.

    Example:
      >>> offer = offer_aligned(lambda models: models, jnp.array([[0.0, 4.0]]), "cosine")
      >>> [model.tolist() for model in offer.each]
      [[[0.0, 4.0]], [[0.0, 1.0]]]
    """
    mixture = (mix(received),)
    if anchor == "cosine":
        mixture += (mix(tree.scale(received, inverse_norms(received))),)
    return Down(each=mixture)


@checked
def take_aligned(
    task: Task, anchor: Alignment
) -> Callable[[PRNGKey, Aligned, Down, Cohort], tuple]:
    """The last step of a round, in which each client takes what `offer_aligned` has made for it.

    Args:
      task: it says whether clients refuse; one that does is aligned with its own model.
      anchor: the regulariser.

    Returns:
      `Exchange.client`, for clients that keep an `Aligned` model: the one that they have trained.

    Example:
      >>> memory, _ = init_aligned(task.problem, "l2")(jax.random.key(0), cohort.train)
      >>> offer = offer_aligned(lambda models: models, memory.model, "l2")
      >>> take_aligned(task, "l2")(jax.random.key(0), memory, offer, cohort)[0].anchor.tolist()
      [1.0, 1.0, 1.0, 1.0]
    """

    def take(key: PRNGKey, memory: Aligned, down: Down, cohort: Cohort) -> Turn[Aligned]:
        model, accepted = task.accept(memory.model, down.each[0], cohort)
        aligned = inverse_norms(model) if anchor == "approx" else jnp.ones(cohort.ids.size)
        if anchor == "cosine":
            alone = tree.scale(model, inverse_norms(model))
            aligned = tree.choose(accepted, down.each[1], alone)
        return Aligned(model, aligned), None, Report(accepted=accepted)

    return take


def deploy_aligned(memory: Aligned, down: Down, cohort: Cohort) -> Params:
    """What clients deploy if it is the model of an `Aligned`.

    Example:
      >>> deploy_aligned(Aligned("the models", ()), Down(), cohort)
      'the models'
    """
    return memory.model
