"""Contrast between representations: how much nearer one is to a second than to a third."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def contrast(
    own: Float[Array, "b d"],
    near: Float[Array, "b d"],
    far: Float[Array, "b d"],
    temperature: Float[Array, ""] | float,
) -> Float[Array, "b"]:
    """The model-contrastive loss of each example (MOON, equation 3).

    -log (exp(cos(own, near) / temperature) / (exp(cos(own, near) / temperature) + exp(cos(own, far)
    / temperature))). The cosine with a vector of zeros is 0. Lengths whose product is below 1e-6
    count as if it were that, which makes cosines smaller; entries up to 1e8 have a cosine.
    """

    def cosine(a: Array, b: Array) -> Float[Array, "b"]:
        squares = jnp.sum(a * a, axis=-1) * jnp.sum(b * b, axis=-1)
        return jnp.sum(a * b, axis=-1) * jax.lax.rsqrt(jnp.maximum(squares, 1e-12))

    return jax.nn.softplus((cosine(own, far) - cosine(own, near)) / temperature)
