"""Convolution, bias, ReLU and 2x2 max-pooling as one operation, fast in a loop of steps on CPU.

In the plain composition the four outputs of a pooling window read four overlapping patches, and
bias and ReLU are applied to four values of which one survives. Here the outputs of a window, or of
four windows, are computed together from one patch (`tiles`). The largest of a window goes on to
bias and ReLU (the result is the same, since both are monotone), and its position is kept for the
gradient. `patches.block` does the same in the way of a GPU.
"""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float

from jaxfl.core.backward import Needs, with_backward
from jaxfl.core.options import checked
from jaxfl.models.convolution import patches, tiles
from jaxfl.models.convolution.conv import NHWC, Conv, layout_of, max_pool, size_of_outputs

Padding = tuple[tuple[int, int], tuple[int, int]]


class ConvReluPool(nn.Module):
    """`max_pool(relu(Conv(features, kernel_size)(x)))`, with the parameters of `nn.Conv`."""

    features: int
    kernel_size: tuple[int, int]
    padding: str = "SAME"
    kernel_init: Callable = nn.linear.default_kernel_init
    conv: Conv = "auto"

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """[n, h, w, ci] -> [n, h / 2, w / 2, features]."""
        kernel = self.param(
            "kernel", self.kernel_init, (*self.kernel_size, x.shape[-1], self.features)
        )
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        high, wide = lax.padtype_to_pads(x.shape[1:3], self.kernel_size, (1, 1), self.padding)
        return conv_relu_pool(x, kernel, bias, (high, wide), self.conv)


@checked
def conv_relu_pool(
    x: Float[Array, "n h w ci"],
    kernel: Float[Array, "kh kw ci co"],
    bias: Float[Array, "co"],
    padding: Padding,
    way: Conv = "auto",
) -> Float[Array, "n h2 w2 co"]:
    """Convolution (stride 1), bias, ReLU, 2x2 max-pooling; an odd last row or column is dropped."""
    layout = layout_of(way)
    if layout == "batch last":
        return with_backward(partial(_forward, padding), partial(_backward, padding))(
            x, kernel, bias
        )
    if layout == "grouped":
        y = lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=NHWC)
        return max_pool(nn.relu(y + bias[None, None, None]))
    return patches.block(x, kernel, bias, padding)


def _forward(padding: Padding, x: Array, kernel: Array, bias: Array) -> tuple[Array, Needs]:
    high, wide = (size // 2 for size in size_of_outputs(x, kernel, padding))
    side = tiles.side_of(kernel, (2 * high, 2 * wide), len(x))
    read = tiles.patches(x.transpose(3, 1, 2, 0), kernel, padding, (2 * high, 2 * wide), side)
    outputs = tiles.product(read, kernel)
    half = side // 2
    windows = outputs.reshape(half, 2, half, 2, *outputs.shape[2:])
    best, winner = patches.largest([windows[:, i, :, j] for i in (0, 1) for j in (0, 1)])
    # XLA repeats the comparisons and the transform of the product in each consumer, and number by
    # number where a dense layer wants the batch outermost. It does not repeat a division.
    one = jnp.where(best == best, 1.0, jnp.inf).astype(best.dtype)
    best, winner = best / one, winner.astype(best.dtype) / one
    y = nn.relu(tiles.to_image(best, (high, wide)) + bias[:, None, None, None])
    y = y.transpose(3, 1, 2, 0)
    return y, (x, kernel, y, winner)


def _backward(padding: Padding, needs: Needs, gradient: Array) -> tuple[Array, Array, Array]:
    x, kernel, y, winner = needs
    # XLA does not repeat a division in each consumer. So this one keeps the loops of the products
    # apart from the computation of the gradient.
    alive = gradient.transpose(3, 1, 2, 0) / jnp.where(
        y.transpose(3, 1, 2, 0) > 0, 1.0, jnp.inf
    ).astype(y.dtype)
    half = len(winner)
    corner = jnp.arange(4, dtype=winner.dtype).reshape(1, 2, 1, 2, 1, 1, 1, 1)
    each = tiles.to_tiles(alive, half)
    spread = jnp.where(winner[:, None, :, None] == corner, each[:, None, :, None], 0.0)
    spread = spread.reshape(2 * half, 2 * half, *each.shape[2:])  # [t, t, co, high, wide, n]
    _, high, wide, _ = y.shape
    read = tiles.patches(x.transpose(3, 1, 2, 0), kernel, padding, (2 * high, 2 * wide), 2 * half)
    by_patches, by_kernel = tiles.product_backward(read, kernel, spread)
    _, height, width, _ = x.shape
    image = tiles.image_of(by_patches, 2 * half, (height, width), padding)
    return image.transpose(3, 1, 2, 0), by_kernel, alive.sum(axis=(1, 2, 3))
