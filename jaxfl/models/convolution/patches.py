"""Convolutions as batched matrix products, for GPUs.

Under `vmap` a kernel for each client makes a grouped convolution, which is slow on a GPU
(https://github.com/jax-ml/jax/issues/13800); a matrix product for each client is not. The outputs
are computed in tiles. All outputs of a tile read the same patch of the image, and one product with
the kernel, spread to its place for each output of the tile, gives them all: the larger the tile,
the less a patch overlaps its neighbours, and the more of the spread kernel is zero. `plan` chooses
the tile for which bytes and multiplications together cost least.

Images are NHWC and kernels HWIO. A patch is a row of the matrix [n tiles, patch], contiguous.
Patches are gathered, and their gradient is summed by gathers: each is one kernel of a GPU, which
reads and writes once. They are kept for the gradient, in place of the image.
"""

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int8, Shaped

from jaxfl.core.backward import Needs, with_backward
from jaxfl.models.convolution.tile_plan import Padding, Plan, Side, plan


def read(x: Float[Array, "n h w ci"], tiles: Plan) -> Float[Array, "rows patch"]:
    """The patch of each tile, in a row of its own."""
    high, wide = tiles
    config = [(0, 0, 0)] * 4
    for axis, side in ((1, high), (2, wide)):
        config[axis] = (side.low, side.length - side.size - side.low, 0)
    whole = lax.pad(x, jnp.zeros((), x.dtype), config)
    rows = _places(high)[:, None, :, None]  # [a, 1, ph, 1]
    columns = _places(wide)[None, :, None, :]  # [1, b, 1, pw]
    return whole[:, rows, columns].reshape(x.shape[0] * high.tiles * wide.tiles, -1)


def _places(side: Side) -> np.ndarray:
    """The pixels that each tile reads [tiles, reach], along one side of the padded image."""
    return side.block * np.arange(side.tiles)[:, None] + np.arange(side.reach)[None]


def image_of(
    patches: Float[Array, "rows patch"], like: Array, tiles: Plan
) -> Float[Array, "n h w ci"]:
    """The transpose of `read`: the sum of all patches in their places."""
    high, wide = tiles
    n, _, _, ci = like.shape
    six = patches.reshape(n, high.tiles, wide.tiles, high.reach, wide.reach, ci)
    total = jnp.zeros((), patches.dtype)
    for row, place, inside in _readers(high):
        for column, spot, within in _readers(wide):
            part = six[:, row[:, None], column[None], place[:, None], spot[None]]
            counts = (inside[:, None] & within[None])[None, :, :, None]
            total = total + jnp.where(counts, part, 0.0)
    return total


