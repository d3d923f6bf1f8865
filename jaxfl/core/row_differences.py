"""Sums over the differences of all pairs of rows, where the rows are whole models.

Rows that are longer than the cache are read from memory once for each other row; pieces of all rows
stay in it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.core.over_clients import on_every_device

__all__ = ["row_differences"]

PIECE = 1024  # columns whose differences are taken at once
ROWS = 32  # that are compared with all others at once


def row_differences(
    function: Callable[..., Array],
    x: Float[Array, "m d"],
    *of_pairs: Float[Array, "m m"],
    combine: Callable[[Array, Array], Array] = jnp.add,
) -> Float[Array, "m m"]:
    """A function of the difference of each pair of rows: [M, D] -> [M, M].

    Args:
      function: a difference [m, d], and the numbers of its pairs [m] -> [m].
      x: [M, D].
      of_pairs: numbers of each pair [M, M].
      combine: the values of two pieces of the columns -> that of both.

    Example:
      >>> x = jnp.array([[0.0, 1.0], [2.0, 4.0]])
      >>> row_differences(lambda difference: jnp.abs(difference).sum(axis=1), x).tolist()
      [[0.0, 5.0], [5.0, 0.0]]
    """

    def own_rows(every: tuple[Array], x: Array, *of_pairs: Array) -> Array:
        (rows,) = every

        def values(start: int | Array, size: int) -> Array:
            own, others = (
                lax.dynamic_slice_in_dim(part, start, size, axis=1) for part in (x, rows)
            )
            # The gradient takes the differences again, and not from [M, M, D].
            differ = jax.checkpoint(lambda row, *numbers: function(others - row[None], *numbers))
            return lax.map(lambda one: differ(*one), (own, *of_pairs), batch_size=ROWS)

        first = x.shape[1] % PIECE or min(x.shape[1], PIECE)
        pieces = (x.shape[1] - first) // PIECE

        def step(turn: Array, total: Array) -> Array:
            return combine(total, values(first + turn * PIECE, PIECE))

        start = values(0, first)
        return lax.fori_loop(0, pieces, step, start) if pieces else start

    return on_every_device(own_rows, (x,))(x, *of_pairs)
