"""A convolution's outputs in tiles, each computed from the one patch that all its outputs read.

Images are [c, h, w, n] here, with the batch innermost. A tile of side t has t x t outputs, and its
patch is (kh + t - 1) x (kw + t - 1). `product` computes the outputs from it, for tiles of 2x2 by
one matrix product with the kernel at its four offsets, or, for 3x3 kernels with many channels, by
Winograd's algorithm (Lavin and Gray, 2016, https://arxiv.org/abs/1509.09308). F(2x2, 3x3) needs 16
multiplications instead of 36. F(4x4, 3x3) needs 36 instead of 144, and its results are rounded
some four times as coarsely as plain sums.

Differs: F(4x4, 3x3) has the points 0, 3/4, -3/4, 3/2, -3/2, where the paper has 0, 1, -1, 2, -2;
errors are half as large.
"""

import functools
import operator
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.core import target

# t is the side of a tile; the last tiles may have outputs that are not wanted.
Patches = Float[Array, "kht kwt ci high wide n"]
Tiles = Float[Array, "t t co high wide n"]
Kernel = Float[Array, "kh kw ci co"]
Image = Float[Array, "c h w n"]
Padding = Sequence[tuple[int, int]]

Matrix = Sequence[Sequence[float | int]]

# Winograd's transforms for tiles of each side: outputs = A [(G kernel G') * (B patch B')] A'.
B = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (81 / 64, 0, -45 / 16, 0, 1, 0),
        (0, -27 / 16, -9 / 4, 3 / 4, 1, 0),
        (0, 27 / 16, -9 / 4, -3 / 4, 1, 0),
        (0, -27 / 32, -9 / 16, 3 / 2, 1, 0),
        (0, 27 / 32, -9 / 16, -3 / 2, 1, 0),
        (0, 81 / 64, 0, -45 / 16, 0, 1),
    ),
}
G = {
    2: ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    4: (
        (64 / 81, 0, 0),
        (-128 / 243, -32 / 81, -8 / 27),
        (-128 / 243, 32 / 81, -8 / 27),
        (32 / 243, 16 / 81, 8 / 27),
        (32 / 243, -16 / 81, 8 / 27),
        (0, 0, 1),
    ),
}
A = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: (
        (1, 1, 1, 1, 1, 0),
        (0, 3 / 4, -3 / 4, 3 / 2, -3 / 2, 0),
        (0, 9 / 16, 9 / 16, 9 / 4, 9 / 4, 0),
        (0, 27 / 64, -27 / 64, 27 / 8, -27 / 8, 1),
    ),
}


def winograd_pays(kernel: Kernel) -> bool:
    """Whether `product` uses Winograd's algorithm: 3x3 and 16 channels or more on both sides."""
    wide = kernel.shape[:2] == (3, 3) and min(kernel.shape[2:]) >= 16
    return wide and jnp.issubdtype(kernel.dtype, jnp.inexact)


def side_of(kernel: Kernel, outputs: tuple[int, int], n: int) -> int:
    """How many outputs a tile has on each side, 4 or 2.

    Tiles of 4x4 pay by Winograd's algorithm, unless the transform of the kernel takes longer than
    they save because a batch has few of them; so the last digits depend on the size of the batch.
    Numbers of 16 bits are too coarse for them.
    """
    high, wide = (_tiles(size, 4) for size in outputs)
    many = 2 * high * wide * n >= min(kernel.shape[2:])
    fine = kernel.dtype.itemsize >= 4 and target.platform() == "cpu"
    return 4 if winograd_pays(kernel) and fit(outputs, 4) and many and fine else 2


def fit(outputs: tuple[int, int], side: int) -> bool:
    """Whether three quarters of the outputs of the tiles along each side are wanted."""
    return all(4 * size >= 3 * side * _tiles(size, side) for size in outputs)


