"""Client-level differential privacy: each client clips its update and adds noise before it sends it.

This is the local model: no server is trusted, and whoever reads an upload reads a noised one. Dwork
and Roth, "The Algorithmic Foundations of Differential Privacy", 2014, appendix A; clipping as
McMahan et al., "Learning Differentially Private Recurrent Language Models", ICLR 2018, where a
trusted server adds the noise once, to the mean.
"""

import jax
import jax.numpy as jnp
from jax import flatten_util
from jaxtyping import Array, Int

from jaxfl.errors import check_not_negative, check_positive
from jaxfl.types import Params, PRNGKey, Scalar, Uplink


def gaussian(clip: Scalar, noise: Scalar) -> Uplink:
    """The uplink in which every update, after - before, is clipped and noised by the client itself.

    Whatever the data of a client are, its clipped updates lie at most 2 `clip` apart: an upload is
    the Gaussian mechanism of noise multiplier `noise` / 2, provided that `before` is known to the
    server already.

    Args:
      clip: largest L2 norm of an update, over all of its parameters.
      noise: standard deviation of the noise on each parameter, in units of `clip`; 0 clips only,
        and protects nothing.

    Raises:
      InputError: `clip` is not positive, or `noise` is negative.
    """
    check_positive(clip=clip)
    check_not_negative(noise=noise)

    def one(key: PRNGKey, before: Params, after: Params) -> Params:
        start, back = flatten_util.ravel_pytree(before)
        update = flatten_util.ravel_pytree(after)[0] - start
        clipped = update * (clip / jnp.maximum(jnp.linalg.norm(update), clip))
        return back(
            start + clipped + noise * clip * jax.random.normal(key, start.shape, start.dtype)
        )

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        return jax.vmap(one)(jax.vmap(jax.random.fold_in, (None, 0))(key, ids), before, after)

    return uplink
