"""Projection of rows onto the probability simplex: the exact solution of pFedGraph's problem.

min_x |x - v|^2 subject to 1'x = 1, x >= 0 has an identity quadratic, so its solution is the
Euclidean projection of v: a shift of each row, and no negative entries. With a cap on each edge,
0 <= x <= c, a bisection finds the shift.
"""

import warnings
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.types import Scalar
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
      InputError: caps are given, but the solver does not take them.

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
    similarity: Float[Array, "m m"], reported: Bool[Array, "m"], group: int
) -> Float[Array, ""]:
    """An alpha of the "code" form that tells groups of clients apart, for cohorts of any size.

    alpha = m (1 - c) / 2, where c is the median similarity of two clients. With equal sizes, a
    client in a group of m or more clients that have similarity 1 gives no weight to clients of
    similarity c or less. With similarity q < 1 within the groups the same holds for groups of
    m (1 - c) / (q - c) clients. Without groups, where all similarities are c, the weight of each
    client is near its p, and its own is 1 / m larger. Not from the paper.

    Args:
      similarity: [M, M].
      reported: whose similarities count [M].
      group: m, the size of the smallest group.

    Example:
      >>> s = jnp.kron(jnp.eye(3), jnp.ones((4, 4)))
      >>> alpha_for_groups(s, jnp.ones(12, bool), 4).item()
      2.0
    """
    counts = reported[:, None] & reported[None] & ~jnp.eye(reported.size, dtype=bool)
    typical = jnp.nanmedian(jnp.where(counts, similarity, jnp.nan))
    typical = jnp.where(jnp.isnan(typical), 0.0, typical)
    # Where everyone is alike any alpha serves, but not 0.
    return jnp.maximum(group * (1 - typical) / 2, 1e-3)


