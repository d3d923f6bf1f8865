"""Narrower models as parts of a wide one: the first units of each hidden layer."""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.types import Params


def part_of(wide: PyTree, narrow: PyTree) -> PyTree:
    """Where the values of a narrower model are among those of a wide one.

    It has the first units of each layer. A dense layer after a convolution whose image is flattened
    has the first channels of each pixel.

    Args:
      wide: the shapes of a model.
      narrow: the shapes of a model with the same layers, of which some have fewer units. Layers are
        in the order of their names.

    Returns:
      For each array of the narrow model the numbers of its values in the wide one, flattened.

    Raises:
      InputError: it has other layers, more units, or a layer whose inputs are not those of the
        layer before.

    Example:
      >>> wide, narrow = jnp.zeros((2, 3)), jnp.zeros((2, 2))
      >>> part_of(wide, narrow).tolist()
      [[0, 1], [3, 4]]
    """
    layers, structure = jax.tree_util.tree_flatten_with_path(wide)
    others = jax.tree.leaves(narrow)
    expected = "heterofl takes architectures that are widths of one model, such as mlp and mlp/2"
    within = jax.tree.structure(narrow) == structure and all(
        whole.ndim == part.ndim and np.less_equal(part.shape, whole.shape).all()
        for (_, whole), part in zip(layers, others, strict=True)
    )
    check(within, expected)
    names = [tree.path(keys) for keys, _ in layers]
    places: dict[int, np.ndarray] = {}
    # of the layer before, in the wide model and in the narrow one
    outputs = (1, 1)
    for number in sorted(range(len(names)), key=lambda i: _natural(names[i])):
        whole, part = layers[number][1].shape, others[number].shape
        axes = [np.arange(size) for size in part]
        if len(whole) == 2 and whole[0] != part[0]:
            pixels = whole[0] // outputs[0]
            check(
                (whole[0], part[0]) == (pixels * outputs[0], pixels * outputs[1]),
                f"{expected}; {names[number]} has {whole[0]} and {part[0]} inputs in two of them, "
                "which are not the outputs of the layer before it",
            )
            axes[0] = np.arange(whole[0]).reshape(pixels, -1)[:, : outputs[1]].ravel()
        if len(whole) > 1:
            outputs = whole[-1], part[-1]
        entries = np.arange(math.prod(whole)).reshape(whole)
        places[number] = np.asarray(entries[np.ix_(*axes)])
    return jax.tree.unflatten(structure, [places[number] for number in range(len(names))])


def gather_part(wide: Params, part: PyTree) -> Params:
    """The values of a part of a model.

    Example:
      >>> gather_part(jnp.array([5.0, 6.0, 7.0]), np.array([0, 1])).tolist()
      [5.0, 6.0]
    """
    return jax.tree.map(lambda values, places: values.ravel()[places], wide, part)


def scatter_part(narrow: Params, part: PyTree, wide: PyTree) -> Params:
    """A narrower model as a wide one with zeros elsewhere.

    Args:
      narrow: its values.
      part: where they are.
      wide: the shapes of the wide model.

    Example:
      >>> scatter_part(jnp.array([5.0, 6.0]), np.array([0, 2]), jnp.zeros(3)).tolist()
      [5.0, 0.0, 6.0]
    """

    def one(values: Array, places: np.ndarray, like: jax.ShapeDtypeStruct | Array) -> Array:
        return jnp.zeros(like.size, values.dtype).at[places].set(values).reshape(like.shape)

    return jax.tree.map(one, narrow, part, wide)


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """A key that sorts Conv_2 before Conv_10."""
    parts = re.split(r"(\d+)", name)
    return [(one.isdigit(), int(one) if one.isdigit() else 0, one) for one in parts]
