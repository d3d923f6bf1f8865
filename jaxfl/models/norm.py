"""Group normalisation in the layout of `convolution.conv`, with the batch innermost."""

import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from jaxfl.core.errors import check


class GroupNorm(nn.Module):
    """Normalises groups of channels of each example, then scales and shifts each channel.

    Group normalisation (Wu and He, 2018, https://arxiv.org/abs/1803.08494), the same as flax's
    `nn.GroupNorm`. The reductions of the latter leave the layout of the convolutions and take
    longer than these on CPU.
    """

    groups: int
    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x):
        """[n, h, w, c] -> [n, h, w, c]."""
        n, _, _, c = x.shape
        check(
            c % self.groups == 0,
            f"{self.groups} groups do not divide {c} channels: choose a divisor",
        )
        scale = self.param("scale", nn.initializers.ones, (c,)).reshape(self.groups, -1, 1)
        bias = self.param("bias", nn.initializers.zeros, (c,)).reshape(self.groups, -1, 1)
        inside = x.transpose(3, 1, 2, 0)
        rows = inside.reshape(self.groups, -1, n)
        mean = rows.mean(axis=1)[:, None]  # [group, 1, n]
        variance = jnp.square(rows).mean(axis=1)[:, None] - jnp.square(mean)
        # [group, c / group, n]
        factor = scale * lax.rsqrt(jnp.maximum(variance, 0.0) + self.epsilon)
        shift = bias - mean * factor
        normal = inside * factor.reshape(c, 1, 1, n) + shift.reshape(c, 1, 1, n)
        return normal.transpose(3, 1, 2, 0)