def _tiles(outputs: int, side: int) -> int:
    """How many tiles there are along a side; the last one may have outputs that are not wanted."""
    return -(-outputs // side)


def patches(
    image: Image, kernel: Kernel, padding: Padding, outputs: tuple[int, int], side: int
) -> Patches:
    """The patch of each tile."""
    # Pixel i + t j of an axis is at [i, j], so that a patch is made of whole slices. XLA writes
    # them to memory here, and so it augments, scales and transposes an image once, not for each
    # patch that reads a pixel.
    config = [(0, 0, 0)] * 4
    count = [_tiles(size, side) for size in outputs]
    for axis, (size, taps, (low, _)) in enumerate(
        zip(count, kernel.shape[:2], padding, strict=True), start=1
    ):
        length = side * (size + _tiles(taps - 1, side))
        config[axis] = (low, length - image.shape[axis] - low, 0)
    whole = lax.pad(image, jnp.zeros((), image.dtype), config)
    apart = jnp.stack(
        [jnp.stack([whole[:, i::side, j::side] for j in range(side)]) for i in range(side)]
    )

    def part(i: int, j: int) -> Array:
        top, left = i // side, j // side
        return apart[i % side, j % side, :, top : top + count[0], left : left + count[1]]

    high, wide = (taps + side - 1 for taps in kernel.shape[:2])
    return jnp.stack([jnp.stack([part(i, j) for j in range(wide)]) for i in range(high)])


def image_of(parts: Patches, side: int, size: tuple[int, int], padding: Padding) -> Image:
    """The transpose of `patches`: the sum of all patches in their places, without the padding."""
    columns = _in_place(parts.swapaxes(0, 1), side, 3)  # [kh + t - 1, c, high, w, n]
    rows = _in_place(columns, side, 1)  # [c, h, w, n]
    config = [(0, 0, 0)] * 4
    for axis, (length, (low, _)) in enumerate(zip(size, padding, strict=True), start=1):
        config[axis] = (-low, low + length - rows.shape[axis], 0)
    return lax.pad(rows, jnp.zeros((), rows.dtype), config)


def _in_place(parts: Array, side: int, axis: int) -> Array:
    """The transpose of slices with stride t, where part i starts at place i: their sum in place."""
    beyond = (len(parts) - 1) // side
    sums = []
    for first in range(side):
        total = 0.0
        for shift, part in enumerate(parts[first::side]):
            config = [(0, 0)] * part.ndim
            config[axis] = (shift, beyond - shift)
            total = total + jnp.pad(part, config)
        sums.append(total)
    apart = jnp.stack(sums, axis=axis + 1)
    *before, count, _ = apart.shape[: axis + 2]
    return apart.reshape(*before, side * count, *apart.shape[axis + 2 :])


def to_image(tiles: Tiles, size: tuple[int, int]) -> Image:
    """The outputs of all tiles in their places, as far as they are wanted."""
    side, _, co, high, wide, n = tiles.shape
    whole = tiles.transpose(2, 3, 0, 4, 1, 5).reshape(co, side * high, side * wide, n)
    return whole[:, : size[0], : size[1]]


def to_tiles(image: Image, side: int) -> Tiles:
    """The transpose of `to_image`, with zeros for outputs that are not wanted."""
    co, *size, n = image.shape
    high, wide = (_tiles(length, side) for length in size)
    edges = ((0, side * count - length) for count, length in zip((high, wide), size, strict=True))
    whole = jnp.pad(image, ((0, 0), *edges, (0, 0)))
    return whole.reshape(co, high, side, wide, side, n).transpose(2, 4, 0, 1, 3, 5)


def product(read: Patches, kernel: Kernel, precision=None) -> Tiles:
    """The outputs of each tile."""
    *_, high, wide, n = read.shape
    co = kernel.shape[3]
    if winograd_pays(kernel):
        side = len(read) - len(kernel) + 1
        factors = jnp.matmul(
            _of_kernel(kernel, side).mT, _of_patches(read, side), precision=precision
        )  # [(t + 2)^2, co, M]
        return _both(A[side], factors.reshape(*read.shape[:2], co, high, wide, n))
    flat = jnp.matmul(_offsets(kernel).T, read.reshape(-1, high * wide * n), precision=precision)
    return flat.reshape(2, 2, co, high, wide, n)


def product_backward(
    read: Patches, kernel: Kernel, gradient: Tiles, precision=None
) -> tuple[Patches, Kernel]:
    """Gradients of `product` with respect to patches and kernel."""
    kh, kw, ci, co = kernel.shape
    if winograd_pays(kernel):
        side = len(gradient)
        factors = _both(_transposed(A[side]), gradient).reshape((side + 2) ** 2, co, -1)
        by_patches = jnp.matmul(_of_kernel(kernel, side), factors, precision=precision)
        by_factors = jnp.matmul(_of_patches(read, side), factors.mT, precision=precision)
        return (
            _both(_transposed(B[side]), by_patches.reshape(read.shape)),
            _both(_transposed(G[side]), by_factors.reshape(*read.shape[:2], ci, co)),
        )
    flat = gradient.reshape(4 * co, -1)
    # Patches first: the product in the other order takes up to twice as long on CPU.
    by_offsets = jnp.matmul(read.reshape(-1, flat.shape[1]), flat.T, precision=precision)
    by_offsets = by_offsets.reshape(kh + 1, kw + 1, ci, 4, co)
    by_kernel = sum(
        (by_offsets[a : a + kh, b : b + kw, :, 2 * a + b] for a in (0, 1) for b in (0, 1)),
        start=jnp.zeros((), by_offsets.dtype),
    )
    by_patches = jnp.matmul(_offsets(kernel), flat, precision=precision)
    return by_patches.reshape(read.shape), by_kernel


def _offsets(kernel: Kernel) -> Float[Array, "k fourco"]:
    """The kernel at its four places in a tile's patch: [(kh + 1) (kw + 1) ci, 4 co]."""
    four = [
        jnp.pad(kernel, ((a, 1 - a), (b, 1 - b), (0, 0), (0, 0))) for a in (0, 1) for b in (0, 1)
    ]
    return jnp.stack(four, axis=3).reshape(-1, 4 * kernel.shape[3])


def _of_patches(read: Patches, side: int) -> Float[Array, "factors ci m"]:
    return _both(B[side], read).reshape((side + 2) ** 2, read.shape[2], -1)


def _of_kernel(kernel: Kernel, side: int) -> Float[Array, "factors ci co"]:
    return _both(G[side], kernel).reshape((side + 2) ** 2, *kernel.shape[2:])


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _both(matrix: Matrix, x: Array) -> Array:
    """The small matrix applied to each of the first two axes, which change places.

    To put them back would be a copy of everything; the factors of a product are in the same order,
    and the transform of the product puts them back.
    """
    return _first(matrix, _first(matrix, x).swapaxes(0, 1))


def _first(matrix: Matrix, x: Array) -> Array:
    """The small matrix applied to the first axis, as sums of whole slices."""
    terms = (
        [weight * part for weight, part in zip(row, x, strict=True) if weight] for row in matrix
    )
    return jnp.stack([functools.reduce(operator.add, each) for each in terms])
