"""Weights of a reversible Markov chain with a given stationary distribution: pFedCCG's program.

The weights are W = diag(1 / q) K for a symmetric K >= 0 with K 1 = q. Such a chain is reversible,
and q is its stationary distribution: the mean of all models with weights q stays where it is.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from jaxfl.core.options import checked
from jaxfl.core.types import Scalar
from jaxfl.kernels.mixing import possible_sizes

# Newton steps for the multipliers of the row sums; fewer than ten are usual.
MOST_STEPS = 60
# Halvings of a step that is too long.
HALVINGS = 12


@checked
def label_similarity(counts: Shaped[Array, "m k"]) -> Float[Array, "m m"]:
    """One minus the Jensen-Shannon divergence, in bits, of the clients' label distributions.

    Args:
      counts: numbers of examples of each class [M, K], see `possible_sizes`.

    Returns:
      Symmetric [M, M]: 1 for equal distributions, 0 for distributions without a common class, and
      for a client without examples beside one that has some.

    Example:
      >>> label_similarity(jnp.array([[5, 5, 0], [0, 0, 9], [1, 1, 0]])).tolist()
      [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """
    counts = possible_sizes(counts)
    # Relative to the largest, so that the sum does not overflow.
    largest = counts.max(axis=1, keepdims=True)
    relative = counts / jnp.where(largest > 0, largest, 1.0)
    shares = relative / jnp.maximum(relative.sum(axis=1, keepdims=True), 1.0)
    entropies = _entropy(shares)

    def row(one: Float[Array, "k"]) -> Float[Array, "m"]:
        # The entropy of the mean of two distributions, less the mean of their entropies.
        divergence = _entropy((shares + one[None]) / 2) - (entropies + _entropy(one)) / 2
        return jnp.clip(1 - divergence, 0.0, 1.0)

    known = largest > 0
    return jnp.where(known == known.T, lax.map(row, shares), 0.0)


def _entropy(shares: Float[Array, "*m k"]) -> Float[Array, "*m"]:
    positive = shares > 0
    return -jnp.sum(jnp.where(positive, shares * jnp.log2(jnp.where(positive, shares, 1.0)), 0), -1)


def strength_of_round(
    number: Scalar, first: Scalar, rise: Scalar, middle: Scalar, width: Scalar
) -> Float[Array, ""]:
    """The strength of collaboration in a round: first + rise / (1 + exp((middle - t) / width)).

    Args:
      number: t, the number of the round, from 0.
      first: the strength long before the middle.
      rise: by how much it grows.
      middle: the round in which it has grown by half.
      width: how many rounds the growth takes; e times as many make it as much slower.

    Example:
      >>> round(strength_of_round(25, 0.2, 0.2, 25, 7).item(), 3)
      0.3
    """
    return first + rise * jax.nn.sigmoid((number - middle) / jnp.asarray(width, float))


@checked
def reversible_rows(
    similarity: Float[Array, "m m"], sizes: Shaped[Array, "m"], strength: Scalar
) -> Float[Array, "m m"]:
    """The weights W = diag(1 / q) K of pFedCCG, with its quadratic program solved exactly.

    K minimises sum_ij K_ij^2 / q_i - 2 a sum_ij S_ij K_ij among all symmetric K >= 0 with K 1 = q.
    With a = 0 each row of W is q. See `transport_plan` for the solution and its derivative.

    Args:
      similarity: S, at most 1, with ones on the diagonal [M, M].
      sizes: numbers of examples [M]; q are their shares. A client with size 0 takes no part: its
        row is that of the identity, and the others give it no weight.
      strength: a, 0 or more.

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> similarity = jnp.array([[1.0, 0.0], [0.0, 1.0]])
      >>> reversible_rows(similarity, jnp.array([5, 5]), 0.5).tolist()
      [[0.75, 0.25], [0.25, 0.75]]
    """
    sizes = possible_sizes(sizes)
    present = sizes > 0
    q = sizes / jnp.where(present.any(), sizes.sum(), 1.0)
    plan = transport_plan(strength * similarity, q)
    rows = plan / jnp.maximum(plan.sum(axis=1, keepdims=True), jnp.finfo(plan.dtype).tiny)
    return jnp.where(present[:, None], rows, jnp.eye(q.size))


@checked
def transport_plan(gain: Float[Array, "m m"], q: Float[Array, "m"]) -> Float[Array, "m m"]:
    """The symmetric K >= 0 with K 1 = q that minimises sum_ij K_ij^2 / q_i - 2 sum_ij g_ij K_ij.

    With h_ij = (1 / q_i + 1 / q_j) / 2 the first sum is that of h_ij K_ij^2, so that K has the form
    max(g_ij + (l_i + l_j) / 2, 0) / h_ij, with one multiplier l_i for each row sum. The multipliers
    minimise a convex function with the gradient K 1 - q, which is piecewise linear. Newton's method
    finds them, with steps that are shortened where they pass the minimum. The derivative is that of
    the equations K 1 = q for the entries that are positive.

    Args:
      gain: g, with a diagonal that is at least as large as the rest [M, M]. As K is symmetric, only
        (g + g') / 2 counts.
      q: marginals [M], 0 or more. Where q is 0 the row and the column of K are 0.

    Example:
      >>> transport_plan(jnp.zeros((2, 2)), jnp.array([0.25, 0.75])).round(4).tolist()
      [[0.0625, 0.1875], [0.1875, 0.5625]]
    """
    return _optimal_plan(gain, q)


@jax.custom_jvp
def _optimal_plan(gain: Float[Array, "m m"], q: Float[Array, "m"]) -> Float[Array, "m m"]:
    wide = jnp.promote_types(gain.dtype, q.dtype)
    gain, q = gain.astype(wide), q.astype(wide)
    setup = _program(gain, q)

    def newton(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        multipliers, _, step = carry
        plan = _plan(setup, multipliers)
        excess = plan.sum(axis=1) - q
        move = -_solve(setup, plan > 0, excess)

        def slope(length: Scalar) -> Array:
            """The derivative of the dual along the step; it grows with the length."""
            return move @ (_plan(setup, multipliers + length * move).sum(axis=1) - q)

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) / 2
            uphill = slope(middle) > 0
            return jnp.where(uphill, low, middle), jnp.where(uphill, middle, high)

        ends = (jnp.zeros((), wide), jnp.ones((), wide))
        low, _ = lax.fori_loop(0, HALVINGS, halve, ends)
        short = slope(1.0) > 0.1 * jnp.abs(move @ excess)
        multipliers = multipliers + jnp.where(short, low, 1.0) * move
        residual = _plan(setup, multipliers).sum(axis=1) - q
        return multipliers, jnp.abs(residual * setup.inverse).max(), step + 1

    def wrong(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[1] > 1e-6) & (carry[2] < MOST_STEPS)

    # With these multipliers all entries on the diagonal are positive: 1 - g_ii solves K = diag(q).
    start = 1 - jnp.diagonal(gain)
    begin = (start, jnp.full((), jnp.inf, gain.dtype), jnp.zeros((), jnp.int32))
    return _plan(setup, lax.while_loop(wrong, newton, begin)[0])


class _Program(NamedTuple):
    """The quadratic program, with ones in place of what a client without mass divides by."""

    gain: Float[Array, "m m"]
    # 1 / q, or 0 where q is 0
    inverse: Float[Array, "m"]
    # h [M, M]
    cost: Float[Array, "m m"]
    # the pairs with mass
    pairs: Bool[Array, "m m"]


def _program(gain: Float[Array, "m m"], q: Float[Array, "m"]) -> _Program:
    present = q > 0
    inverse = jnp.where(present, 1 / jnp.where(present, q, 1.0), 0.0)
    pairs = present[:, None] & present[None]
    cost = jnp.where(pairs, (inverse[:, None] + inverse[None]) / 2, 1.0)
    return _Program((gain + gain.T) / 2, inverse, cost, pairs)


def _plan(setup: _Program, multipliers: Float[Array, "m"]) -> Float[Array, "m m"]:
    above = setup.gain + (multipliers[:, None] + multipliers[None]) / 2
    return jnp.where(setup.pairs, jnp.maximum(above, 0.0) / setup.cost, 0.0)


def _solve(
    setup: _Program, active: Bool[Array, "m m"], right: Float[Array, "m"]
) -> Float[Array, "m"]:
    """The change of the multipliers that changes the row sums by `right`.

    The equations are scaled by the square roots of q.
    """
    rates = jnp.where(active, 0.5 / setup.cost, 0.0)
    scale = jnp.sqrt(setup.inverse)
    matrix = (jnp.diag(rates.sum(axis=1)) + rates) * scale[:, None] * scale[None]
    alone = jnp.where(jnp.diagonal(matrix) > 0, 1e-7 * jnp.diagonal(matrix), 1.0)
    return scale * jnp.linalg.solve(matrix + jnp.diag(alone), scale * right)


@_optimal_plan.defjvp
def _derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    gain, q = primals
    gain_change, q_change = tangents
    plan = _optimal_plan(gain, q)
    setup = _program(gain, q)
    active = plan > 0
    inverse_change = -q_change * setup.inverse**2
    cost_change = (inverse_change[:, None] + inverse_change[None]) / 2
    # The change of K with the multipliers fixed, and then that with K 1 = q kept.
    gain_change = (gain_change + gain_change.T) / 2
    direct = jnp.where(active, (gain_change - plan * cost_change) / setup.cost, 0.0)
    move = _solve(setup, active, q_change - direct.sum(axis=1))
    both = (move[:, None] + move[None]) / 2
    return plan, direct + jnp.where(active, both / setup.cost, 0.0)
