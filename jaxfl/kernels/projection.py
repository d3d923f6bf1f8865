"""Projections of rows onto the probability simplex, with and without caps.

min_x |x - v|^2 subject to 1'x = 1, x >= 0 is solved by a shift of each row, without negative
entries. With a cap on each entry, 0 <= x <= c, a bisection finds the shift.
"""

import warnings

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxfl.core.options import checked


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
