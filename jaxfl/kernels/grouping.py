"""Groups of models that point the same way."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def group(products: Float[Array, "m m"], groups: int, steps: int = 10) -> Int[Array, "m"]:
    """k-means in a Gram matrix, from seeds that are far from each other; draws no random number.

    The first seed is the model least like all others, each further one that least like the seeds so
    far.

    Args:
      products: inner products of all pairs of models, or their cosines [M, M].
      groups: how many there may be; with fewer different models some stay empty.
      steps: of Lloyd's algorithm.
    """
    seeds = [products.sum(axis=1).argmin()]
    while len(seeds) < groups:
        seeds.append(products[:, jnp.stack(seeds)].max(axis=1).argmin())
    first = jnp.arange(products.shape[0])[:, None] == jnp.stack(seeds)[None]  # [M, groups]

    def nearest(member: Array) -> Int[Array, "m"]:
        count = jnp.count_nonzero(member, axis=0)
        cross = jnp.matmul(
            products, member / jnp.maximum(count, 1)[None], precision=jax.lax.Precision.HIGHEST
        )
        square = jnp.sum(member * cross, axis=0) / jnp.maximum(count, 1)  # of each centre's length
        return jnp.argmin(jnp.where(count > 0, square, jnp.inf)[None] - 2 * cross, axis=1)

    def lloyd(_, ids: Int[Array, "m"]) -> Int[Array, "m"]:
        return nearest(ids[:, None] == jnp.arange(groups)[None])

    return jax.lax.fori_loop(0, steps, lloyd, nearest(first))
