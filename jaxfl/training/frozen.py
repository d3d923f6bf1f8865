"""Models of which only a part is trained, sent and mixed; the rest is there once, for all clients.

The frozen weights are no part of the model that clients hold: they are constants of its functions.
So no state, no upload, no checkpoint and no file of a run has them, and since they have no client
axis, a layer's product with them is one product over the examples of all clients that are computed
side by side.
"""

import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.types import Params, PRNGKey
from jaxfl.training.functions import Functions, through


@dataclass(frozen=True)
class Frozen:
    """A model of which a part is trained; `freeze` describes the fields.

    Example:
      >>> freeze(jaxfl.models.mlp(10), {}, "Dense_1").trainable
      'Dense_1'
    """

    model: Any
    weights: PyTree = field(repr=False)
    trainable: str
    dtype: str | None = None


def freeze(model: Any, weights: PyTree, trainable: str, *, dtype: str | None = None) -> Frozen:
    """The model with given weights, of which only those parameters change that `trainable` names.

    It stands wherever a model may stand. What clients train, send, mix and keep is the tree of the
    model's parameters with None in the place of each frozen one.

    Args:
      model: a flax module, a `Model`, or one with adapters of `lora`.
      weights: arrays of real numbers, in the form of the model's parameters, or by their paths:
        {"params/Dense_0/kernel": array}. A frozen parameter must be among them. A parameter that is
        trained begins with its array, or is drawn anew where there is none.
      trainable: a regular expression that finds the trained parameters by their paths, such as
        "head|lora".
      dtype: type in which the frozen weights are kept, such as "bfloat16", which takes half the
        memory. None: as they are given.

    Raises:
      InputError: nothing is trained, or the weights do not fit the model; raised when the task is
        made.

    Example:
      >>> module = jaxfl.models.mlp(10)
      >>> weights = module.init(jax.random.key(0), jnp.zeros((1, 8, 8)))
      >>> task = jaxfl.classification(jaxfl.freeze(module, weights, "Dense_1"), np.zeros((8, 8)))
      >>> jax.tree.map(jnp.shape, task.problem.init(jax.random.key(1)))["params"]["Dense_1"]
      {'bias': (32,), 'kernel': (32, 32)}
    """
    return Frozen(model, weights, trainable, dtype)


def frozen_functions(frozen: Frozen, whole: Functions, example: PyTree) -> Functions:
    """The functions of a model of which a part is trained.

    Args:
      frozen: which part, and the weights of the rest.
      whole: the functions of the whole model.
      example: the shape of one input [1, *feature].

    Raises:
      InputError: as `freeze` says.

    Example:
      >>> module, x = jaxfl.models.linear(3), jnp.zeros((1, 4))
      >>> whole = Functions(module.init, module.apply, lambda params, x, mask, key: (x, None))
      >>> frozen = freeze(module, module.init(jax.random.key(0), x), "bias")
      >>> functions = frozen_functions(frozen, whole, jax.ShapeDtypeStruct((1, 4), "float32"))
      >>> jax.tree.map(jnp.shape, functions.init(jax.random.key(1), x))
      {'params': {'Dense_0': {'bias': (3,), 'kernel': None}}}
    """
    shapes = jax.eval_shape(whole.init, jax.random.key(0), example)
    arrays = _by_path(frozen.weights)
    paths = list(_by_path(shapes))
    is_trained = {path: re.search(frozen.trainable, path) is not None for path in paths}
    check(
        any(is_trained.values()),
        f"no parameter matches {frozen.trainable!r}: nothing would be trained; the model has "
        f"{', '.join(paths[:4])}{', ...' if len(paths) > 4 else ''}",
    )
    _check_weights(arrays, shapes, is_trained)

    def constant(keys: tuple, leaf: jax.ShapeDtypeStruct) -> Array | None:
        path = tree.path(keys)
        if is_trained[path]:
            return None
        return jnp.asarray(arrays[path], frozen.dtype or leaf.dtype)

    constants = jax.tree_util.tree_map_with_path(constant, shapes)

    def merge(params: Params) -> Params:
        return jax.tree.map(
            lambda one, other: other if one is None else one, params, constants, is_leaf=_is_none
        )

    def part(model: Params) -> Params:
        """The trained part of a whole model."""
        return jax.tree.map(
            lambda other, one: one if other is None else None, constants, model, is_leaf=_is_none
        )

    def init(key: PRNGKey, x: PyTree) -> Params:
        def start(keys: tuple, leaf: Array) -> Array:
            given = arrays.get(tree.path(keys))
            return leaf if given is None else jnp.asarray(given, leaf.dtype)

        return jax.tree_util.tree_map_with_path(start, part(whole.init(key, x)))

    functions = through(whole, init, lambda params: nullcontext(merge(params)))
    return functions._replace(constants=constants)


def _is_none(node: Any) -> bool:
    return node is None


def _by_path(weights: PyTree) -> dict[str, Any]:
    """The leaves by their paths."""
    return {tree.path(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(weights)}


def _check_weights(arrays: dict, shapes: PyTree, is_trained: dict[str, bool]) -> None:
    """Raises an `InputError` unless the arrays are those of the model."""
    by_path = _by_path(shapes)
    missing = [path for path in by_path if not is_trained[path] and path not in arrays]
    check(
        not missing,
        f"the weights lack {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}, which "
        "would be frozen: give them, or train them",
    )
    unknown = [path for path in arrays if path not in by_path]
    check(
        not unknown,
        f"the weights have {', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}, and the "
        f"model has {', '.join(list(by_path)[:3])}, ...: give its parameters alone",
    )
    for path, array in arrays.items():
        check(
            np.shape(array) == by_path[path].shape,
            f"the weight {path} has shape {np.shape(array)}, and the model's has shape "
            f"{by_path[path].shape}: leave it out, and a trained one is drawn anew",
        )
