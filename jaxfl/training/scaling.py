"""From an example as the data hold it to the input of the model: scaled, in the model's type."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError, check

# Of all numbers, or of each channel; of a pytree of arrays one such for each array.
Scale = float | Sequence[Any] | Mapping[str, Any]


def model_inputs(
    example: PyTree, scale: Scale | None, shift: Scale, compute: str = "float32"
) -> Callable[[PyTree], PyTree]:
    """The function from examples to the inputs of the model, (x - shift) / scale.

    Args:
      example: one input [*feature], an array or a pytree of arrays.
      scale: one number, or one for each channel; None: the input is x as it is. For a pytree one
        number for all arrays but booleans, or a pytree with the scale of each.
      shift: likewise.
      compute: type of the inputs that are scaled.

    Returns:
      x [B, *feature] -> inputs [B, *feature]. It raises an `InputError` if x is of other arrays
      than the example, or of another number of axes.

    Raises:
      InputError: a pytree of scales is not that of the example.

    Example:
      >>> example = {"image": np.zeros((8, 8), np.uint8), "mask": np.zeros(3, bool)}
      >>> inputs = model_inputs(example, {"image": 255.0, "mask": None}, 0.0)
      >>> x = {"image": jnp.full((2, 8, 8), 255, jnp.uint8), "mask": jnp.ones((2, 3), bool)}
      >>> inputs(x)["image"][0, 0, 0].item(), inputs(x)["mask"].dtype.name
      (1.0, 'bool')
    """
    scales = _by_leaf("scale", scale, example)
    shifts = _by_leaf("shift", shift, example)

    def inputs(x: PyTree) -> PyTree:
        check_like(example, x)
        leaves, structure = jax.tree.flatten(x)
        each = zip(leaves, scales, shifts, strict=True)
        scaled = [_scaled(leaf, factor, start, compute) for leaf, factor, start in each]
        return jax.tree.unflatten(structure, scaled)

    return inputs


def check_like(example: PyTree, x: PyTree) -> None:
    """Raises an `InputError` if a batch is of other arrays than the example of a task.

    Args:
      example: one input [*feature].
      x: a batch of them [B, *feature].

    Example:
      >>> check_like(np.zeros((1, 8)), jnp.zeros((5, 8)))
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: the task was made of an example of shape (1, 8), and the ...
    """
    check(
        jax.tree.structure(example) == jax.tree.structure(x),
        f"the task was made of an example of {arrays_of(example)}, and the clients' are of "
        f"{arrays_of(x)}: expected the same arrays, by the same names",
    )
    for (keys, one), leaf in zip(
        jax.tree_util.tree_leaves_with_path(example), jax.tree.leaves(x), strict=True
    ):
        name = tree.path(keys)
        of = f" in {name}" if name else ""
        check(
            leaf.ndim == np.ndim(one) + 1,
            f"the task was made of an example of shape {np.shape(one)}{of}, and the clients' have "
            f"shape {leaf.shape[1:]}: expected one example without an axis of the batch, such as "
            + ("jax.tree.map(lambda x: x[0], x_train)" if name else "x_train[0]"),
        )


def arrays_of(x: PyTree) -> str:
    """The arrays of a pytree in words.

    Example:
      >>> arrays_of({"image": 0, "mask": 0}), arrays_of(np.zeros(3))
      ('the arrays image, mask', 'one array')
    """
    names = [tree.path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(x)]
    return "one array" if names == [""] else f"the arrays {', '.join(names)}"


def _by_leaf(option: str, value: Scale | None, example: PyTree) -> list[Any]:
    """The value for each array of the example."""
    structure = jax.tree.structure(example)
    if jax.tree_util.treedef_is_leaf(structure):
        return [value]
    if value is None or isinstance(value, int | float | np.number):
        booleans = [np.result_type(x) == np.bool_ for x in jax.tree.leaves(example)]
        return [None if boolean else value for boolean in booleans]
    try:
        return structure.flatten_up_to(value)
    except ValueError as error:
        raise InputError(
            f"{option} is {value!r:.80}, and an example has {arrays_of(example)}: expected a "
            "number, or one for each of these arrays by the same names"
        ) from error


def _scaled(x: Array, scale: Any, shift: Any, compute: str) -> Array:
    if scale is None:
        return x

    def along_channels(values: float | Sequence[float]) -> Array:
        return jnp.asarray(values, jnp.float32).reshape(*[1] * (x.ndim - 1), -1)

    scaled = (x.astype(jnp.float32) - along_channels(shift)) / along_channels(scale)
    return scaled.astype(compute)
