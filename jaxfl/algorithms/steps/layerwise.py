"""Mixtures with weights of each layer, and the derivatives of losses by these weights."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from jaxfl.algorithms.steps.uploads import train_and_upload
from jaxfl.core import tree
from jaxfl.core.types import Cohort, Fit, Info, Params, PRNGKey, Task
from jaxfl.kernels.mixing import isolate, keep_own, mix
from jaxfl.kernels.similarity import gram
from jaxfl.training.batch_statistics import of_statistics

# One matrix for each layer, by name [M, M] (receiver, sender).
Weights = dict[str, Float[Array, "m m"]]


def layer_of(path: str) -> str:
    """The layer of a leaf: the module that it belongs to, or its path if there is none.

    Example:
      >>> layer_of("params/Dense_0/kernel"), layer_of("w")
      ('Dense_0', 'w')
    """
    return "/".join(path.split("/")[1:-1]) or path


def by_layer(model: Params) -> dict[str, list[Array]]:
    """The parameters of each layer, without statistics of BatchNorm.

    Args:
      model: one model or a stack.

    Example:
      >>> layers = by_layer({"params": {"Dense_0": {"bias": jnp.zeros(2), "kernel": jnp.ones(2)}}})
      >>> [(name, len(leaves)) for name, leaves in layers.items()]
      [('Dense_0', 2)]
    """
    layers: dict[str, list[Array]] = {}
    for keys, leaf in jax.tree_util.tree_leaves_with_path(model):
        name = tree.path(keys)
        if not of_statistics(name):
            layers.setdefault(layer_of(name), []).append(leaf)
    return layers


class Mixed(NamedTuple):
    """A round of clients that train from mixtures."""

    # [M, ...] the mixtures, or the model of a client that keeps its own
    start: Params
    # [M, ...] the models after local training
    trained: Params
    # [M, ...] what the server received of them
    received: Params
    # the gradient of the sum of the clients' losses by what the weights are made of
    grads: PyTree
    # with the weights
    info: Info


def train_from_mixtures(
    task: Task,
    fit: Fit,
    key: PRNGKey,
    weigh: Callable[[PyTree], Weights],
    learned: PyTree,
    model: Params,
    received: Params,
    seen: Bool[Array, "m"],
    cohort: Cohort,
) -> Mixed:
    """Each client trains from its mixture, and the server sees how the weights should change.

    Local training moves a client along the negative gradients of its loss, so start - received
    stands for the gradient at the mixture. Its products with the models of the mixture are the
    derivatives of the loss by the weights, and the chain rule gives those by `learned`.

    Args:
      task: has the upload, and which edges of the graph stay.
      fit: local training.
      key: of the round.
      weigh: learned -> row-stochastic weights of each layer, in the order of `by_layer`.
      learned: what the server learns, of any structure.
      model: each client's own model, which it may keep (`Task.accept`) [M, ...].
      received: what the server has received from each client [M, ...].
      seen: whether it has received anything; other clients are in nobody's mixture, and start from
        the model that stands in `received`.
      cohort: the clients of the round.

    Example:
      >>> model = jaxfl.tree.broadcast(task.problem.init(jax.random.key(0)), 4)
      >>> half = lambda s: {n: (s + jnp.eye(4)) / (4 * s + 1) for n in ("Dense_0", "Dense_1")}
      >>> fit = task.trainer(jaxfl.training.objectives.data_loss(task.problem))
      >>> arguments = (half, jnp.array(0.5), model, model, jnp.ones(4, bool), cohort)
      >>> mixed = train_from_mixtures(task, fit, jax.random.key(1), *arguments)
      >>> mixed.grads.shape, sorted(mixed.info.weights)
      ((), ['Dense_0', 'Dense_1'])
    """

    def edge_weights(learned: PyTree) -> Weights:
        layers = weigh(learned)
        return {name: task.keep_edges(isolate(layers[name], seen)).weights for name in layers}

    weights, pull_back = jax.vjp(edge_weights, learned)
    # Each client trains from its mixture of every layer.
    rows = {name: task.keep_edges(matrix).rows for name, matrix in weights.items()}
    by_leaf = jax.tree_util.tree_map_with_path(
        lambda keys, leaf: rows[layer_of(tree.path(keys))], received
    )
    start, accepted = task.accept(model, mix(by_leaf, received), cohort)
    trained, arrived, info = train_and_upload(task, fit, key, start, None, cohort)

    # The derivatives of the losses by the weights, and by what the weights are made of.
    drifts = by_layer(jax.tree.map(jnp.subtract, start, arrived))
    models = by_layer(received)
    mask = (accepted & seen)[:, None]
    derivatives = {name: jnp.where(mask, gram(drifts[name], models[name]), 0.0) for name in models}
    (grads,) = pull_back(jax.tree.map(lambda x: jnp.where(jnp.isfinite(x), x, 0.0), derivatives))
    info = info._replace(weights={name: keep_own(w, accepted) for name, w in weights.items()})
    return Mixed(start, trained, arrived, grads, info)
