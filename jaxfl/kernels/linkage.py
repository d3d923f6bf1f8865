"""Clusters in clusters: the tree of average linkage."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core.options import checked


@checked
def merges(
    distances: Float[Array, "m m"],
    ids: Int[Array, "m"] | None = None,
    counted: Bool[Array, "m"] | None = None,
) -> Int[Array, "m m"]:
    """The clusters after 0, 1, 2, ... merges of the two nearest ones, until one is left.

    The distance of two clusters is the mean distance of their members (UPGMA). Clusters only grow,
    so that the divisions are a tree. Of equally near pairs the first merges. O(M^3).

    Source: Sokal and Michener, A Statistical Method for Evaluating Systematic Relationships, 1958.

    Args:
      distances: symmetric [M, M].
      ids: of the clients, all different [M]. None: their places.
      counted: who is in the tree [M]; each other one stays alone. None: all.

    Returns:
      After s merges the cluster of each client, by a number [s, M]. With n counted clients there
      are n - s clusters of them, and from s = n - 1 on one.

    Example:
      >>> places = jnp.array([0.0, 5.0, 1.0])
      >>> merges(jnp.abs(places[:, None] - places[None])).tolist()
      [[0, 1, 2], [0, 1, 0], [0, 0, 0]]
    """
    M = len(distances)
    counted = jnp.ones(M, bool) if counted is None else counted
    order = jnp.arange(M) if ids is None else jnp.argsort(ids)

    def merge(carry: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], Array]:
        cluster, between, sizes = carry
        one, other = jnp.divmod(jnp.argmin(between), M)
        is_left = jnp.isfinite(between[one, other])
        first, second = jnp.minimum(one, other), jnp.maximum(one, other)
        total = sizes[first] + sizes[second]
        # What is infinite, to itself and to clusters that are no more, stays so.
        mean = (sizes[first] * between[first] + sizes[second] * between[second]) / total
        merged = between.at[first].set(mean).at[:, first].set(mean)
        merged = merged.at[second].set(jnp.inf).at[:, second].set(jnp.inf)
        after = (
            jnp.where(cluster == second, first, cluster),
            merged,
            sizes.at[first].set(total),
        )
        carry = jax.tree.map(lambda new, old: jnp.where(is_left, new, old), after, carry)
        return carry, carry[0]

    inside = counted[:, None] & counted[None] & ~jnp.eye(M, dtype=bool)
    between = jnp.where(inside, distances, jnp.inf)[order][:, order]
    start = (jnp.arange(M), between, jnp.ones(M, between.dtype))
    _, others = lax.scan(merge, start, None, length=M - 1)
    return jnp.concatenate([start[0][None], others])[:, jnp.argsort(order)]
