"""Convolution and pooling that are fast in a loop over steps, with one kernel for each client.

On CPU, inside a loop, XLA computes the weight gradient of a convolution on a naive path, tens of
times slower than outside (https://github.com/jax-ml/jax/issues/12868). Under `vmap` a kernel for
each client makes a grouped convolution, which is slow as well. Therefore a convolution on CPU is
patches and one matrix product here, with its own gradient. Everything else is lax's.

Images are NHWC and kernels HWIO, as everywhere in flax. Inside, the batch is the innermost axis,
[c, h, w, n]: each slice of a patch is then contiguous in memory, and the transposes between two
layers cancel.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int8

from jaxfl.models import tiles

NHWC = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))  # with HWIO kernels


class Window(NamedTuple):
    """How the kernel moves over the image, height and width; hashable."""

    stride: tuple[int, int]
    padding: tuple[tuple[int, int], tuple[int, int]]
    dilation: tuple[int, int]


def conv(
    lhs: Array, rhs: Array, window_strides, padding, lhs_dilation=None, rhs_dilation=None, **rest
) -> Array:
    """`lax.conv_general_dilated`, for flax's hook `conv_general_dilated`.

    The fast path on CPU covers NHWC images with HWIO kernels in one group, with any stride and
    kernel dilation and any padding that is not negative. In all other cases, and on every other
    backend, this is `lax.conv_general_dilated` itself.
    """
    covered = (
        lhs.ndim == 4
        and (lhs_dilation is None or set(lhs_dilation) == {1})
        and lax.conv_dimension_numbers(lhs.shape, rhs.shape, rest.get("dimension_numbers")) == NHWC
        and all(rest.get(name, 1) == 1 for name in ("feature_group_count", "batch_group_count"))
        and rest.get("preferred_element_type") is None
    )
    if covered:
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
            return _conv(lhs, rhs, window, rest.get("precision"))
    return lax.conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, **rest
    )


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _conv(
    x: Float[Array, "n h w ci"], kernel: Float[Array, "kh kw ci co"], window: Window, precision
) -> Array:
    return lax.platform_dependent(
        x,
        kernel,
        cpu=partial(_forward, window, precision),
        default=partial(_lax, window, precision),
    )


def _conv_forward(x, kernel, window, precision):
    return _conv(x, kernel, window, precision), (x, kernel)


def _conv_backward(window, precision, saved, gradient):
    return lax.platform_dependent(
        *saved,
        gradient,
        cpu=partial(_backward, window, precision),
        default=partial(_lax_backward, window, precision),
    )


_conv.defvjp(_conv_forward, _conv_backward)


def _lax(window: Window, precision, x, kernel):
    return lax.conv_general_dilated(
        x, kernel, window.stride, window.padding, None, window.dilation, NHWC, precision=precision
    )


def _lax_backward(window: Window, precision, x, kernel, gradient):
    return jax.vjp(partial(_lax, window, precision), x, kernel)[1](gradient)


def _patches(x: Array, kernel_size: tuple[int, int], window: Window) -> Array:
    """[n, h, w, c] -> [kh, kw, c, ho, wo, n]: kh slices of rows, then kw slices of columns."""
    inside = x.transpose(3, 1, 2, 0)  # [c, h, w, n]
    inside = jnp.pad(inside, ((0, 0), *window.padding, (0, 0)))

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


def _tiled(window: Window, x: Array, kernel: Array) -> bool:
    """Whether the outputs are computed in tiles of 2x2, which costs fewer multiplications."""
    outputs = (x.shape[1 + i] + sum(window.padding[i]) - kernel.shape[i] + 1 for i in range(2))
    plain = window.stride == window.dilation == (1, 1)
    return plain and tiles.winograd_pays(kernel) and all(size % 2 == 0 for size in outputs)


def _forward(window: Window, precision, x: Array, kernel: Array) -> Array:
    kh, kw, ci, co = kernel.shape
    if _tiled(window, x, kernel):
        read = tiles.patches(x.transpose(3, 1, 2, 0), kernel, window.padding)
        four = tiles.product(read, kernel, precision)
        *_, high, wide, n = four.shape
        corners = four.reshape(2, 2, co, high, wide, n).transpose(5, 3, 0, 4, 1, 2)
        return corners.reshape(n, 2 * high, 2 * wide, co)
    patches = _patches(x, (kh, kw), window)
    *_, ho, wo, n = patches.shape
    product = jnp.matmul(
        kernel.reshape(-1, co).T, patches.reshape(kh * kw * ci, -1), precision=precision
    )
    return product.reshape(co, ho, wo, n).transpose(3, 1, 2, 0)


def _backward(
    window: Window, precision, x: Array, kernel: Array, gradient: Array
) -> tuple[Array, Array]:
    kh, kw, ci, co = kernel.shape
    n, ho, wo, _ = gradient.shape
    if _tiled(window, x, kernel):
        corners = gradient.reshape(n, ho // 2, 2, wo // 2, 2, co).transpose(2, 4, 5, 1, 3, 0)
        four = corners.reshape(4, co, ho // 2, wo // 2, n)
        read = tiles.patches(x.transpose(3, 1, 2, 0), kernel, window.padding)
        by_patches, by_kernel = tiles.product_backward(read, kernel, four, precision)
        _, height, width, _ = x.shape
        image = tiles.image_of(by_patches, (height, width), window.padding)
        return image.transpose(3, 1, 2, 0), by_kernel
    patches = _patches(x, (kh, kw), window).reshape(kh * kw * ci, -1)
    flat = gradient.transpose(3, 1, 2, 0).reshape(co, -1)  # [co, ho * wo * n]
    by_kernel = jnp.matmul(patches, flat.T, precision=precision).reshape(kernel.shape)
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


@jax.custom_vjp
def max_pool(x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """2x2 max-pooling with stride 2; an odd last row or column is dropped.

    The gradient of a maximum that several values share goes to the first of them.
    """
    return _pool(x)[0]


def _pool(x: Array) -> tuple[Array, Int8[Array, "..."]]:
    n, h, w, c = x.shape
    corners = (
        x[:, : h // 2 * 2, : w // 2 * 2].transpose(3, 1, 2, 0).reshape(c, h // 2, 2, w // 2, 2, n)
    )
    best = corners[:, :, 0, :, 0]
    winner = jnp.zeros((c, h // 2, w // 2, n), jnp.int8)
    for i, (row, column) in enumerate(((0, 1), (1, 0), (1, 1)), start=1):
        value = corners[:, :, row, :, column]
        winner = jnp.where(value > best, jnp.int8(i), winner)
        best = jnp.where(value > best, value, best)
    return best.transpose(3, 1, 2, 0), winner


def _pool_forward(x):
    pooled, winner = _pool(x)
    return pooled, (winner, x.shape)


def _pool_backward(saved, gradient):
    winner, (n, h, w, c) = saved
    inside = gradient.transpose(3, 1, 2, 0)[:, :, None, :, None]  # [c, h/2, 1, w/2, 1, n]
    corner = jnp.arange(4, dtype=jnp.int8).reshape(1, 1, 2, 1, 2, 1)
    spread = jnp.where(winner[:, :, None, :, None] == corner, inside, 0.0)
    image = spread.reshape(c, h // 2 * 2, w // 2 * 2, n).transpose(3, 1, 2, 0)
    return (jnp.pad(image, ((0, 0), (0, h % 2), (0, w % 2), (0, 0))),)


max_pool.defvjp(_pool_forward, _pool_backward)
