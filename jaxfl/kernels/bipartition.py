"""Clusters that split in two by the cosines of their members' updates.

CFL: Sattler et al., 2020, https://arxiv.org/abs/1910.01991.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core.options import checked


@checked
def bipartition(
    similarity: Float[Array, "m m"],
    cluster: Int[Array, "m"],
    ids: Int[Array, "m"] | None = None,
) -> Bool[Array, "m"]:
    """Which clients leave if each cluster is cut where its sides are least similar (Algorithm 1).

    The cut of a cluster makes the largest similarity across it smallest. This is single linkage
    down to two groups: the largest spanning tree of the cluster (Prim, 1957,
    https://doi.org/10.1002/j.1538-7305.1957.tb01515.x) less its weakest edge, and whoever a member
    reaches through it alone is on the other side. All clusters are cut at once, without lists of
    members, in O(M^2). If several pairs tie for the weakest edge all of them are cut, and the
    groups without the smallest id are one side.

    Args:
      similarity: symmetric [M, M].
      cluster: of each client [M].
      ids: of the clients, all different [M]; the side of the smallest stays. None: their places.

    Returns:
      Which clients leave [M]; none of a cluster of one.

    Example:
      >>> similarity = jnp.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
      >>> bipartition(similarity, jnp.zeros(3, int)).tolist()
      [False, False, True]
    """
    M = cluster.size
    # In the order of the ids, so that the first member of a cluster has the smallest.
    order = jnp.arange(M) if ids is None else jnp.argsort(ids)
    of = cluster[order]
    linked = jnp.where(of[:, None] == of[None], similarity[order][:, order], -jnp.inf)

    # Prim's algorithm: the tree takes in the model that is linked to it best, or the first of a
    # new cluster if nothing is linked to it.
    def take_in(carry: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
        outside, link, path, edges, to_first = carry
        model = jnp.argmax(jnp.where(outside, link, -jnp.inf))
        model = jnp.where(outside[model], model, jnp.argmax(outside))
        opens = link[model] == -jnp.inf
        edge = jnp.where(opens, jnp.inf, link[model])
        # The weakest link on its path from the first of its cluster.
        weakest = jnp.where(opens, jnp.inf, jnp.minimum(edge, path[model]))
        outside = outside.at[model].set(False)
        edges, to_first = edges.at[model].set(edge), to_first.at[model].set(weakest)
        better = linked[model] > link
        path = jnp.where(better, weakest, path)
        return (outside, jnp.maximum(link, linked[model]), path, edges, to_first), None

    infinite = jnp.full(M, jnp.inf, similarity.dtype)
    start = (jnp.ones(M, bool), -infinite, infinite, infinite, infinite)
    (*_, edges, to_first), _ = lax.scan(take_in, start, None, length=M)
    # The weakest edge of the tree of each member's cluster.
    weakest = jnp.min(jnp.where(of[:, None] == of[None], edges[None], jnp.inf), axis=1)
    leaves = (to_first <= weakest) & jnp.isfinite(weakest)
    return jnp.zeros(M, bool).at[order].set(leaves)


@checked
def split_clusters(
    cluster: Int[Array, "m"],
    leaves: Bool[Array, "m"],
    candidates: Bool[Array, "k"],
    free: Int[Array, ""],
) -> tuple[Int[Array, "m"], Int[Array, "k"], Int[Array, ""]]:
    """New clusters for the clients that leave, numbered from the first free number up to K - 1.

    A cluster for which no number is left does not split.

    Args:
      cluster: of each client [M].
      leaves: which clients leave if their cluster splits [M].
      candidates: which of the K clusters should split [K].
      free: the first free number, which is how many clusters there are.

    Returns:
      The cluster of each client [M]; for each cluster the one that it was before [K]; how many
      clusters there are now.

    Example:
      >>> leaves = jnp.array([False, True])
      >>> candidates = jnp.array([True, False, False])
      >>> split_clusters(jnp.array([0, 0]), leaves, candidates, jnp.array(1))[0].tolist()
      [0, 1]
    """
    K = candidates.size
    # The number of the new half of each cluster that splits.
    number = free + jnp.cumsum(candidates) - 1
    splits = candidates & (number < K)
    after = jnp.where(splits[cluster] & leaves, number[cluster], cluster)
    parent = jnp.arange(K).at[jnp.where(splits, number, K)].set(jnp.arange(K), mode="drop")
    return after.astype(cluster.dtype), parent, free + jnp.count_nonzero(splits).astype(free.dtype)


@checked
def descendants(
    cluster: Int[Array, "m"],
    counts: Int[Array, "m"],
    parents: Int[Array, "k"],
    count: Int[Array, ""],
) -> Bool[Array, "m k"]:
    """Which clusters are parts of the one that a client was in when there were `counts` clusters.

    Args:
      cluster: of each client then [M].
      counts: how many clusters there were then [M].
      parents: the cluster from which each of the K clusters has split off, which has a smaller
        number [K].
      count: how many clusters there are now.

    Example:
      >>> both = jnp.array([0, 0])
      >>> descendants(both, jnp.array([1, 2]), jnp.array([0, 0, 1]), jnp.array(3)).tolist()
      [[True, True, True], [True, False, False]]
    """
    numbers = jnp.arange(parents.size)

    def upwards(_: Array, ancestor: Int[Array, "m k"]) -> Int[Array, "m k"]:
        return jnp.where(ancestor >= counts[:, None], parents[ancestor], ancestor)

    start = jnp.broadcast_to(numbers, (cluster.size, parents.size))
    ancestor = lax.fori_loop(0, parents.size, upwards, start)
    return (ancestor == cluster[:, None]) & (numbers < count)[None]
