"""The strength tau of learning between clusters, learned: Adam on theta, where tau = softplus(theta) > 0.

The paper of GFedMtl closes with the wish for such a tau and gives none.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

Rate = Float[Array, ""] | float | int


class Learner(NamedTuple):
    """What is kept of a strength that is learned."""

    theta: Float[Array, "*qq"]  # one number, or [Q, Q]
    memory: optax.OptState


def begin(
    tau: str | Rate | Float[Array, "q q"], clusters: int, strength: float = 0.5
) -> Learner | tuple:
    """What learns tau: "learned", one for all clusters; "learned_pairs", of each pair (receiver, sender) [Q, Q].

    Nothing for a tau that is given.
    """
    if not isinstance(tau, str):
        return ()
    theta = jnp.full(
        (clusters, clusters) if tau == "learned_pairs" else (), jnp.log(jnp.expm1(strength))
    )
    return Learner(theta, optax.adam(0.0).init(theta))


def strength(learner: Learner) -> Float[Array, "*qq"]:
    """The strength tau."""
    return jax.nn.softplus(learner.theta)


def descend(learner: Learner, slope: Float[Array, "*qq"], rate: Rate) -> Learner:
    """One step of Adam against the slope, the derivative of a loss by the strength.

    A slope beyond 1e15 counts as that, and one that is no number as 0: Adam keeps squares, and they
    stay.
    """
    slope = jnp.clip(jnp.nan_to_num(slope), -1e15, 1e15)
    (slope,) = jax.vjp(jax.nn.softplus, learner.theta)[1](slope)
    step, memory = optax.adam(rate).update(slope, learner.memory)
    return Learner(learner.theta + step, memory)


def mean(tau: Float[Array, "*qq"], clusters: int) -> Float[Array, ""]:
    """The mean strength over pairs of different clusters, of which there are two at least."""
    return jnp.mean(
        jnp.broadcast_to(tau, (clusters, clusters)), where=~jnp.eye(clusters, dtype=bool)
    )
