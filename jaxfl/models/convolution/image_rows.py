"""Convolutions row by row: each row of outputs is a product that reads the image where it lies.

Patches hold each number of an image as often as the kernel reads it, nine times for 3x3, and in the
gradient once more: many MB, which leave the caches. Here the rows of the image below a kernel are
one factor, without a copy for each place: with images [c, h, w, n], the kernel's columns one below
the other, [kw co, ci kh], times these rows, [ci kh, w n], is what each column of the kernel adds,
and the sum of the columns, each moved by its place, is a row of outputs. All of it stays in the
cache. The gradient by the image is such a convolution too.

Images are [c, h, w, n] here, with the batch innermost and with their padding.
"""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

# Fewer channels make thin products, for which patches are faster.
CHANNELS = 16

Image = Float[Array, "ci h w n"]
Outputs = Float[Array, "co ho wo n"]
Kernel = Float[Array, "kh kw ci co"]
Padding = Sequence[tuple[int, int]]


def rows_pay(kernel: Kernel) -> bool:
    """Whether rows are faster than patches: kernels of 2x2 or more, 16 channels on both sides."""
    return min(kernel.shape[:2]) > 1 and min(kernel.shape[2:]) >= CHANNELS


def convolution(image: Image, kernel: Kernel, precision=None) -> Outputs:
    """A convolution with stride 1."""
    kh, kw, ci, co = kernel.shape
    _, high, wide, n = image.shape
    columns = kernel.transpose(1, 3, 2, 0).reshape(kw * co, ci * kh)

    def add_row(number: Array, outputs: Array) -> Array:
        below = lax.dynamic_slice_in_dim(image, number, kh, axis=1).reshape(ci * kh, wide * n)
        by_column = jnp.matmul(columns, below, precision=precision).reshape(kw, co, wide, n)
        places = (by_column[j, :, j : j + outputs.shape[2]] for j in range(kw))
        row = functools.reduce(jnp.add, places)
        return lax.dynamic_update_slice_in_dim(outputs, row[:, None], number, axis=1)

    zero = jnp.zeros((co, high - kh + 1, wide - kw + 1, n), image.dtype)
    return lax.fori_loop(0, zero.shape[1], add_row, zero)


def gradient_by_image(
    gradient: Outputs, kernel: Kernel, padding: Padding, precision=None
) -> Float[Array, "ci h w n"]:
    """Of `convolution`, without the padding: the gradient's convolution with the kernel turned."""
    edges = (
        (size - 1 - low, size - 1 - high, 0)
        for size, (low, high) in zip(kernel.shape[:2], padding, strict=True)
    )
    # Padding that is wider than the kernel reaches makes an edge negative: rows that are left out.
    padded = lax.pad(gradient, jnp.zeros((), gradient.dtype), ((0, 0, 0), *edges, (0, 0, 0)))
    return convolution(padded, kernel[::-1, ::-1].swapaxes(2, 3), precision)


def gradient_by_kernel(image: Image, kernel: Kernel, gradient: Outputs, precision=None) -> Kernel:
    """Of `convolution`: the sum over rows, in float32 at the least."""
    kh, kw, ci, co = kernel.shape
    _, high, wide, _ = gradient.shape
    dtype = jnp.promote_types(kernel.dtype, jnp.float32)

    def add_row(number: Array, sums: list[Array]) -> list[Array]:
        below = lax.dynamic_slice_in_dim(image, number, kh, axis=1)
        row = lax.dynamic_index_in_dim(gradient, number, axis=1, keepdims=False).reshape(co, -1)
        columns = (below[:, :, j : j + wide].reshape(ci * kh, -1) for j in range(kw))
        return [
            total + jnp.matmul(column, row.T, precision=precision, preferred_element_type=dtype)
            for total, column in zip(sums, columns, strict=True)
        ]

    sums = lax.fori_loop(0, high, add_row, [jnp.zeros((ci * kh, co), dtype)] * kw)
    whole = jnp.stack(sums, axis=1).reshape(ci, kh, kw, co)
    return whole.transpose(1, 2, 0, 3).astype(kernel.dtype)
