"""A part of the model that clients mix of their own and the global one by parameter: FedALA, FedAH.

The mixture is local + A (global - local), with one entry of A in [0, 1] for each parameter.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from jaxfl.core import tree
from jaxfl.core.tree import Layers
from jaxfl.core.types import Cohort, Dataset, Fit, Params, PRNGKey, Scalar, State, Task
from jaxfl.training.objectives import data_loss, of_part

__all__ = ["Client", "blended", "blended_models", "blended_weights", "first_blend", "learned_blend"]


class Client(NamedTuple):
    """The state of each client."""

    # [C, ...] the part of the model that clients mix, as the client last trained it
    part: Params
    # [C, ...] A, of the shape of that part: the weight of the global one, from 0 to 1
    blend: Params


def first_blend(model: Params, layers: Layers, clients: int) -> Client:
    """The state of clients that have not taken part yet, where A is 1.

    Example:
      >>> model = {"Dense_0": jnp.array([3.0]), "Dense_1": jnp.array([5.0])}
      >>> first_blend(model, "Dense_1", clients=2).blend["Dense_1"].tolist()
      [[1.0], [1.0]]
    """
    part = tree.broadcast(tree.split(model, layers)[0], clients)
    return Client(part, jax.tree.map(jnp.ones_like, part))


def blended(local: Params, other: Params, blend: Params) -> Params:
    """The mixture local + A (other - local).

    Example:
      >>> blended(jnp.array([0.0, 0.0]), jnp.array([2.0, 4.0]), jnp.array([1.0, 0.5])).tolist()
      [2.0, 2.0]
    """
    return jax.tree.map(lambda h, g, a: h + (g - h) * a, local, other, blend)


def blended_models(layers: Layers) -> Callable[[State, Cohort], Params]:
    """`Algorithm.models` for a state of `Client` and the global model: the global one, blended.

    Args:
      layers: the part of the model that clients mix.

    Example:
      >>> model = {"Dense_0": jnp.array([3.0]), "Dense_1": jnp.array([5.0])}
      >>> state = State(first_blend(model, "Dense_1", clients=4), model)
      >>> blended_models("Dense_1")(state, cohort)["Dense_1"].tolist()
      [[5.0], [5.0], [5.0], [5.0]]
    """

    def models(state: State, cohort: Cohort) -> Params:
        client = tree.take(state.clients, cohort.ids)
        part, rest = tree.split(tree.broadcast(state.server, cohort.ids.size), layers)
        return tree.join(blended(client.part, part, client.blend), rest)

    return models


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
        return loss(blended(local, other, blend), batch, rest, key)

    clip = optax.stateless(
        lambda updates, blend: jax.tree.map(lambda u, a: jnp.clip(a + u, 0, 1) - a, updates, blend)
    )
    return task.trainer(objective, epochs=epochs, optimizer=optax.chain(optax.sgd(rate), clip))


def blended_weights(
    weights: Float[Array, "m m"], blend: Params, reported: Bool[Array, "m"]
) -> Float[Array, "m m"]:
    """The weights of the part: the client's own, and the global one with the mean of A.

    Args:
      weights: of the global model [M, M].
      blend: A [M, ...].
      reported: a client that has not reported keeps its own part [M].

    Example:
      >>> mean = jnp.full((2, 2), 0.5)
      >>> blended_weights(mean, jnp.array([[0.5], [0.0]]), jnp.ones(2, bool)).tolist()
      [[0.75, 0.25], [0.0, 1.0]]
    """
    mean_blend = tree.ravel(blend).mean(axis=1)
    mean_blend = jnp.where(reported, mean_blend, 0.0)[:, None]  # [M, 1]
    return (1 - mean_blend) * jnp.eye(reported.size) + mean_blend * weights
