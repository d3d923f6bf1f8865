"""The strength tau of learning between clusters, learned: Adam on theta, tau = softplus(theta) > 0.

The paper of GFedMtl closes with the wish for a learned tau and gives no method.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from jaxfl.core.options import checked
from jaxfl.core.tree import LARGEST_ENTRY
from jaxfl.core.types import Scalar
from jaxfl.kernels.server_optimizer import UNDER_ROOT


class Learner(NamedTuple):
    """The state of a strength that is learned."""

    theta: Float[Array, "*qq"]  # one number, or [Q, Q]
    opt_state: optax.OptState


@checked
def init(
    tau: str | Scalar | Float[Array, "q q"], clusters: int, strength: float = 0.5
) -> Learner | tuple:
    """The start of learning tau; () for a tau that is given.

    Args:
      tau: "learned", one number for all clusters; "learned_pairs", one of each pair (receiver,
        sender) [Q, Q]; or a given tau.
      clusters: Q.
      strength: tau at the start.

    Example:
      >>> init("learned_pairs", 2).theta.shape
      (2, 2)
    """
    if not isinstance(tau, str):
        return ()
    shape = (clusters, clusters) if tau == "learned_pairs" else ()
    # The inverse of the softplus.
    theta = jnp.full(shape, jnp.log(jnp.expm1(strength)))
    return Learner(theta, optax.adam(0.0).init(theta))


def strength(learner: Learner) -> Float[Array, "*qq"]:
    """The strength tau.

    Example:
      >>> round(strength(init("learned", 2)).item(), 4)
      0.5
    """
    return jax.nn.softplus(learner.theta)


def update(learner: Learner, grad: Float[Array, "*qq"], rate: Scalar) -> Learner:
    """One step of Adam.

    Args:
      learner: the state before.
      grad: gradient of a loss by tau. Entries beyond 1e15 count as 1e15 and NaN as 0: Adam keeps
        squares, and they stay.
      rate: learning rate.

    Example:
      >>> start = init("learned", 2)
      >>> bool(strength(update(start, jnp.array(3.0), 0.1)) < strength(start))
      True
    """
    grad = jnp.clip(jnp.nan_to_num(grad), -LARGEST_ENTRY, LARGEST_ENTRY).astype(learner.theta.dtype)
    # The gradient by theta.
    (grad,) = jax.vjp(jax.nn.softplus, learner.theta)[1](grad)
    updates, opt_state = optax.adam(rate, eps_root=UNDER_ROOT).update(grad, learner.opt_state)
    return Learner(jnp.asarray(optax.apply_updates(learner.theta, updates)), opt_state)


def mean(tau: Float[Array, "*qq"], clusters: int) -> Float[Array, ""]:
    """The mean strength over pairs of different clusters.

    Args:
      tau: one number or [Q, Q].
      clusters: Q, at least two.

    Example:
      >>> mean(jnp.array([[9.0, 1.0], [2.0, 9.0]]), 2).item()
      1.5
    """
    different = ~jnp.eye(clusters, dtype=bool)
    return jnp.mean(jnp.broadcast_to(tau, (clusters, clusters)), where=different)
