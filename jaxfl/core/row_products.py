"""Inner products of the rows of two matrices, x y', where the rows are whole models.

XLA for CPUs takes up to four times as long for the whole product as for pieces of the rows that fit
into the cache of a core, and half of a product with itself is the mirror image of the other.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Float, PyTree

from jaxfl.core import target
from jaxfl.core.backward import with_backward
from jaxfl.core.over_clients import devices_in_use, on_every_device

__all__ = ["row_products", "self_products"]

PIECE = 2048  # columns that are multiplied at once
BLOCK = 256  # rows of a product with itself that are multiplied with all rows from there on


def row_products(x: Array, y: Array) -> Array:
    """The inner products of all rows of x with those of y: [M, D], [N, D] -> [M, N].

    Sums are float32, also of bfloat16; float64 of float64.

    Example:
      >>> row_products(jnp.array([[1.0, 2.0], [0.0, 3.0]]), jnp.array([[1.0, 1.0]])).tolist()
      [[3.0], [3.0]]
    """
    return _with_other(x, y) if target.platform() == "cpu" else _product(x, y)


def self_products(x: Array, unit: Float[Array, "m"] | None = None) -> Array:
    """The inner products of all pairs of rows, symmetric to the last digit: [M, D] -> [M, M].

    Args:
      x: [M, D].
      unit: of each row, which is divided by it [M]; None: 1. It has no gradient.

    Example:
      >>> self_products(jnp.array([[1.0, 2.0], [0.0, 3e30]]), jnp.array([1.0, 1e30])).tolist()
      [[5.0, 6.0], [6.0, 9.0]]
    """
    unit = jnp.ones(len(x), x.dtype) if unit is None else lax.stop_gradient(unit)
    if target.platform() == "cpu":
        return _with_itself(x, unit)
    rows = x / unit[:, None]
    return _product(rows, rows)


def _product(x: Array, y: Array) -> Array:
    number_type = jnp.result_type(x, y, jnp.float32)
    return jnp.matmul(x, y.T, precision=Precision.HIGHEST, preferred_element_type=number_type)


def _first_piece(x: Array) -> int:
    """How many columns are multiplied before the loop over pieces: all, if x is small."""
    return x.shape[1] % PIECE if x.shape[1] >= 8 * PIECE or len(x) > BLOCK else x.shape[1]


def _over_pieces(length: int, first: int, step: Callable, result: PyTree) -> PyTree:
    pieces = (length - first) // PIECE
    return lax.fori_loop(0, pieces, step, result) if pieces else result


def _in_pieces(x: Array, y: Array, units: tuple[Array, Array] | None = None) -> Array:
    first = min(_first_piece(x), _first_piece(y))

    def product(*pieces: Array) -> Array:
        if units is not None:
            pieces = tuple(p / unit[:, None] for p, unit in zip(pieces, units, strict=True))
        return _product(*pieces)

    def step(turn: Array, total: Array) -> Array:
        start = first + turn * PIECE
        pieces = (lax.dynamic_slice_in_dim(rows, start, PIECE, axis=1) for rows in (x, y))
        return total + product(*pieces)

    return _over_pieces(x.shape[1], first, step, product(x[:, :first], y[:, :first]))


def _symmetric(x: Array, unit: Array) -> Array:
    if devices_in_use() > 1:
        # Each device has the rows of its clients; a gather for each piece would take longer.
        products = on_every_device(_own_rows, (x, unit))(x, unit)
    else:
        products = _upper_blocks(x, unit)
    return jnp.where(jnp.tri(len(x), k=-1, dtype=bool), products.T, products)


def _own_rows(every: tuple[Array, Array], x: Array, unit: Array) -> Array:
    rows, units = every
    return _in_pieces(x, rows, (unit, units))


def _upper_blocks(x: Array, unit: Array) -> Array:
    """The products of all pairs of rows on and above the diagonal, and some below it."""
    starts = range(0, max(len(x), 1), BLOCK)
    first = _first_piece(x)

    def products(piece: Array) -> list[Array]:
        rows = piece / unit[:, None]
        return [_product(rows[start : start + BLOCK], rows[start:]) for start in starts]

    def step(turn: Array, totals: list[Array]) -> list[Array]:
        piece = lax.dynamic_slice_in_dim(x, first + turn * PIECE, PIECE, axis=1)
        return [total + more for total, more in zip(totals, products(piece), strict=True)]

    blocks = _over_pieces(x.shape[1], first, step, products(x[:, :first]))
    return jnp.concatenate([jnp.pad(b, ((0, 0), (len(x) - b.shape[1], 0))) for b in blocks])


# The gradient of a loop over pieces would write whole models for each piece.
_with_other = with_backward(
    lambda x, y: (_in_pieces(x, y), (x, y)),
    lambda needs, grad: (
        _gradient(grad, needs[1]).astype(needs[0].dtype),
        _gradient(grad.T, needs[0]).astype(needs[1].dtype),
    ),
)
_with_itself = with_backward(
    lambda x, unit: (_symmetric(x, unit), (x, unit)),
    lambda needs, grad: (_self_gradient(grad + grad.T, *needs), jnp.zeros_like(needs[1])),
)


def _gradient(grad: Array, rows: Array) -> Array:
    return jnp.matmul(grad, rows, precision=Precision.HIGHEST)


def _self_gradient(grad: Array, x: Array, unit: Array) -> Array:
    scaled = x / unit[:, None]
    return (_gradient(grad, scaled) / unit[:, None]).astype(x.dtype)
