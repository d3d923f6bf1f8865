"""Clusters split in two by the cosines of their members' updates (CFL: Sattler et al., 2020)."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int


def bipartition(
    similarity: Float[Array, "m m"], cluster: Int[Array, "m"], ids: Int[Array, "m"]
) -> Bool[Array, "m"]:
    """Who leaves if each cluster is cut in two such that the largest similarity across is smallest (Algorithm 1).

    This is single linkage down to two groups: the largest spanning tree of each cluster less its
    weakest edge. That edge is the smallest bottleneck, the weakest link on the best path, of all
    pairs; and who is beyond it from one member is on the other side. All clusters are cut at once,
    with no list of members. Of pairs that tie for the weakest edge, all are cut, and the side
    without the smallest id is one group.

    Args:
      similarity: symmetric [M, M].
      cluster: of each client [M].
      ids: of the clients, all different [M]; the side of the smallest stays.

    Returns:
      Who leaves [M]; nobody of a cluster of one.
    """
    same = cluster[:, None] == cluster[None]
    linked = jnp.where(same, similarity, -jnp.inf)
    linked = jnp.where(jnp.eye(ids.size, dtype=bool), jnp.inf, linked)

    def through(k: Array, best: Float[Array, "m m"]) -> Float[Array, "m m"]:
        return jnp.maximum(best, jnp.minimum(best[:, k][:, None], best[k][None]))

    bottleneck = lax.fori_loop(0, ids.size, through, linked)
    weakest = jnp.min(jnp.where(same, bottleneck, jnp.inf), axis=1)  # the same for all members
    first = jnp.argmin(jnp.where(same, ids[None], jnp.iinfo(ids.dtype).max), axis=1)
    to_first = jnp.take_along_axis(bottleneck, first[:, None], axis=1)[:, 0]
    return (to_first <= weakest) & jnp.isfinite(weakest)


def split(
    cluster: Int[Array, "m"],
    leaves: Bool[Array, "m"],
    wanted: Bool[Array, "k"],
    free: Int[Array, ""],
) -> tuple[Int[Array, "m"], Int[Array, "k"], Int[Array, ""]]:
    """New clusters for those who leave, numbered from the first free one on, as long as there are numbers.

    Args:
      cluster: of each client [M].
      leaves: who leaves if its cluster splits [M].
      wanted: which of the K clusters split [K].
      free: clusters so far.

    Returns:
      Clusters [M]; of each cluster the one that it was before [K]; clusters now.
    """
    K = wanted.size
    number = free + jnp.cumsum(wanted) - 1  # of the other half of each cluster that splits
    splits = wanted & (number < K)
    after = jnp.where(splits[cluster] & leaves, number[cluster], cluster)
    parent = jnp.arange(K).at[jnp.where(splits, number, K)].set(jnp.arange(K), mode="drop")
    return after.astype(cluster.dtype), parent, free + jnp.count_nonzero(splits).astype(free.dtype)
