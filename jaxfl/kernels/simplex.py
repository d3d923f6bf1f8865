"""Projection of rows onto the probability simplex: the exact solution of pFedGraph's quadratic program.

min_x |x - v|^2 subject to 1'x = 1, x >= 0 has an identity quadratic, so its solution is the
Euclidean projection of v: a sort and a threshold (optax has it), with no iterations. With a cap on
each edge, 0 <= x <= c, no closed form exists.
"""

import warnings
from typing import Literal

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int

Solver = Literal["projection", "jaxopt", "none"]


def collaboration_rows(
    similarity: Float[Array, "m m"],
    prior: Float[Array, "m"],
    alpha: float | int | Array | None,
    form: Literal["code", "paper"],
    solver: Solver = "projection",
    caps: Float[Array, "*mm"] | float | None = None,
) -> Float[Array, "m m"]:
    """Rows of pFedGraph's collaboration graph (Ye et al., 2023).

    "paper" is equation (4): min_w |w - p|^2 - alpha s'w; "code" is what its authors' code solves,
    min_w alpha |w - p|^2 - s'w, whose alpha is one over the paper's. Both on the simplex: 1'w = 1,
    w >= 0.

    With equal sizes, similarity 1 within a group of m clients and c to all others, "code" cuts the
    others off exactly if c <= 1 - 2 alpha / m: a client whose group is absent from the cohort (m =
    1) mixes with strangers unless alpha < (1 - c) / 2.

    Args:
      similarity: s, row by row [M, M].
      prior: p, relative sizes [M].
      alpha: positive. None: .08 M in the "code" form, .8 in the "paper" form.
      form: which term alpha multiplies.
      solver: "projection", exact; "jaxopt", which takes caps; "none": the similarities themselves
        are the weights (Table 8, "only similarity"), negative ones count nothing and a row without
        a positive one keeps its own model.
      caps: the largest weight of an edge, one for all or [M, M]; None for none.
    """
    if solver == "none":
        positive = jnp.maximum(similarity, 0.0)
        largest = positive.max(axis=1, keepdims=True)
        shares = positive / jnp.where(
            largest > 0, largest, 1.0
        )  # whose sum neither overflows nor vanishes
        return jnp.where(
            largest > 0,
            shares / jnp.maximum(shares.sum(axis=1, keepdims=True), 1.0),
            jnp.eye(prior.size),
        )
    if alpha is None:
        alpha = 0.08 * prior.size if form == "code" else 0.8
    target = prior[None] + similarity * (0.5 / alpha if form == "code" else 0.5 * alpha)
    if solver == "projection":
        return project_rows(target)
    return project_capped_rows(
        target, jnp.broadcast_to(1.0 if caps is None else caps, target.shape)
    )


def project_rows(rows: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """The nearest point of the probability simplex to each row, exact up to rounding: [R, M] -> [R, M]."""

    def project(row: Float[Array, "m"]) -> Float[Array, "m"]:
        below, places = _descending(row)
        # Who is 1 below the largest has no weight, and no more of it than who is further down.
        return (
            jnp.zeros_like(row)
            .at[places]
            .set(optax.projections.projection_simplex(jnp.maximum(below, -2.0)))
        )

    return jax.vmap(project)(rows)


def project_capped_rows(
    rows: Float[Array, "r m"], caps: Float[Array, "r m"]
) -> Float[Array, "r m"]:
    """The nearest point to each row with 0 <= x <= caps and sum 1, by jaxopt's bisection, then one exact step.

    Args:
      rows: [R, M].
      caps: the largest weight of each edge [R, M]. A row whose caps sum to less than 1 has no
        solution: its caps are raised in proportion until they do.
    """
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # jaxopt says on import that it is no longer maintained
        from jaxopt.projection import projection_box_section

    def project(row: Float[Array, "m"], cap: Float[Array, "m"]) -> Float[Array, "m"]:
        cap = jnp.minimum(cap / jnp.minimum(cap.sum(), 1.0), 1.0)
        # Who stands 1 or more above another has its cap before the other gets anything: a larger
        # step down is as one of 1, with which the bisection has a short way whatever the row.
        below, places = _descending(row)
        steps = jnp.maximum(jnp.diff(below), -1.0)
        row = jnp.zeros_like(row).at[places[1:]].set(jnp.cumsum(steps))
        zero, one = jnp.zeros_like(row), jnp.ones_like(row)
        x = projection_box_section(row, (zero, cap, one, 1.0))
        # The bisection tells which weights are free; their common shift then follows from the sum.
        free = (x > 0) & (x < cap)
        shift = (
            1 - jnp.sum(jnp.where(x >= cap, cap, 0.0)) - jnp.sum(jnp.where(free, row, 0.0))
        ) / jnp.maximum(jnp.count_nonzero(free), 1)
        return jnp.where(free, jnp.clip(row + shift, 0.0, cap), x)

    return jax.vmap(project)(rows, caps)


def _descending(row: Float[Array, "m"]) -> tuple[Float[Array, "m"], Int[Array, "m"]]:
    """A row in descending order less its largest entry, by which no projection changes, and the place of each entry.

    Entries near zero so keep their digits. And they exist but once: a fusion that computes a large
    row again where it is used, rounded otherwise, would take the threshold of one row from another.
    """
    negative, places = lax.sort_key_val(-row, jnp.arange(row.size))
    return negative[0] - negative, places