@checked
def measured_rows(first: Stack, second: Stack, reported: Bool[Array, "m"]) -> Float[Array, "m m"]:
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

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> first = jnp.array([[0.0, 2.0], [0.0, 2.0], [60.0, 1.0]])
      >>> second = jnp.array([[2.0, 0.0], [2.0, 0.0], [61.0, 3.0]])
      >>> measured_rows(first, second, jnp.ones(3, bool)).round(2).tolist()
      [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    M = reported.size
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
    below = (costs - costs.min(axis=1, keepdims=True)) / unit

    def level(counts: Array) -> Array:
        total = jnp.sum(jnp.where(counts, rate, 0.0), axis=1, keepdims=True)
        cost = jnp.sum(jnp.where(counts, rate * below, 0.0), axis=1, keepdims=True)
        return (1 + cost) / total

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        counts, _ = carry
        return counts & (below < level(counts)), counts

    counts = jnp.isfinite(below)
    start = (counts & (below < level(counts)), counts)
    counts, _ = lax.while_loop(lambda carry: (carry[0] != carry[1]).any(), step, start)
    weights = jnp.where(counts, jnp.maximum(level(counts) - below, 0.0) * rate, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


@checked
def project_rows(rows: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """The nearest point of the probability simplex to each row, exact up to rounding.

    It is max(row - t, 0), with the threshold t that gives the sum 1. Newton's method finds t in
    finitely many steps, without a sort (Michelot, 1986, https://doi.org/10.1007/BF00938486).

    Args:
      rows: [R, M].

    Returns:
      Row-stochastic [R, M].

    Example:
      >>> project_rows(jnp.array([[1.0, 0.5, -4.0]])).tolist()
      [[0.75, 0.25, 0.0]]
    """
    return _projection(rows)


@jax.custom_jvp
def _projection(rows: Float[Array, "r m"]) -> Float[Array, "r m"]:

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        below, threshold, count, _ = carry
        # An entry 1 below the largest has no weight, and an entry further below has none either.
        # The loop computes the entries that are used after it, so that they are rounded once: a
        # fusion that computes a large row again may round it otherwise.
        below = jnp.maximum(below, -2.0)
        positive = below > threshold
        now = jnp.count_nonzero(positive, axis=1, keepdims=True)
        total = jnp.sum(jnp.where(positive, below, 0.0), axis=1, keepdims=True)
        return below, jnp.maximum(threshold, (total - 1) / now), now, count

    def unsettled(carry: tuple[Array, ...]) -> Array:
        return (carry[2] != carry[3]).any()

    # Relative to the largest entry, so that entries near it keep their digits.
    below = rows - rows.max(axis=1, keepdims=True)
    column = jnp.zeros_like(below[:, :1])
    count = jnp.zeros(column.shape, int)
    start = (below, column - 1, count, count - 1)
    below, threshold, _, _ = lax.while_loop(unsettled, step, start)
    return jnp.maximum(below - threshold, 0.0)


@_projection.defjvp
def _derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Positive weights follow their entries less the mean; the others stay at 0."""
    weights = _projection(*primals)
    positive = weights > 0
    changes = jnp.where(positive, tangents[0], 0.0)
    count = jnp.count_nonzero(positive, axis=1, keepdims=True)
    mean = changes.sum(axis=1, keepdims=True) / count
    return weights, jnp.where(positive, changes - mean, 0.0)


@checked
def project_capped_rows(
    rows: Float[Array, "r m"], caps: Float[Array, "r m"]
) -> Float[Array, "r m"]:
    """The nearest point to each row with 0 <= x <= caps and sum 1, exact up to rounding.

    It is row - t, cut to 0 and the caps, with the threshold t that gives the sum 1. A bisection
    tells which weights are at 0 and which at their caps, and t follows from the others. The
    function has derivatives by the rows and by the caps, in forward and in reverse mode. Where no
    weight lies between 0 and its cap, and where a cap is 0, those by the caps are one-sided: of
    caps that grow.

    Args:
      rows: [R, M].
      caps: the largest weight of each edge [R, M]. A row whose caps sum to less than 1 has no
        solution: its caps are raised in proportion until they sum to 1.

    Returns:
      Row-stochastic [R, M].

    Example:
      >>> project_capped_rows(jnp.array([[9.0, 1.0, 1.0]]), jnp.full((1, 3), 0.5)).tolist()
      [[0.5, 0.25, 0.25]]
    """
    return _capped(rows, _attainable(caps))


def _attainable(caps: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """Caps up to 1 that sum to 1 or more."""
    total = caps.sum(axis=1, keepdims=True)
    caps = caps / jnp.where(total < 1, total, 1.0)
    return jnp.where(caps >= 1, 1.0, caps)


@jax.custom_jvp
def _capped(rows: Float[Array, "r m"], caps: Float[Array, "r m"]) -> Float[Array, "r m"]:
    wide = jnp.promote_types(rows.dtype, caps.dtype)
    below = jax.vmap(_compact)(rows).astype(wide)
    caps = caps.astype(wide)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        total = jnp.clip(below - middle, 0.0, caps).sum(axis=1, keepdims=True)
        return jnp.where(total > 1, middle, low), jnp.where(total > 1, high, middle)

    # At the highest threshold all weights are 0, and at the lowest one they are at their caps.
    size = below.shape[1]
    high = jnp.zeros_like(below[:, :1])
    low = high - size
    halvings = jnp.finfo(wide).nmant + size.bit_length() + 2
    low, high = lax.fori_loop(0, halvings, halve, (low, high))
    # The bisection tells which weights are free; their threshold then follows from the sum.
    threshold = (low + high) / 2
    free = (below > threshold) & (below < threshold + caps)
    full = jnp.where(below >= threshold + caps, caps, 0.0)
    count = jnp.count_nonzero(free, axis=1, keepdims=True)
    total = jnp.sum(jnp.where(free, below, full), axis=1, keepdims=True)
    exact = jnp.clip(below - (total - 1) / jnp.maximum(count, 1), 0.0, caps)
    return jnp.where(free, exact, full)


@_capped.defjvp
def _derivative_with_caps(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Weights at their caps follow these; free ones follow their entries, with the sum kept."""
    rows, caps = primals
    weights = _capped(rows, caps)
    full = (weights >= caps) & (weights > 0)
    free = (weights > 0) & ~full
    below = jax.vmap(_compact)(rows).astype(weights.dtype)
    # Without a free weight, the threshold rises with the caps until the first of the full weights
    # becomes free, whose entry is the least above its cap.
    highest = jnp.where(full, below - caps, jnp.inf).min(axis=1, keepdims=True)
    any_free = free.any(axis=1, keepdims=True)
    slack = jnp.where(any_free, free, full & (below - caps <= highest))
    threshold = jnp.where(
        any_free, jnp.where(free, below - weights, -jnp.inf).max(axis=1, keepdims=True), highest
    )
    # A weight with the cap 0 follows its cap too, if its entry is above the threshold.
    at_cap = (full & ~slack) | ((caps == 0) & (below > threshold))
    changes = jnp.where(free, tangents[0], jnp.where(at_cap, tangents[1], 0.0))
    count = jnp.count_nonzero(slack, axis=1, keepdims=True)
    mean = changes.sum(axis=1, keepdims=True) / count
    return weights, jnp.where(slack, changes - mean, changes).astype(weights.dtype)


@checked
def capped_rows_by_jaxopt(
    rows: Float[Array, "r m"], caps: Float[Array, "r m"]
) -> Float[Array, "r m"]:
    """`project_capped_rows` by jaxopt's bisection, to compare with; it has no derivative.

    jaxopt is no longer maintained.

    Args:
      rows: [R, M].
      caps: see `project_capped_rows` [R, M].

    Returns:
      Row-stochastic [R, M].

    Example:
      >>> capped_rows_by_jaxopt(jnp.array([[9.0, 1.0, 1.0]]), jnp.full((1, 3), 0.5)).tolist()
      [[0.5, 0.25, 0.25]]
    """
    # jaxopt warns on import that it is no longer maintained.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from jaxopt.projection import projection_box_section

    def project(row: Float[Array, "m"], cap: Float[Array, "m"]) -> Float[Array, "m"]:
        row = _compact(row)
        zero = jnp.zeros_like(row)
        one = jnp.ones_like(row)
        x = projection_box_section(row, (zero, cap, one, 1.0))
        # The bisection tells which weights are free; their common shift then follows from the sum.
        free = (x > 0) & (x < cap)
        at_cap = jnp.sum(jnp.where(x >= cap, cap, 0.0))
        rest = 1 - at_cap - jnp.sum(jnp.where(free, row, 0.0))
        shift = rest / jnp.maximum(jnp.count_nonzero(free), 1)
        return jnp.where(free, jnp.clip(row + shift, 0.0, cap), x)

    return jax.vmap(project)(rows, _attainable(caps))


def _compact(row: Float[Array, "m"]) -> Float[Array, "m"]:
    """A row with the same projection, whose entries lie between 1 - M and 0.

    An entry 1 or more above another has its cap before the other gets anything. So a larger step
    down changes nothing but the length of the bisection, and is cut to 1.
    """
    below, places = _descending(row)
    steps = jnp.maximum(jnp.diff(below), -1.0)
    return jnp.zeros_like(row).at[places[1:]].set(jnp.cumsum(steps))


def _descending(row: Float[Array, "m"]) -> tuple[Float[Array, "m"], Int[Array, "m"]]:
    """A row in descending order less its largest entry, and the place of each entry in the row.

    The shift changes no projection, and entries near zero keep their digits. The result is computed
    once: a fusion that computes a large row again where it is used may round it otherwise, and
    would take the threshold of one row from another.
    """
    negative, places = lax.sort_key_val(-row, jnp.arange(row.size))
    return negative[0] - negative, places
