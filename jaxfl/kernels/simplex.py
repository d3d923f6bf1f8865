"""Projection of rows onto the probability simplex: the exact solution of pFedGraph's quadratic program.

min_x |x - v|^2 subject to 1'x = 1, x >= 0 has an identity quadratic, so its solution is the Euclidean projection of v:
a sort and a threshold (optax has it), with no iterations. With a cap on each edge, 0 <= x <= c, no closed form exists.
"""

import warnings

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float


def project_rows(rows: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """The nearest point of the probability simplex to each row, exact up to rounding: [R, M] -> [R, M]."""
    # A common shift does not change the projection, and entries near zero keep their digits.
    return jax.vmap(optax.projections.projection_simplex)(rows - rows.max(axis=1, keepdims=True))


def project_capped_rows(rows: Float[Array, "r m"], caps: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """The nearest point to each row with 0 <= x <= caps and sum 1, by jaxopt's bisection, then one exact step.

    Args:
      rows: [R, M].
      caps: the largest weight of each edge [R, M]. A row whose caps sum to less than 1 has no solution: its caps are
        raised in proportion until they do.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # jaxopt says on import that it is no longer maintained
        from jaxopt.projection import projection_box_section

    def project(row: Float[Array, "m"], cap: Float[Array, "m"]) -> Float[Array, "m"]:
        cap = cap / jnp.minimum(cap.sum(), 1.0)
        zero, one = jnp.zeros_like(row), jnp.ones_like(row)
        x = projection_box_section(row, (zero, cap, one, 1.0))
        # The bisection tells which weights are free; their common shift then follows from the sum.
        free = (x > 0) & (x < cap)
        shift = (1 - jnp.sum(jnp.where(x >= cap, cap, 0.0)) - jnp.sum(jnp.where(free, row, 0.0))) / jnp.maximum(
            jnp.count_nonzero(free), 1
        )
        return jnp.where(free, jnp.clip(row + shift, 0.0, cap), x)

    return jax.vmap(project)(rows, caps)
