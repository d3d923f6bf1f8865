"""A part of the model that clients mix of their own and the global one by parameter: FedALA, FedAH.

The mixture is local + A (global - local), with one entry of A in [0, 1] for each parameter.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxfl.algorithms.steps.client import Init, deploy_common
from jaxfl.algorithms.steps.heads import part_weights
from jaxfl.algorithms.steps.server import Step, mean_by_size, take_mean
from jaxfl.core import tree
from jaxfl.core.messages import Down, Outcome, ServerState, Uploads
from jaxfl.core.tree import Layers
from jaxfl.core.types import Cohort, Dataset, Fit, Params, PRNGKey, Problem, Scalar, Task
from jaxfl.training.batch_statistics import of_statistics
from jaxfl.training.objectives import data_loss, of_part


class Memory(NamedTuple):
    """What each client keeps."""

    # [C, ...] the part of the model that clients mix, as the client last trained it
    part: Params
    # [C, ...] A, of the shape of that part: the weight of the global one, from 0 to 1
    blend: Params


def init_blended(problem: Problem, layers: Layers) -> Init:
    """The start of a method whose clients keep a `Memory`, where A is 1, and whose server a model.

    Args:
      problem: what is learned.
      layers: the part of the model that clients mix.

    Example:
      >>> memory, _ = init_blended(task.problem, "Dense_1")(jax.random.key(0), cohort.train)
      >>> tree.size(memory.part), tree.size(memory.blend)
      (72, 72)
    """

    def init(key: PRNGKey, train: Dataset) -> tuple[Memory, ServerState]:
        model = problem.init(key)
        part = tree.broadcast(tree.split(model, layers)[0], len(train.mask))
        return Memory(part, jax.tree.map(jnp.ones_like, part)), ServerState(model)

    return init


def blended(local: Params, other: Params, blend: Params) -> Params:
    """The mixture local + A (other - local).

    Example:
      >>> blended(jnp.array([0.0, 0.0]), jnp.array([2.0, 4.0]), jnp.array([1.0, 0.5])).tolist()
      [2.0, 2.0]
    """
    return jax.tree.map(lambda h, g, a: h + (g - h) * a, local, other, blend)


def deploy_blended(layers: Layers) -> Callable[[Memory, Down, Cohort], Params]:
    """`Wire.deploy` of clients that deploy the server's model with the mixture of some layers.

    Args:
      layers: the part of the model that clients mix.

    Example:
      >>> memory, state = init_blended(task.problem, "Dense_1")(jax.random.key(0), cohort.train)
      >>> tree.size(deploy_blended("Dense_1")(memory, Down(state.server), cohort))
      360
    """

    def deploy(memory: Memory, down: Down, cohort: Cohort) -> Params:
        part, rest = tree.split(deploy_common(memory, down, cohort), layers)
        return tree.join(blended(memory.part, part, memory.blend), rest)

    return deploy


def learned_blend(task: Task, rate: Scalar, epochs: int) -> Fit:
    """A function that lowers the loss of the mixture by gradient steps on A, clipped to [0, 1].

    Its anchor is (local [M], other [M], rest [M]): both forms of the part, and the model's rest.

    Args:
      task: the model and its batches.
      rate: learning rate of A.
      epochs: passes over the data.

    Example:
      >>> fit = learned_blend(task, 1.0, 1)
      >>> model = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> local, rest = tree.split(model, "Dense_1")
      >>> blend = jax.tree.map(jnp.ones_like, local)
      >>> start = (jax.random.key(0), blend, (local, local, rest), cohort)
      >>> jax.eval_shape(fit, *start).loss.shape
      (4,)
    """
    loss = of_part(data_loss(task.problem))

    def objective(blend: Params, batch: Dataset, anchor: tuple, key: PRNGKey):
        local, other, rest = anchor
        # A of a statistic stays: the change of a statistic is no derivative.
        blend = tree.combine(of_statistics, jax.lax.stop_gradient(blend), blend)
        return loss(blended(local, other, blend), batch, rest, key)

    clip = optax.stateless(
        lambda updates, blend: jax.tree.map(lambda u, a: jnp.clip(a + u, 0, 1) - a, updates, blend)
    )
    return task.trainer(objective, epochs=epochs, optimizer=optax.chain(optax.sgd(rate), clip))


def mean_blend(blend: Params) -> Float[Array, "m"]:
    """The mean of A over the parameters: how much each client takes of the global part [M].

    Args:
      blend: A [M, ...].

    Example:
      >>> mean_blend(jnp.array([[0.5, 1.0], [0.0, 0.0]])).tolist()
      [0.75, 0.0]
    """
    return tree.ravel(blend).mean(axis=1)


def take_blended(layers: Layers, shared: str, mixed: str) -> Step:
    """FedAvg's step, with the weights of both parts as if clients took the whole global model.

    Args:
      layers: the part of the model that clients mix.
      shared: the name of the other part.
      mixed: the name of the part that clients mix.

    Example:
      >>> received = tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> uploads = Uploads(cohort.ids, cohort.sizes, jnp.ones(4, bool), received, received)
      >>> step = take_blended("Dense_1", "lower", "upper")
      >>> sorted(step(jax.random.key(0), ServerState(), uploads).weights)
      ['lower', 'upper']
    """
    step = take_mean(mean_by_size)

    def server(key: PRNGKey, state: ServerState, uploads: Uploads) -> Outcome:
        outcome = step(key, state, uploads)
        matrix = outcome.weights
        rest = tree.split(uploads.received, layers)[1]
        return outcome._replace(weights=part_weights(matrix, shared, mixed, rest, matrix))

    return server
