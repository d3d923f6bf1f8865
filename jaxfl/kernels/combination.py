"""FedPAC's combination of heads: small variance, and feature means near the client's own."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxfl.core.options import checked
from jaxfl.kernels.projection import project_rows
from jaxfl.kernels.similarity import root

# Steps of the accelerated projected gradient method; fewer where nothing changes any more.
MOST_STEPS = 1000


@checked
def combination_rows(
    variances: Float[Array, "m"],
    means: Float[Array, "m f"],
    reported: Bool[Array, "m"] | None = None,
) -> Float[Array, "m m"]:
    """Row i minimises sum_j V_j x_j^2 + |h_i - sum_j x_j h_j|^2 on the simplex.

    This is the quadratic program x' (diag(V) + P_i) x of FedPAC, whose P_i has the entries
    <h_i - h_j, h_i - h_l>, for rows that sum to one. So one Gram matrix serves all rows. The mean
    of all h is subtracted first, which changes no h_i - sum_j x_j h_j: what all clients share would
    be the largest eigenvalue by far, and make the steps too short. The program is solved by
    accelerated projected gradients with restarts, for entries from 1e-9 to 1e9.

    Args:
      variances: V_j, of the estimates of the clients' feature means, 0 or more [M].
      means: h_j, flat [M, F].
      reported: the others get no weight [M]; where nobody has reported, rows are of the identity.
        None: all.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> means = jnp.array([[0.0], [0.0], [9.0]])
      >>> rows = combination_rows(jnp.ones(3), means)
      >>> rows[0].round(1).tolist()
      [0.5, 0.5, 0.0]
    """
    clients = variances.size
    reported = jnp.ones(clients, bool) if reported is None else reported
    # A client that tells what cannot be has told nothing.
    reported = reported & jnp.isfinite(variances) & jnp.isfinite(means).all(axis=1)
    variances = jnp.where(reported, variances, 0.0)
    means = jnp.where(reported[:, None], means, 0.0)
    common = means.sum(axis=0) / jnp.maximum(reported.sum(), 1)
    means = jnp.where(reported[:, None], means - common[None], 0.0)
    # In units of the largest, so that the largest entries of the problem are near 1.
    deviations = root(jnp.maximum(variances, 0.0))
    largest = jnp.maximum(jnp.abs(means).max(initial=0.0), deviations.max())
    unit = jnp.where(largest > 0, largest, 1.0)
    scaled = means / unit
    spread = (deviations / unit) ** 2
    gram = jnp.matmul(scaled, scaled.T, precision="highest")
    # A bound of the largest eigenvalue of half the Hessian.
    bound = spread.max() + jnp.abs(gram).sum(axis=1).max()
    rate = 1 / jnp.where(bound > 0, bound, 1.0)

    def project(rows: Float[Array, "m m"]) -> Float[Array, "m m"]:
        return project_rows(jnp.where(reported[None], rows, -9.0))

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        rows, point, momentum, _, number = carry
        grads = point * spread[None] + jnp.matmul(point, gram, precision="highest") - gram
        new = project(point - rate * grads)
        change = new - rows
        # A row restarts where the step goes against the momentum.
        against = jnp.sum((point - new) * change, axis=1) > 0
        next_momentum = (1 + jnp.sqrt(1 + 4 * momentum**2)) / 2
        factor = jnp.where(against, 0.0, (momentum - 1) / next_momentum)
        momentum = jnp.where(against, 1.0, next_momentum)
        return new, new + factor[:, None] * change, momentum, jnp.abs(change).max(), number + 1

    def unsettled(carry: tuple[Array, ...]) -> Array:
        return (carry[3] > 1e-7) & (carry[4] < MOST_STEPS)

    start = project(jnp.eye(clients))
    begin = (start, start, jnp.ones(clients), jnp.full((), jnp.inf), jnp.zeros((), jnp.int32))
    rows = lax.while_loop(unsettled, step, begin)[0]
    return jnp.where(reported.any(), rows, jnp.eye(clients))
