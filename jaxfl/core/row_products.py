"""Inner products of the rows of two matrices, x y', where the rows are whole models.

Of ten models with a million parameters XLA for CPUs takes four times as long for the whole product
as for pieces of the rows that fit into the cache of a core.
"""

import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array

from jaxfl.core import target
from jaxfl.core.backward import with_backward

__all__ = ["row_products"]

PIECE = 4096  # columns that are multiplied at once, if rows are long and few
FEW = 64  # rows at most
HALVES = 256  # rows from which a part of a symmetric product is left out


def row_products(x: Array, y: Array) -> Array:
    """The inner products of all rows of x with those of y: [M, D], [N, D] -> [M, N].

    Sums are float32, also of bfloat16; float64 of float64. If x and y are one array the result is
    symmetric to the last digit.

    Example:
      >>> row_products(jnp.array([[1.0, 2.0], [0.0, 3.0]]), jnp.array([[1.0, 1.0]])).tolist()
      [[3.0], [3.0]]
    """
    if target.platform() != "cpu":
        return _product(x, y)
    if x is y:
        return _with_itself(x)
    return _with_other(x, y)


def _product(x: Array, y: Array) -> Array:
    number_type = jnp.result_type(x, y, jnp.float32)
    return jnp.matmul(x, y.T, precision=Precision.HIGHEST, preferred_element_type=number_type)


def _in_pieces(x: Array, y: Array) -> Array:
    length = x.shape[1]
    if max(len(x), len(y)) > FEW or length < 8 * PIECE:
        return _product(x, y)
    first = length % PIECE

    def step(turn: Array, total: Array) -> Array:
        start = first + turn * PIECE
        pieces = (lax.dynamic_slice_in_dim(rows, start, PIECE, axis=1) for rows in (x, y))
        return total + _product(*pieces)

    return lax.fori_loop(0, length // PIECE, step, _product(x[:, :first], y[:, :first]))


def _by_halves(x: Array) -> Array:
    """The product x x', where the part below the diagonal is that above it."""
    if len(x) < HALVES:
        return _in_pieces(x, x)
    above, below = x[: len(x) // 2], x[len(x) // 2 :]
    across = _product(above, below)
    return jnp.block([[_by_halves(above), across], [across.T, _by_halves(below)]])


# The gradient of a loop over pieces would write whole models for each piece.
_with_other = with_backward(
    lambda x, y: (_in_pieces(x, y), (x, y)),
    lambda needs, grad: (
        _gradient(grad, needs[1]).astype(needs[0].dtype),
        _gradient(grad.T, needs[0]).astype(needs[1].dtype),
    ),
)
_with_itself = with_backward(
    lambda x: (_by_halves(x), (x,)),
    lambda needs, grad: (_gradient(grad + grad.T, needs[0]).astype(needs[0].dtype),),
)


def _gradient(grad: Array, rows: Array) -> Array:
    return jnp.matmul(grad, rows, precision=Precision.HIGHEST)
