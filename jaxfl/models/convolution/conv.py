"""Convolution and pooling that are fast in a loop over steps, with one kernel for each client.

On CPU, inside a loop, XLA computes the weight gradient of a convolution on a naive path, tens of
times slower than outside (https://github.com/jax-ml/jax/issues/12868). Under `vmap` a kernel for
each client makes a grouped convolution, which is slow as well
(https://github.com/jax-ml/jax/issues/13800). Therefore a convolution is patches and one matrix
product here, or on a CPU a product for each row or tile, with its own gradient. Everything else is
lax's.

Images are NHWC and kernels HWIO, as everywhere in flax. Inside, on a CPU, the batch is the
innermost axis, [c, h, w, n]: each slice of a patch is then contiguous in memory, and the transposes
between two layers cancel. `patches` does the same in the way of a GPU.
"""

from functools import partial
from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from jaxfl.core import target
from jaxfl.core.backward import Needs, with_backward
from jaxfl.core.options import checked
from jaxfl.models.convolution import image_rows, patches, tiles

NHWC = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))  # with HWIO kernels


# How a convolution is computed: "patches" is patches and a matrix product for each client.
# "grouped" is lax's convolution, grouped by clients. "auto" is "grouped" on a TPU and "patches"
# elsewhere: on a GPU grouped convolutions take three to six times as long, and on a TPU the
# compiled program moves more than twice the bytes with "patches" (docs/accelerators.md). On a CPU
# neither decides: many channels go by rows or tiles, and others by patches.
Conv = Literal["auto", "patches", "grouped"]

# Channels on both sides from which tiles of this side are faster than rows, if nothing is pooled.
WIDE = {2: 128, 4: 32}


class Window(NamedTuple):
    """How the kernel moves over the image, height and width; hashable."""

    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    dilation: tuple[int, int]


@checked
def conv(
    lhs: Array,
    rhs: Array,
    window_strides,
    padding,
    lhs_dilation=None,
    rhs_dilation=None,
    *,
    way: Conv = "auto",
    **rest,
) -> Array:
    """`lax.conv_general_dilated`, for flax's hook `conv_general_dilated`.

    Patches and a matrix product take its place for NHWC images with HWIO kernels in one group, with
    any stride and kernel dilation and any padding that is not negative. In all other cases, and
    where `way` says so, this is `lax.conv_general_dilated` itself.
    """
    supported = (
        lhs.ndim == 4
        and (lhs_dilation is None or set(lhs_dilation) == {1})
        and lax.conv_dimension_numbers(lhs.shape, rhs.shape, rest.get("dimension_numbers")) == NHWC
        and all(rest.get(name, 1) == 1 for name in ("feature_group_count", "batch_group_count"))
        and rest.get("preferred_element_type") is None
    )
    if supported:
        dilation = (1, 1) if rhs_dilation is None else tuple(rhs_dilation)
        extent = [d * (k - 1) + 1 for k, d in zip(rhs.shape[:2], dilation, strict=True)]
        pads = padding
        if isinstance(padding, str):
            pads = lax.padtype_to_pads(lhs.shape[1:3], extent, window_strides, padding)
        fits = (
            low >= 0 and high >= 0 and size + low + high >= e
            for size, e, (low, high) in zip(lhs.shape[1:3], extent, pads, strict=True)
        )
        if all(fits):
            (top, bottom), (left, right) = pads
            window = Window(tuple(window_strides), ((top, bottom), (left, right)), dilation)
            return _conv(lhs, rhs, window, rest.get("precision"), way)
    return lax.conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, **rest
    )


def _conv(x: Array, kernel: Array, window: Window, precision, way: Conv) -> Array:
    layout = layout_of(way)
    if layout == "batch last":
        given = window, precision
        return with_backward(partial(_forward, *given), partial(_backward, *given))(x, kernel)
    if layout == "grouped":
        return _lax(window, precision, x, kernel)
    return patches.convolution(x, kernel, *window, precision)


