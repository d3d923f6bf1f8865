"""The running statistics of BatchNorm as a part of a model.

Training moves them toward the statistics of each batch. Nothing else does: predictions and features
have no derivative by them (`flax_model`), a penalty of an objective is on the parameters
(`trainable`), and the optimiser takes the statistics' own step. A server averages them: its
learning rates, duals and learned functions are for parameters.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.trainable import of_statistics


def statistics(model: PyTree) -> Any:
    """The statistics of the model: None in place of each parameter.

    Example:
      >>> model = {"params": {"bias": jnp.ones(2)}, "batch_stats": {"mean": jnp.ones(1)}}
      >>> parts = statistics(model)
      >>> parts["params"], parts["batch_stats"]["mean"].tolist()
      ({'bias': None}, [1.0])
    """
    leaves, _ = tree.split(model, of_statistics)
    return leaves


def without_statistics(model: PyTree) -> Any:
    """The model with zeros in place of its statistics, such as a gradient without their changes.

    Example:
      >>> model = {"params": {"bias": jnp.ones(2)}, "batch_stats": {"mean": jnp.ones(1)}}
      >>> parts = without_statistics(model)
      >>> parts["params"]["bias"].tolist(), parts["batch_stats"]["mean"].tolist()
      ([1.0, 1.0], [0.0])
    """

    def leaf(keys: tuple, x: Array) -> Array:
        return jnp.zeros_like(x) if of_statistics(tree.path(keys)) else x

    return jax.tree_util.tree_map_with_path(leaf, model)


def change_term(before: PyTree, after: PyTree) -> Array:
    """A term of a loss with value 0 and, with respect to `before`, the gradient before - after.

    Example:
      >>> term, gradient = jax.value_and_grad(change_term)(jnp.array([3.0]), jnp.array([1.0]))
      >>> term.item(), gradient.tolist()
      (0.0, [2.0])
    """

    def leaf(old: Array, new: Array) -> Array:
        change = jax.lax.stop_gradient(old - new)
        return jnp.sum(change * (old - jax.lax.stop_gradient(old)))

    return sum(jax.tree.leaves(jax.tree.map(leaf, before, after)), jnp.zeros(()))


def moving_statistics(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimiser for the parameters, and SGD with rate 1 for the statistics.

    Example:
      >>> model = {"params": {"w": jnp.array(1.0)}, "batch_stats": {"m": jnp.array(1.0)}}
      >>> optimizer = moving_statistics(optax.sgd(0.5))
      >>> grads, _ = optimizer.update(model, optimizer.init(model))
      >>> grads["params"]["w"].item(), grads["batch_stats"]["m"].item()
      (-0.5, -1.0)
    """

    def labels(model: PyTree) -> PyTree:
        def label(keys: tuple, leaf: Array) -> str:
            return "statistics" if of_statistics(tree.path(keys)) else "parameters"

        return jax.tree_util.tree_map_with_path(label, model)

    return optax.partition({"parameters": optimizer, "statistics": optax.sgd(1.0)}, labels)
