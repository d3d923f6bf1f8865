"""Narrower models as parts of a wide one: the first units of each hidden layer."""

import math

import jax
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.text import by_number
from jaxfl.core.types import Params


def part_of(wide: PyTree, narrow: PyTree) -> PyTree:
    """Where the values of a narrower model are among those of a wide one.

    It has the first units of each layer; of a dense layer whose input is a flattened image, the
    first channels of each pixel. Layers follow each other in the order of their names, Conv_2
    before Conv_10: the convolutions, then the dense layers.

    Args:
      wide: the shapes of a model, whose kernels are [in, out] or [..., in, out].
      narrow: the shapes of a model with the same layers, of which some have fewer units.

    Returns:
      For each array of the narrow model the numbers of its values in the wide one, flattened.

    Raises:
      InputError: it has other layers or more units, or it cannot be told from the names and shapes
        which inputs of a layer it has.

    Example:
      >>> wide, narrow = jnp.zeros((2, 3)), jnp.zeros((2, 2))
      >>> part_of(wide, narrow).tolist()
      [[0, 1], [3, 4]]
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(wide)
    names = [tree.path(keys) for keys, _ in leaves]
    shapes = [
        (whole.shape, part.shape)
        for (_, whole), part in zip(leaves, jax.tree.leaves(narrow), strict=False)
    ]
    within = jax.tree.structure(narrow) == structure and all(
        len(whole) == len(part) and np.less_equal(part, whole).all() for whole, part in shapes
    )
    check(within, "one has other layers, or more units in some and fewer in others")
    order = sorted(range(len(names)), key=lambda i: by_number(names[i]))
    kernels = [number for number in order if len(shapes[number][0]) > 1]
    # the units of each layer in both models
    units = {(whole[-1], part[-1]) for whole, part in map(shapes.__getitem__, kernels)}
    axes: list[list] = [[np.arange(size) for size in part] for _, part in shapes]
    for number, (whole, part) in enumerate(shapes):
        if len(whole) == 2 and whole[0] != part[0]:
            inputs = _inputs(whole[0], part[0], number, kernels, shapes)
            known = inputs is not None
            axes[number][0] = inputs
        else:
            # All axes but the last two of a kernel are places in an image or a series.
            known = whole[:-2] == part[:-2] and all(
                n == m or (n, m) in units for n, m in zip(whole[-2:], part[-2:], strict=True)
            )
        check(
            known,
            f"{names[number]} has shapes {list(whole)} and {list(part)}, and by the names of the "
            "layers it cannot be told which inputs these are",
        )
    entries = [np.arange(math.prod(whole)).reshape(whole) for whole, _ in shapes]
    parts = [np.asarray(x[np.ix_(*places)]) for x, places in zip(entries, axes, strict=True)]
    return jax.tree.unflatten(structure, parts)


def _inputs(
    whole: int, part: int, number: int, kernels: list[int], shapes: list
) -> np.ndarray | None:
    """Which inputs of a dense layer its narrower form has, by the layer before it; None: unknown.

    Args:
      whole: inputs of the wide layer.
      part: inputs of the narrower one.
      number: of the layer.
      kernels: the numbers of all layers, in order.
      shapes: of each in both models.
    """
    place = kernels.index(number)
    if place == 0 or any(len(shapes[later][0]) > 2 for later in kernels[place:]):
        return None
    before, narrower = shapes[kernels[place - 1]]
    pixels = whole // before[-1]
    if (whole, part) != (pixels * before[-1], pixels * narrower[-1]):
        return None
    # Only a convolution gives an image of several pixels.
    if pixels > 1 and len(before) == 2:
        return None
    return np.arange(whole).reshape(pixels, -1)[:, : narrower[-1]].ravel()


def gather_part(wide: Params, part: PyTree) -> Params:
    """The values of a part of a model.

    Example:
      >>> gather_part(jnp.array([5.0, 6.0, 7.0]), np.array([0, 1])).tolist()
      [5.0, 6.0]
    """
    return jax.tree.map(lambda values, places: values.ravel()[places], wide, part)


def scatter_part(narrow: Params, part: PyTree, wide: Params) -> Params:
    """A wide model with the values of a narrower one in their places.

    Args:
      narrow: its values.
      part: where they are.
      wide: the values of all others.

    Example:
      >>> scatter_part(jnp.array([5.0, 6.0]), np.array([0, 2]), jnp.zeros(3)).tolist()
      [5.0, 0.0, 6.0]
    """

    def one(values: Array, places: np.ndarray, others: Array) -> Array:
        return others.ravel().at[places].set(values).reshape(others.shape)

    return jax.tree.map(one, narrow, part, wide)