@checked
def layout_of(way: Conv) -> Literal["batch last", "batch first", "grouped"]:
    """How the program being traced computes a convolution, which depends on its platform."""
    platform = target.platform()
    if platform == "cpu":
        return "batch last"
    if way == "grouped" or (way == "auto" and platform == "tpu"):
        return "grouped"
    return "batch last" if platform == "tpu" else "batch first"


def _lax(window: Window, precision, x, kernel):
    return lax.conv_general_dilated(
        x, kernel, window.stride, window.padding, None, window.dilation, NHWC, precision=precision
    )


def _patches(x: Array, kernel_size: tuple[int, int], window: Window) -> Array:
    """[n, h, w, c] -> [kh, kw, c, ho, wo, n]: kh slices of rows, then kw slices of columns."""
    inside = _image_with_padding(x, window)

    def slices(array: Array, axis: int, which: int) -> list[Array]:
        count, stride, dilation = kernel_size[which], window.stride[which], window.dilation[which]
        out = (array.shape[axis] - dilation * (count - 1) - 1) // stride + 1
        return [
            lax.slice_in_dim(
                array, i * dilation, i * dilation + (out - 1) * stride + 1, stride, axis
            )
            for i in range(count)
        ]

    rows = jnp.stack(slices(inside, 1, 0))  # [kh, c, ho, w, n]
    return jnp.stack(slices(rows, 3, 1), axis=1)


def _tile_side(window: Window, kernel: Array, outputs: tuple[int, int], n: int) -> int | None:
    """The side of the tiles that the outputs are computed in, or None for another way."""
    side = tiles.side_of(kernel, outputs, n)
    plain = window.stride == window.dilation == (1, 1)
    wide = tiles.winograd_pays(kernel) and min(kernel.shape[2:]) >= WIDE[side]
    return side if plain and wide and tiles.fit(outputs, side) else None


def size_of_outputs(x: Array, kernel: Array, padding: tiles.Padding) -> tuple[int, int]:
    """Height and width of the outputs [n, h, w, co], if the kernel moves by single pixels."""
    high, wide = (x.shape[1 + i] + sum(padding[i]) - kernel.shape[i] + 1 for i in range(2))
    return high, wide


def _uses_rows(window: Window, kernel: Array, outputs: tuple[int, int]) -> bool:
    """Whether the outputs are computed row by row, which keeps what is read in the cache.

    For a single row or column the order of the kernel's numbers would cost more than it saves.
    """
    plain = window.stride == window.dilation == (1, 1)
    several = min(outputs) > 1
    return plain and several and image_rows.rows_pay(kernel) and target.platform() == "cpu"


def _image_with_padding(x: Array, window: Window) -> Array:
    """[n, h, w, c] -> [c, h, w, n]."""
    return jnp.pad(x.transpose(3, 1, 2, 0), ((0, 0), *window.padding, (0, 0)))


def _forward(window: Window, precision, x: Array, kernel: Array) -> tuple[Array, Needs]:
    kh, kw, ci, co = kernel.shape
    outputs = size_of_outputs(x, kernel, window.padding)
    if side := _tile_side(window, kernel, outputs, len(x)):
        read = tiles.patches(x.transpose(3, 1, 2, 0), kernel, window.padding, outputs, side)
        y = tiles.to_image(tiles.product(read, kernel, precision), outputs)
        return y.transpose(3, 1, 2, 0), (x, kernel)
    if _uses_rows(window, kernel, outputs):
        y = image_rows.convolution(_image_with_padding(x, window), kernel, precision)
        return y.transpose(3, 1, 2, 0), (x, kernel)
    read = _patches(x, (kh, kw), window)
    *_, ho, wo, n = read.shape
    product = jnp.matmul(
        kernel.reshape(-1, co).T, read.reshape(kh * kw * ci, -1), precision=precision
    )
    return product.reshape(co, ho, wo, n).transpose(3, 1, 2, 0), (x, kernel)


