"""Contrast between representations: how much nearer one is to a second than to a third.

MOON: Li et al., CVPR 2021, https://arxiv.org/abs/2103.16257.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.core.options import checked
from jaxfl.core.types import Scalar


@checked
def contrast(
    features: Float[Array, "b d"],
    positive: Float[Array, "b d"],
    negative: Float[Array, "b d"],
    temperature: Scalar,
) -> Float[Array, "b"]:
    """The model-contrastive loss of each example (equation 3) [B].

    -log(exp(cos(z, z+) / t) / (exp(cos(z, z+) / t) + exp(cos(z, z-) / t))), with t the temperature.
    The cosine with a vector of zeros is 0. If the product of two lengths is below 1e-6 it counts as
    1e-6, which makes the cosine smaller; entries up to 1e8 have a cosine.

    Args:
      features: z, representations to compare [B, d].
      positive: z+, those to which they should be similar [B, d].
      negative: z-, those to which they should not [B, d].
      temperature: t.

    Example:
      >>> x = jnp.ones((1, 2))
      >>> round(contrast(x, x, -x, 0.5).item(), 3)
      0.018
    """

    def cosine(a: Array, b: Array) -> Float[Array, "b"]:
        squares = jnp.sum(a * a, axis=-1) * jnp.sum(b * b, axis=-1)
        return jnp.sum(a * b, axis=-1) * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))

    return jax.nn.softplus((cosine(features, negative) - cosine(features, positive)) / temperature)
