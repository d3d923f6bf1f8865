"""A convolution's outputs in tiles of 2x2, computed from the one patch that the four of them read.

Images are [c, h, w, n] here, with the batch innermost. A tile's patch is (kh + 1) x (kw + 1).
`product` computes the four outputs from it: by one matrix product with the kernel at its four
offsets, or, for 3x3 kernels with many channels, by Winograd's F(2x2, 3x3), which needs 16
multiplications instead of 36 (Lavin and Gray, 2016, https://arxiv.org/abs/1509.09308).
"""

import functools
import operator
from collections.abc import Sequence

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Patches = Float[Array, "kh1 kw1 ci h2 w2 n"]
Tiles = Float[Array, "4 co h2 w2 n"]  # row by row
Kernel = Float[Array, "kh kw ci co"]
Padding = Sequence[tuple[int, int]]

Matrix = Sequence[Sequence[float | int]]

# Winograd's transforms: outputs = A [(G kernel G') * (B patch B')] A'.
B = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
G = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
A = ((1, 1, 1, 0), (0, 1, -1, -1))


def winograd_pays(kernel: Kernel) -> bool:
    """Whether `product` uses Winograd's algorithm: 3x3 and 16 channels or more on both sides."""
    return kernel.shape[:2] == (3, 3) and min(kernel.shape[2:]) >= 16


def patches(image: Float[Array, "ci h w n"], kernel: Kernel, padding: Padding) -> Patches:
    """The patch of each complete tile."""
    inside = jnp.pad(image, ((0, 0), *padding, (0, 0)))
    kh, kw = kernel.shape[:2]
    high, wide = (inside.shape[1] - kh + 1) // 2, (inside.shape[2] - kw + 1) // 2
    # Even and odd rows and columns apart, [2, 2, c, h / 2, w / 2, n], so that a patch is made of
    # whole slices. XLA writes them to memory here, and so it augments, scales and transposes an
    # image once, not for each patch that reads a pixel.
    even = jnp.pad(inside, ((0, 0), *((0, size % 2) for size in inside.shape[1:3]), (0, 0)))
    corners = jnp.stack([jnp.stack([even[:, i::2, j::2] for j in (0, 1)]) for i in (0, 1)])

    def part(i: int, j: int) -> Array:
        top, left = i // 2, j // 2
        return corners[i % 2, j % 2, :, top : top + high, left : left + wide]

    return jnp.stack([jnp.stack([part(i, j) for j in range(kw + 1)]) for i in range(kh + 1)])


def image_of(parts: Patches, size: tuple[int, int], padding: Padding) -> Float[Array, "ci h w n"]:
    """The transpose of `patches`: the sum of all patches in their places, without the padding."""
    (top, low), (left, right) = padding
    columns = interleave(parts.swapaxes(0, 1), 3, size[1] + left + right)  # [kh + 1, c, h2, w, n]
    rows = interleave(columns, 1, size[0] + top + low)  # [c, h, w, n]
    return rows[:, top : top + size[0], left : left + size[1]]


def interleave(parts: Array, axis: int, size: int) -> Array:
    """The transpose of slices with stride 2, where part i starts at place i: their sum in place."""
    half = -(-size // 2)
    sums = []
    for parity in (0, 1):
        total = 0.0
        for shift, part in enumerate(parts[parity::2]):
            config = [(0, 0)] * part.ndim
            config[axis] = (shift, half - shift - part.shape[axis])
            total = total + jnp.pad(part, config)
        sums.append(total)
    both = jnp.stack(sums, axis=axis + 1)
    whole = both.reshape(*both.shape[:axis], 2 * half, *both.shape[axis + 2 :])
    return lax.slice_in_dim(whole, 0, size, axis=axis)


def product(read: Patches, kernel: Kernel, precision=None) -> Tiles:
    """The four outputs of each tile."""
    *_, high, wide, n = read.shape
    co = kernel.shape[3]
    if winograd_pays(kernel):
        factors = jnp.matmul(
            _of_kernel(kernel).mT, _of_patches(read), precision=precision
        )  # [16, co, M]
        rows = _entries(A, factors.reshape(4, 4, co, high, wide, n))
        return jnp.stack([tile for row in rows for tile in row])
    flat = jnp.matmul(_offsets(kernel).T, read.reshape(-1, high * wide * n), precision=precision)
    return flat.reshape(4, co, high, wide, n)


def product_backward(
    read: Patches, kernel: Kernel, gradient: Tiles, precision=None
) -> tuple[Patches, Kernel]:
    """Gradients of `product` with respect to patches and kernel."""
    kh, kw, ci, co = kernel.shape
    if winograd_pays(kernel):
        factors = _both(_transposed(A), gradient.reshape(2, 2, *gradient.shape[1:])).reshape(
            16, co, -1
        )
        by_patches = jnp.matmul(_of_kernel(kernel), factors, precision=precision).reshape(
            read.shape
        )
        by_factors = jnp.matmul(_of_patches(read), factors.mT, precision=precision).reshape(
            4, 4, ci, co
        )
        return _both(_transposed(B), by_patches), _both(_transposed(G), by_factors)
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


def _of_patches(read: Patches) -> Float[Array, "16 ci m"]:
    return _both(B, read).reshape(16, read.shape[2], -1)


def _of_kernel(kernel: Kernel) -> Float[Array, "16 ci co"]:
    return _both(G, kernel).reshape(16, *kernel.shape[2:])


def _transposed(matrix: Matrix) -> Matrix:
    return tuple(zip(*matrix, strict=True))


def _both(matrix: Matrix, x: Array) -> Array:
    """The small matrix applied to each of the first two axes, which change places.

    To put them back would be a copy of everything; the factors of a product are in the same order,
    and the transform of the product puts them back.
    """
    return jnp.stack([jnp.stack(row) for row in _entries(matrix, x)])


def _entries(matrix: Matrix, x: Array) -> list[list[Array]]:
    """The same, each as one sum of whole slices: what two steps would write is not written."""

    def entry(row: Sequence[float | int], column: Sequence[float | int]) -> Array:
        weights = {(i, j): v * w for i, v in enumerate(row) for j, w in enumerate(column)}
        terms = [weight * x[place] for place, weight in weights.items() if weight]
        return functools.reduce(operator.add, terms)

    return [[entry(row, column) for row in matrix] for column in matrix]