def _backward(window: Window, precision, needs: Needs, gradient: Array) -> tuple[Array, Array]:
    x, kernel = needs
    kh, kw, ci, co = kernel.shape
    n, ho, wo, _ = gradient.shape
    if side := _tile_side(window, kernel, (ho, wo), n):
        read = tiles.patches(x.transpose(3, 1, 2, 0), kernel, window.padding, (ho, wo), side)
        corners = tiles.to_tiles(gradient.transpose(3, 1, 2, 0), side)
        by_patches, by_kernel = tiles.product_backward(read, kernel, corners, precision)
        _, height, width, _ = x.shape
        image = tiles.image_of(by_patches, side, (height, width), window.padding)
        return image.transpose(3, 1, 2, 0), by_kernel
    if _uses_rows(window, kernel, (ho, wo)):
        outputs = gradient.transpose(3, 1, 2, 0)
        image = image_rows.gradient_by_image(outputs, kernel, window.padding, precision)
        by_kernel = image_rows.gradient_by_kernel(
            _image_with_padding(x, window), kernel, outputs, precision
        )
        return image.transpose(3, 1, 2, 0), by_kernel
    read = _patches(x, (kh, kw), window).reshape(kh * kw * ci, -1)
    flat = gradient.transpose(3, 1, 2, 0).reshape(co, -1)  # [co, ho * wo * n]
    by_kernel = jnp.matmul(read, flat.T, precision=precision).reshape(kernel.shape)
    spread = jnp.matmul(kernel.reshape(-1, co), flat, precision=precision).reshape(
        kh, kw, ci, ho, wo, n
    )

    def gather(parts: Array, axis: int, which: int) -> Array:
        """The transpose of `slices`: the sum of all parts in their places, without the padding."""
        (low, high), stride, dilation = (
            window.padding[which],
            window.stride[which],
            window.dilation[which],
        )
        size = x.shape[1 + which] + low + high
        total = jnp.zeros((), parts.dtype)
        for i, part in enumerate(parts):
            config = [(0, 0, 0)] * part.ndim
            start = i * dilation
            config[axis] = (start, size - start - (part.shape[axis] - 1) * stride - 1, stride - 1)
            total = total + lax.pad(part, jnp.zeros((), part.dtype), config)
        return lax.slice_in_dim(total, low, size - high, axis=axis)

    columns = gather(spread.swapaxes(0, 1), 3, 1)  # [kh, c, ho, w, n]
    rows = gather(columns, 1, 0)  # [c, h, w, n]
    return rows.transpose(3, 1, 2, 0), by_kernel


def max_pool(x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """2x2 max-pooling with stride 2; an odd last row or column is dropped.

    The gradient of a maximum that several values share goes to the first of them.
    """
    return with_backward(_pool, partial(_pool_backward, x.shape))(x)


def _pool(x: Array) -> tuple[Array, Needs]:
    n, h, w, c = x.shape
    even = x[:, : h // 2 * 2, : w // 2 * 2]
    if _is_batch_first():
        corners = even.reshape(n, h // 2, 2, w // 2, 2, c)
        best, winner = patches.largest([corners[:, :, i, :, j] for i in (0, 1) for j in (0, 1)])
        return best, (winner,)
    corners = even.transpose(3, 1, 2, 0).reshape(c, h // 2, 2, w // 2, 2, n)
    best, winner = patches.largest([corners[:, :, i, :, j] for i in (0, 1) for j in (0, 1)])
    return best.transpose(3, 1, 2, 0), (winner,)


def _is_batch_first() -> bool:
    """Whether images are pooled as they are, as `patches` reads and writes them."""
    return target.platform() not in ("cpu", "tpu")


def _pool_backward(shape: tuple[int, ...], needs: Needs, gradient: Array) -> tuple[Array]:
    (winner,), (n, h, w, c) = needs, shape
    corner = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 2, 1, 2, 1)
    inside = gradient if _is_batch_first() else gradient.transpose(3, 1, 2, 0)
    mask = winner[:, :, None, :, None] == corner
    spread = jnp.where(mask, inside[:, :, None, :, None], 0.0)
    if _is_batch_first():
        image = spread.reshape(n, h // 2 * 2, w // 2 * 2, c)
    else:
        image = spread.reshape(c, h // 2 * 2, w // 2 * 2, n).transpose(3, 1, 2, 0)
    return (jnp.pad(image, ((0, 0), (0, h % 2), (0, w % 2), (0, 0))),)
