"""The examples of each client as rows of arrays that all clients share."""

import functools
from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from jaxfl.core.ragged import ragged
from jaxfl.core.types import Dataset


def by_rows(
    x: PyTree,
    y: Array,
    parts: Sequence[np.ndarray],
    mask: Sequence[np.ndarray] | None = None,
    *,
    weights: Sequence[np.ndarray] | None = None,
) -> Dataset:
    """The rows of (x, y) that each client holds [C, n, ...].

    Args:
      x: examples [N, *feature], an array or a pytree of arrays.
      y: their targets [N, *target].
      parts: rows of each client.
      mask: of these rows, for data that are only evaluated. None: all of them count as 1.
      weights: of these rows in losses and scores. None: there are none.

    Example:
      >>> data = by_rows(jnp.zeros((3, 8)), jnp.arange(3), [np.array([2]), np.array([0, 1])])
      >>> data.x.shape, data.mask.tolist()
      ((2, 2, 8), [[True, False], [True, True]])
    """
    targets = ragged(y, parts)

    def padded(rows: Sequence[np.ndarray]) -> Array:
        values = np.zeros(targets.shape[:2], np.float32)
        for place, row in zip(values, rows, strict=True):
            place[: len(row)] = row
        return jax.device_put(values)

    # Made on the device, so that the host holds no copy of what may be a large array.
    real = _mask(targets.size, targets.length) if mask is None else padded(mask)
    own = None if weights is None else padded(weights)
    examples = jax.tree.map(lambda leaf: replace(targets, values=jnp.asarray(leaf)), x)
    return Dataset(examples, targets, real, own)


@functools.partial(jax.jit, static_argnums=1)
def _mask(sizes: Int[Array, "c"], length: int) -> Bool[Array, "c n"]:
    """Which of `length` rows hold an example of each client."""
    return jnp.arange(length)[None] < sizes[:, None]