def _readers(side: Side) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The tiles that read each pixel: their numbers, the pixel's place, whether there is one."""
    pixel = side.low + np.arange(side.size)
    for back in range(-(-side.reach // side.block)):
        tile = pixel // side.block - back
        place = pixel - tile * side.block
        inside = (tile >= 0) & (tile < side.tiles) & (place < side.reach)
        yield np.where(inside, tile, 0), np.where(inside, place, 0), inside


def spread(kernel: Float[Array, "kh kw ci co"], tiles: Plan) -> Float[Array, "patch outputs"]:
    """The kernel at its place for each output of a tile, with zeros around it."""
    ci, co = kernel.shape[2:]
    rows = _shift(kernel, 0, tiles.high)  # [th, ph, kw, ci, co]
    both = _shift(rows, 2, tiles.wide)  # [th, ph, tw, pw, ci, co]
    th, ph, tw, pw = both.shape[:4]
    return both.transpose(1, 3, 4, 0, 2, 5).reshape(ph * pw * ci, th * tw * co)


def kernel_of(
    products: Float[Array, "patch outputs"], like: Array, tiles: Plan
) -> Float[Array, "kh kw ci co"]:
    """The transpose of `spread`: the sum over the outputs of a tile."""
    return jax.linear_transpose(functools.partial(spread, tiles=tiles), like)(products)[0]


def _shift(kernel: Array, axis: int, side: Side) -> Array:
    """One axis of taps becomes two: outputs of a tile, and pixels that the tile reads.

    The kernel of output t is shifted by t strides. Copies of the kernel that are one stride longer
    than the reach, end to end and cut into pieces of the reach, are shifted so.
    """
    length = side.reach + side.stride
    config = [(0, 0, 0)] * kernel.ndim
    extent = side.dilation * (side.taps - 1) + 1
    config[axis] = (0, length - extent, side.dilation - 1)
    longer = jnp.expand_dims(lax.pad(kernel, jnp.zeros((), kernel.dtype), config), axis)
    before, after = kernel.shape[:axis], kernel.shape[axis + 1 :]
    copies = jnp.broadcast_to(longer, (*before, side.tile, length, *after))
    flat = copies.reshape(*before, side.tile * length, *after)
    cut = lax.slice_in_dim(flat, 0, side.tile * side.reach, axis=axis)
    return cut.reshape(*before, side.tile, side.reach, *after)


def to_image(products: Shaped[Array, "..."], n: int, tiles: Plan) -> Shaped[Array, "n ho wo co"]:
    """The outputs of all tiles as images; products are [rows, outputs], in any shape."""
    high, wide = tiles
    six = products.reshape(n, high.tiles, wide.tiles, high.tile, wide.tile, -1)
    whole = six.transpose(0, 1, 3, 2, 4, 5).reshape(
        n, high.tiles * high.tile, wide.tiles * wide.tile, -1
    )
    return whole[:, : high.outputs, : wide.outputs]


def to_tiles(images: Shaped[Array, "n ho wo co"], tiles: Plan) -> Shaped[Array, "n a b th tw co"]:
    """The transpose of `to_image`, with zeros for outputs that are not wanted."""
    high, wide = tiles
    n, ho, wo, co = images.shape
    padded = jnp.pad(
        images,
        ((0, 0), (0, high.tiles * high.tile - ho), (0, wide.tiles * wide.tile - wo), (0, 0)),
    )
    six = padded.reshape(n, high.tiles, high.tile, wide.tiles, wide.tile, co)
    return six.transpose(0, 1, 3, 2, 4, 5)


def largest(values: list[Array]) -> tuple[Array, Int8[Array, "..."]]:
    """The largest of several arrays, and its number; of equal values the first.

    Halves are compared, because XLA does not vectorise a chain of comparisons on CPU.
    """
    if len(values) == 1:
        return values[0], jnp.zeros(values[0].shape, jnp.int8)
    half = len(values) // 2
    (first, number), (second, behind) = largest(values[:half]), largest(values[half:])
    later = second > first
    return jnp.where(later, second, first), jnp.where(later, behind + jnp.int8(half), number)


def convolution(
    x: Float[Array, "n h w ci"],
    kernel: Float[Array, "kh kw ci co"],
    stride: tuple[int, int],
    padding: Padding,
    dilation: tuple[int, int],
    precision=None,
) -> Float[Array, "n ho wo co"]:
    """A convolution by patches, with a gradient by the same patches."""
    tiles = plan(x.shape, kernel.shape, stride, padding, dilation)

    def forward(x: Array, kernel: Array) -> tuple[Array, Needs]:
        patches = read(x, tiles)
        products = jnp.matmul(patches, spread(kernel, tiles), precision=precision)
        return to_image(products, x.shape[0], tiles), (x, patches, kernel)

    def backward(needs: Needs, gradient: Array) -> tuple[Array, Array]:
        x, patches, kernel = needs
        rows = to_tiles(gradient, tiles).reshape(patches.shape[0], -1)
        return _by_image_and_kernel(patches, kernel, rows, x, tiles, precision)

    return with_backward(forward, backward)(x, kernel)


def _by_image_and_kernel(
    patches: Array, kernel: Array, rows: Array, like: Array, tiles: Plan, precision=None
) -> tuple[Array, Array]:
    """Gradients with respect to image and kernel, from that of the products [rows, outputs]."""
    by_spread = jnp.matmul(patches.T, rows, precision=precision)
    by_patches = jnp.matmul(rows, spread(kernel, tiles).T, precision=precision)
    return image_of(by_patches, like, tiles), kernel_of(by_spread, kernel, tiles)


def block(
    x: Float[Array, "n h w ci"],
    kernel: Float[Array, "kh kw ci co"],
    bias: Float[Array, "co"],
    padding: Padding,
) -> Float[Array, "n h2 w2 co"]:
    """Convolution (stride 1), bias, ReLU and 2x2 max-pooling by patches, with its own gradient."""
    tiles = plan(x.shape, kernel.shape, (1, 1), padding, (1, 1), pooled=True)
    half = _pooled(tiles)

    def forward(x: Array, kernel: Array, bias: Array) -> tuple[Array, Needs]:
        high, wide = tiles
        n = x.shape[0]
        patches = read(x, tiles)
        windows = jnp.matmul(patches, spread(kernel, tiles)).reshape(
            n, high.tiles, wide.tiles, high.tile // 2, 2, wide.tile // 2, 2, -1
        )
        best, winner = largest([windows[:, :, :, :, i, :, j] for i in (0, 1) for j in (0, 1)])
        y = best + bias.reshape(1, 1, 1, 1, 1, -1)
        # 0 to 3 is the largest of the four outputs of a window, 4 stands where ReLU lets nothing
        # pass.
        winner = jnp.where(y > 0, winner, jnp.int8(4))
        return to_image(jax.nn.relu(y), n, half), (x, patches, kernel, to_image(winner, n, half))

    def backward(needs: Needs, gradient: Array) -> tuple[Array, Array, Array]:
        x, patches, kernel, winner = needs
        # [n, a, b, th / 2, 1, tw / 2, 1, co]
        winner, inside = (
            to_tiles(array, half)[:, :, :, :, None, :, None] for array in (winner, gradient)
        )
        corner = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 1, 1, 2, 1, 2, 1)
        rows = jnp.where(winner == corner, inside, 0.0).reshape(patches.shape[0], -1)
        by_image, by_kernel = _by_image_and_kernel(patches, kernel, rows, x, tiles)
        return by_image, by_kernel, rows.sum(axis=0).reshape(-1, kernel.shape[3]).sum(axis=0)

    return with_backward(forward, backward)(x, kernel, bias)


def _pooled(tiles: Plan) -> Plan:
    """The tiles of the images after pooling, as far as `to_image` and `to_tiles` read them."""
    return Plan(*(side._replace(outputs=side.outputs // 2, tile=side.tile // 2) for side in tiles))
