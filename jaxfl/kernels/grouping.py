"""Groups of models that point in the same direction."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def group(products: Float[Array, "m m"], groups: int, steps: int = 10) -> Int[Array, "m"]:
    """K-means in a Gram matrix from seeds that are far apart; draws no random numbers.

    The first seed is the model least similar to all others, each further seed the model least
    similar to the seeds so far.

    Args:
      products: inner products of all pairs of models, or their cosines [M, M].
      groups: how many groups there may be; with fewer distinct models some stay empty.
      steps: of Lloyd's algorithm.

    Returns:
      The group of each model [M].

    Example:
      >>> models = jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
      >>> group(models @ models.T, 2).tolist()
      [0, 1, 1]
    """
    seeds = [products.sum(axis=1).argmin()]
    while len(seeds) < groups:
        seeds.append(products[:, jnp.stack(seeds)].max(axis=1).argmin())
    first = jnp.arange(products.shape[0])[:, None] == jnp.stack(seeds)[None]

    def nearest(member: Array) -> Int[Array, "m"]:
        count = jnp.count_nonzero(member, axis=0)
        centres = member / jnp.maximum(count, 1)[None]
        # |x - c|^2 = |c|^2 - 2 x'c, and |x|^2, which is the same for all centres.
        cross = jnp.matmul(products, centres, precision=jax.lax.Precision.HIGHEST)
        square = jnp.sum(member * cross, axis=0) / jnp.maximum(count, 1)
        return jnp.argmin(jnp.where(count > 0, square, jnp.inf)[None] - 2 * cross, axis=1)

    def lloyd(_, ids: Int[Array, "m"]) -> Int[Array, "m"]:
        return nearest(ids[:, None] == jnp.arange(groups)[None])

    return jax.lax.fori_loop(0, steps, lloyd, nearest(first))
