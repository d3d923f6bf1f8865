"""Rows of a collaboration graph as solutions of quadratic programs on the probability simplex.

pFedGraph's program has an identity quadratic, so its solution is a projection (`projection`). That
of measured bias and variance weighs the squares, and its solution is a water filling.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.types import Scalar
from jaxfl.kernels.projection import (
    capped_rows_by_jaxopt,
    project_capped_rows,
    project_rows,
)
from jaxfl.kernels.similarity import LARGEST_SQUARE, root, squared_differences

Solver = Literal["projection", "jaxopt", "none"]


@checked
def collaboration_rows(
    similarity: Float[Array, "m m"],
    prior: Float[Array, "m"],
    alpha: Scalar | None,
    form: Literal["code", "paper"],
    solver: Solver = "projection",
    caps: Float[Array, "*mm"] | float | None = None,
) -> Float[Array, "m m"]:
    """Rows of pFedGraph's collaboration graph.

    Ye et al., ICML 2023, https://proceedings.mlr.press/v202/ye23b.html. "paper" is equation (4),
    min_w |w - p|^2 - alpha s'w; "code" is what its authors' code solves, min_w alpha |w - p|^2 -
    s'w, whose alpha is one over the paper's. Both are on the simplex: 1'w = 1, w >= 0.

    With equal sizes, similarity 1 within a group of m clients and c to all others, "code" gives the
    others no weight exactly if c <= 1 - 2 alpha / m. So a client without anyone else of its group
    in the cohort (m = 1) mixes with other groups unless alpha < (1 - c) / 2, and with the default
    alpha = .08 M groups of less than 16 % of the cohort mix, however different they are.
    `alpha_for_groups` gives an alpha that tells smaller groups apart.

    Args:
      similarity: s, row by row [M, M].
      prior: p, relative sizes [M].
      alpha: positive. None: .08 M in the "code" form, .8 in the "paper" form.
      form: which term alpha multiplies.
      solver: "projection", exact; "jaxopt", its bisection, to compare with, which has no
        derivative; "none": the similarities themselves are the weights (Table 8, "only
        similarity"), where negative ones count as 0 and a row without a positive one keeps its own
        model.
      caps: the largest weight of an edge, one for all or [M, M]; None for no caps.

    Returns:
      Row-stochastic [M, M].

    Raises:
      InputError: caps are given, but the solver does not take them; or a derivative of jaxopt's
        projection is asked for.

    Example:
      >>> prior = jnp.array([0.5, 0.5])
      >>> collaboration_rows(jnp.array([[1.0, 0.5], [0.5, 1.0]]), prior, 1.0, "paper").tolist()
      [[0.625, 0.375], [0.375, 0.625]]
    """
    check(
        caps is None or solver != "none",
        "similarities that are the weights have no caps: choose solver=projection, or no caps",
    )
    if solver == "none":
        positive = jnp.maximum(similarity, 0.0)
        # Relative to the largest, so that the sum neither overflows nor vanishes.
        largest = positive.max(axis=1, keepdims=True)
        relative = positive / jnp.where(largest > 0, largest, 1.0)
        weights = relative / jnp.maximum(relative.sum(axis=1, keepdims=True), 1.0)
        return jnp.where(largest > 0, weights, jnp.eye(prior.size))
    if alpha is None:
        alpha = 0.08 * prior.size if form == "code" else 0.8
    # (4): the minimum is the projection of p + alpha s / 2. A shift of a row changes nothing, and
    # similarities less the largest of their row leave p its digits where they are scaled up.
    below = similarity - similarity.max(axis=1, keepdims=True)
    scaled_up = below * (0.5 / alpha if form == "code" else 0.5 * alpha)
    target = prior[None] + jnp.maximum(scaled_up, -LARGEST_SQUARE)
    if solver == "projection" and caps is None:
        return project_rows(target)
    limits = jnp.asarray(1.0 if caps is None else caps, target.dtype)
    solve = project_capped_rows if solver == "projection" else capped_rows_by_jaxopt
    return solve(target, jnp.broadcast_to(limits, target.shape))


@checked
def alpha_for_groups(
    similarity: Float[Array, "m m"], group: int, reported: Bool[Array, "m"] | None = None
) -> Float[Array, ""]:
    """An alpha of the "code" form that tells groups of clients apart, for cohorts of any size.

    alpha = m (1 - c) / 2, where c is the median similarity of two clients. With equal sizes, a
    client in a group of m or more clients that have similarity 1 gives no weight to clients of
    similarity c or less. With similarity q < 1 within the groups the same holds for groups of
    m (1 - c) / (q - c) clients. Without groups, where all similarities are c, the weight of each
    client is near its p, and its own is 1 / m larger. Not from the paper.

    Args:
      similarity: [M, M].
      group: m, the size of the smallest group.
      reported: whose similarities count [M]; None: all.

    Example:
      >>> s = jnp.kron(jnp.eye(3), jnp.ones((4, 4)))
      >>> alpha_for_groups(s, 4).item()
      2.0
    """
    M = len(similarity)
    reported = jnp.ones(M, bool) if reported is None else reported
    counts = reported[:, None] & reported[None] & ~jnp.eye(M, dtype=bool)
    typical = jnp.nanmedian(jnp.where(counts, similarity, jnp.nan))
    typical = jnp.where(jnp.isnan(typical), 0.0, typical)
    # Where everyone is alike any alpha serves, but not 0.
    return jnp.maximum(group * (1 - typical) / 2, 1e-3)


@checked
def measured_rows(
    first: Stack, second: Stack, reported: Bool[Array, "m"] | None = None
) -> Float[Array, "m m"]:
    """Rows of a collaboration graph from measured bias and variance, without a hyper-parameter.

    Client i wants the mixture sum_j w_j m_j that is nearest to the model that it would have with
    endless data. Its expected squared distance is a variance, sum_j w_j^2 v_j, and a squared bias,
    |sum_j w_j (mu_j - mu_i)|^2, which is at most sum_j w_j b_ij with b_ij = |mu_j - mu_i|^2. Each
    client trains on two halves of its examples, a_j and c_j, and m_j is their mean. Then
    |a_j - c_j|^2 / 4 has the variance of m_j as its expectation; v_j is the mean of it and of the
    mean over all clients, because one difference is an uncertain measure. The mean of
    |a_i - a_j|^2, |a_i - c_j|^2, |c_i - a_j|^2 and |c_i - c_j|^2 exceeds b_ij by 2 v_i + 2 v_j.
    It counts less two standard errors of this mean of four, so that a distance which may be chance
    keeps nobody apart.
    min_w sum_j v_j w_j^2 + b_ij w_j on the simplex has the solution of a water filling:
    w_j = max(0, (t - b_ij) / (2 v_j)), with t so that the sum is 1.

    Not pFedGraph's. The same trade is made, with known distances, by Chayti et al. 2021,
    https://arxiv.org/abs/2111.05968, and Even, Massoulié and Scaman 2022,
    https://arxiv.org/abs/2201.13097.

    Args:
      first: models a [M, ...].
      second: models c [M, ...].
      reported: whose models count [M]. The others have no weight in the rows of those who count.
        None: all.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> first = jnp.array([[0.0, 2.0], [0.0, 2.0], [60.0, 1.0]])
      >>> second = jnp.array([[2.0, 0.0], [2.0, 0.0], [61.0, 3.0]])
      >>> measured_rows(first, second).round(2).tolist()
      [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    M = jax.tree.leaves(first)[0].shape[0]
    reported = jnp.ones(M, bool) if reported is None else reported
    both = jax.tree.map(lambda a, c: jnp.concatenate([a, c]), first, second)
    # From differences: an enormous model takes no digits of the others.
    distances = squared_differences(both)
    blocks = (distances / jnp.maximum(distances.max(), 1e-30)).reshape(2, M, 2, M)
    variance = jnp.diagonal(blocks[0, :, 1]) / 4
    # A variance from one difference is uncertain: it counts as much as the mean of all.
    variances = jnp.where(reported, variance, 0.0)
    typical = variances.sum() / jnp.maximum(reported.sum(), 1)
    variance = jnp.maximum((variance + typical) / 2, 1e-30)
    four = blocks.transpose(0, 2, 1, 3).reshape(4, M, M)
    certain = four.mean(axis=0) - root(jnp.var(four, axis=0, ddof=1))
    bias = certain - 2 * (variance[:, None] + variance[None])
    bias = jnp.where(reported[None], jnp.maximum(bias, 0.0), jnp.inf)
    bias = jnp.where(jnp.eye(M, dtype=bool), 0.0, bias)
    return fill_rows(bias, variance)


@checked
def fill_rows(costs: Float[Array, "r m"], curvature: Float[Array, "m"]) -> Float[Array, "r m"]:
    """The rows w on the simplex that minimise sum_j v_j w_j^2 + b_j w_j, exact up to rounding.

    A water filling: w_j = max(0, (t - b_j) / (2 v_j)). The level t falls from that of all entries
    as entries above it are taken out, until none is, which takes finitely many steps.

    Args:
      costs: b [R, M]; an infinite one has no weight. At least one of a row is finite.
      curvature: v [M], positive.

    Returns:
      Row-stochastic [R, M].

    Example:
      >>> fill_rows(jnp.array([[0.0, 0.0, 9.0]]), jnp.array([1.0, 3.0, 1.0])).tolist()
      [[0.75, 0.25, 0.0]]
    """
    # Costs in units of the smallest curvature, less the lowest of the row.
    unit = curvature.min()
    rate = 0.5 * unit / curvature[None]
    # An infinite cost would make derivatives by the unit NaN.
    finite = jnp.isfinite(costs)
    below = (jnp.where(finite, costs, 0.0) - costs.min(axis=1, keepdims=True)) / unit

    def level(counts: Array) -> Array:
        total = jnp.sum(jnp.where(counts, rate, 0.0), axis=1, keepdims=True)
        cost = jnp.sum(jnp.where(counts, rate * below, 0.0), axis=1, keepdims=True)
        return (1 + cost) / total

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        counts, _ = carry
        return counts & (below < level(counts)), counts

    counts = finite & jnp.isfinite(below)
    start = (counts & (below < level(counts)), counts)
    counts, _ = lax.while_loop(lambda carry: (carry[0] != carry[1]).any(), step, start)
    weights = jnp.where(counts, jnp.maximum(level(counts) - below, 0.0) * rate, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)
