"""Convolution, bias, ReLU and 2x2 max-pooling as one operation with one gradient, for the loop over local steps on CPU.

Computed as written, the four outputs of a pooling window read four overlapping patches, and bias and ReLU work on four
values of which one survives. Here the window's patches are read as one, of (k + 1) x (k + 1); one product with the
kernel at its four offsets gives all four outputs; the largest goes on to bias and ReLU (the same result, since both are
monotone), and its place is kept for the gradient. Elsewhere than on CPU it is the plain composition.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jaxtyping import Array, Float

from jaxfl.models.conv import NHWC, max_pool

Padding = tuple[tuple[int, int], tuple[int, int]]


class ConvReluPool(nn.Module):
    """`max_pool(relu(Conv(features, kernel_size)(x)))`, with the parameters of `nn.Conv`."""

    features: int
    kernel_size: tuple[int, int]
    padding: str = "SAME"
    kernel_init: Callable = nn.linear.default_kernel_init

    @nn.compact
    def __call__(self, x):
        """[n, h, w, ci] -> [n, h / 2, w / 2, features]."""
        kernel = self.param("kernel", self.kernel_init, (*self.kernel_size, x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        pads = lax.padtype_to_pads(x.shape[1:3], self.kernel_size, (1, 1), self.padding)
        return conv_relu_pool(x, kernel, bias, tuple(tuple(p) for p in pads))


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def conv_relu_pool(
    x: Float[Array, "n h w ci"], kernel: Float[Array, "kh kw ci co"], bias: Float[Array, "co"], padding: Padding
) -> Float[Array, "n h2 w2 co"]:
    """Convolution of stride 1, bias, ReLU, 2x2 max-pooling; an odd last row or column of the convolution is dropped."""
    return lax.platform_dependent(
        x, kernel, bias, cpu=lambda *a: _forward(*a, padding)[0], default=partial(_plain, padding=padding)
    )


def _plain(x: Array, kernel: Array, bias: Array, padding: Padding) -> Array:
    y = lax.conv_general_dilated(x, kernel, (1, 1), padding, dimension_numbers=NHWC)
    return max_pool(nn.relu(y + bias))


def _split(x: Array, kernel: Array, bias: Array, padding: Padding):
    def cpu(x, kernel, bias):
        y, winner = _forward(x, kernel, bias, padding)
        return y, (y, winner)

    def default(x, kernel, bias):
        y = _plain(x, kernel, bias, padding)
        return y, (y, jnp.zeros((y.shape[3], *y.shape[1:3], y.shape[0]), jnp.int8))

    y, saved = lax.platform_dependent(x, kernel, bias, cpu=cpu, default=default)
    return y, (x, kernel, bias, *saved)


def _gradient(padding: Padding, saved: tuple, gradient: Array):
    x, kernel, bias, y, winner = saved

    def default(x, kernel, bias, y, winner, gradient):
        return jax.vjp(partial(_plain, padding=padding), x, kernel, bias)[1](gradient)

    return lax.platform_dependent(
        x, kernel, bias, y, winner, gradient, cpu=partial(_backward, padding=padding), default=default
    )


conv_relu_pool.defvjp(_split, _gradient)


def _windows(x: Array, size: tuple[int, int], padding: Padding) -> Array:
    """What each pooling window reads: [n, h, w, c] -> [kh + 1, kw + 1, c, h2, w2, n], rows first, then columns."""
    inside = jnp.pad(x.transpose(3, 1, 2, 0), ((0, 0), *padding, (0, 0)))  # [c, h, w, n]
    high, wide = ((inside.shape[1 + i] - size[i] + 1) // 2 for i in range(2))
    rows = jnp.stack([lax.slice_in_dim(inside, i, i + 2 * high - 1, 2, 1) for i in range(size[0] + 1)])
    return jnp.stack([lax.slice_in_dim(rows, j, j + 2 * wide - 1, 2, 3) for j in range(size[1] + 1)], axis=1)


def _offsets(kernel: Array) -> Array:
    """The kernel at its four places in the window's patch: [kh, kw, ci, co] -> [(kh + 1) (kw + 1) ci, 4 co]."""
    four = [jnp.pad(kernel, ((a, 1 - a), (b, 1 - b), (0, 0), (0, 0))) for a in (0, 1) for b in (0, 1)]
    return jnp.stack(four, axis=3).reshape(-1, 4 * kernel.shape[3])


def _forward(x: Array, kernel: Array, bias: Array, padding: Padding) -> tuple[Array, Array]:
    windows = _windows(x, kernel.shape[:2], padding)
    *_, high, wide, n = windows.shape
    product = _offsets(kernel).T @ windows.reshape(-1, high * wide * n)
    first, *others = product.reshape(4, kernel.shape[3], high, wide, n)
    best, winner = first, jnp.zeros(first.shape, jnp.int8)
    for i, value in enumerate(others, start=1):
        winner = jnp.where(value > best, jnp.int8(i), winner)
        best = jnp.where(value > best, value, best)
    y = nn.relu(best + bias[:, None, None, None])
    return y.transpose(3, 1, 2, 0), winner


def _backward(x, kernel, bias, y, winner, gradient, padding: Padding):
    kh, kw, ci, co = kernel.shape
    windows = _windows(x, (kh, kw), padding)
    *_, high, wide, n = windows.shape
    # A division, which XLA does not repeat in each consumer, keeps the flat loops below apart from the sums above.
    alive = gradient.transpose(3, 1, 2, 0) / jnp.where(y.transpose(3, 1, 2, 0) > 0, 1.0, jnp.inf)
    corner = jnp.arange(4, dtype=jnp.int8).reshape(4, 1, 1, 1, 1)
    spread = jnp.where(winner[None] == corner, alive[None], 0.0).reshape(4 * co, -1)
    by_offsets = (windows.reshape(-1, high * wide * n) @ spread.T).reshape(kh + 1, kw + 1, ci, 4, co)
    by_kernel = sum(by_offsets[a : a + kh, b : b + kw, :, 2 * a + b] for a in (0, 1) for b in (0, 1))
    by_windows = (_offsets(kernel) @ spread).reshape(kh + 1, kw + 1, ci, high, wide, n)
    # Back to the image: parts of one parity of row and column are summed shifted by whole windows, then interleaved.
    columns = _interleave(by_windows.swapaxes(0, 1), 3, x.shape[2] + sum(padding[1]))  # [kh + 1, c, h2, w, n]
    rows = _interleave(columns, 1, x.shape[1] + sum(padding[0]))  # [c, h, w, n]
    (top, _), (left, _) = padding
    image = rows[:, top : top + x.shape[1], left : left + x.shape[2]]
    return image.transpose(3, 1, 2, 0), by_kernel, alive.sum(axis=(1, 2, 3))


def _interleave(parts: Array, axis: int, size: int) -> Array:
    """The transpose of taking every second row from part number i on: the parts put back to their places and summed."""
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
