"""Client-level differential privacy: each client clips its update and adds noise before sending.

This is the local model: no server is trusted, and whoever reads an upload reads a noised one. The
mechanism is that of Dwork and Roth, "The Algorithmic Foundations of Differential Privacy", 2014,
appendix A, https://doi.org/10.1561/0400000042. Clipping is as in McMahan et al., "Learning
Differentially Private Recurrent Language Models", ICLR 2018, https://arxiv.org/abs/1710.06963,
where a trusted server adds the noise once, to the mean.
"""

import jax
import jax.numpy as jnp
from jax import flatten_util
from jaxtyping import Array, Int

from jaxfl.core.options import NOT_NEGATIVE, POSITIVE, check_range
from jaxfl.core.types import Params, PRNGKey, Scalar, Uplink
from jaxfl.kernels.similarity import root

__all__ = ["gaussian"]


def gaussian(clip: Scalar, noise: Scalar) -> Uplink:
    """The uplink in which each client clips its update, after - before, and adds normal noise.

    Two clipped updates of a client lie at most 2 `clip` apart, whatever its data are. So an upload
    is the Gaussian mechanism with noise multiplier `noise` / 2, if the server already knows
    `before`.

    Args:
      clip: largest L2 norm of an update, over all of its parameters, and statistics of BatchNorm if
        it has them, before what is sent is rounded to the type of the parameters. Statistics move
        far, and leave little room for the parameters: take a model without them.
      noise: standard deviation of the noise on each parameter, in units of `clip`; with 0 updates
        are only clipped, which protects nothing.

    Raises:
      InputError: `clip` is not positive, or `noise` is negative.

    Example:
      >>> uplink = gaussian(clip=5.0, noise=0.0)
      >>> after = jnp.array([[6.0, 8.0], [0.0, 1.0]])
      >>> uplink(jax.random.key(0), jnp.zeros((2, 2)), after, jnp.arange(2)).tolist()
      [[3.0, 4.0], [0.0, 1.0]]
    """
    check_range(POSITIVE, clip=clip)
    check_range(NOT_NEGATIVE, noise=noise)

    def send(key: PRNGKey, before: Params, after: Params) -> Params:
        # A norm in bfloat16 is up to 1 % too small. What is sent is rounded at the end alone, after
        # the noise, so that it tells no more than the sum itself.
        start, unflatten = flatten_util.ravel_pytree(jax.tree.map(_wide, before))
        update = flatten_util.ravel_pytree(jax.tree.map(_wide, after))[0] - start
        clipped = update * (clip / jnp.maximum(root(jnp.sum(update * update)), clip))
        normal = jax.random.normal(key, start.shape, start.dtype)
        upload = unflatten(start + clipped + noise * clip * normal)
        return jax.tree.map(lambda x, b: x.astype(b.dtype), upload, before)

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
        return jax.vmap(send)(keys, before, after)

    return uplink


def _wide(x: Array) -> Array:
    """The numbers in float32, or in their own type if that is wider."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
