"""Convolution as patches and one matrix product.

XLA on CPU runs the weight gradient of a convolution inside a loop on a naive path, tens of times slower than outside
(jax issue 12868), and kernels that differ by client become grouped convolutions. A matrix product suffers from neither.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

NHWC = lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))  # with HWIO kernels


def conv(lhs: Array, rhs: Array, window_strides, padding, lhs_dilation=None, rhs_dilation=None, **rest) -> Array:
    """`lax.conv_general_dilated` for flax's hook of that name.

    NHWC images and HWIO kernels with unit strides and dilations and one group go the fast way, all else to lax.
    """
    plain = (
        lhs.ndim == 4
        and all(d is None or set(d) == {1} for d in (window_strides, lhs_dilation, rhs_dilation))
        and lax.conv_dimension_numbers(lhs.shape, rhs.shape, rest.get("dimension_numbers")) == NHWC
        and all(rest.get(name, 1) == 1 for name in ("feature_group_count", "batch_group_count"))
        and rest.get("preferred_element_type") is None
    )
    if not plain:
        return lax.conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, **rest)
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(lhs.shape[1:3], rhs.shape[:2], window_strides, padding)
    padded = lax.pad(lhs, jnp.zeros((), lhs.dtype), [(0, 0, 0), *((*p, 0) for p in padding), (0, 0, 0)])
    return _patches_product(padded, rhs, rest.get("precision"))


def _patches_product(
    x: Float[Array, "n h w ci"], kernel: Float[Array, "kh kw ci co"], precision: lax.PrecisionLike
) -> Float[Array, "n ho wo co"]:
    kh, kw, _, co = kernel.shape
    ho, wo = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    # Rows first, then columns: kh + kw slices in place of kh * kw.
    rows = jnp.stack([x[:, i : i + ho] for i in range(kh)], axis=3)  # [n, ho, w, kh, ci]
    patches = jnp.stack([rows[:, :, j : j + wo] for j in range(kw)], axis=4)  # [n, ho, wo, kh, kw, ci]
    return jnp.matmul(patches.reshape(*patches.shape[:3], -1), kernel.reshape(-1, co), precision=precision)


def max_pool(x: Float[Array, "n h w c"]) -> Float[Array, "n h2 w2 c"]:
    """2x2 max-pooling with stride 2; an odd last row or column is dropped."""
    n, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max(axis=(2, 4))
