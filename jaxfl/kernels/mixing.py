"""Aggregation as a matrix: row-stochastic weights [receiver, sender] applied to stacked models."""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped


def mix(weights: Float[Array, "*r m"], stacked: PyTree) -> PyTree:
    """Row r of the result is the sum over m of `weights[r, m]` times model m, leaf by leaf.

    Args:
      weights: [R, M]; R receivers, M senders. A single row [M] makes a single model.
      stacked: models [M, ...].

    Returns:
      Models [R, ...] in the type of the given ones, summed in float32 at full precision on every
      backend.
    """

    def leaf(x: Array) -> Array:
        mixed = jnp.tensordot(weights, x.astype(weights.dtype), axes=1, precision=Precision.HIGHEST)
        return mixed.astype(x.dtype)

    return jax.tree.map(leaf, stacked)


def leave_out(weights: Float[Array, "r m"], heard: Bool[Array, "m"]) -> Float[Array, "r m"]:
    """The weights without the senders that are not heard, each row scaled back to its sum.

    A row that has no other sender stays as it is: it is of the models that stand in their places.

    Args:
      weights: [R, M].
      heard: which senders count [M].
    """
    kept = jnp.where(heard[None], weights, 0.0)
    total = kept.sum(axis=1, keepdims=True)
    scaled = kept * weights.sum(axis=1, keepdims=True) / jnp.where(total > 0, total, 1)
    return jnp.where(heard.all() | (total <= 0), weights, scaled)


def isolate(weights: Float[Array, "m m"], heard: Bool[Array, "m"]) -> Float[Array, "m m"]:
    """`leave_out`, and who is not heard hears nobody: it keeps what stands in its place, the model it started from."""
    return jnp.where(heard[:, None], leave_out(weights, heard), jnp.eye(heard.size))


def size_weights(sizes: Shaped[Array, "m"]) -> Float[Array, "m"]:
    """Each client's share of all examples, p_i = n_i / sum_j n_j; 1 / M for all if there are none.

    Of clients that are heard or not [M] bool: equal shares of those that are.
    """
    sizes = sizes.astype(
        jnp.float32
    )  # whole numbers this side of 2^24, and no overflow beyond 2^31
    total = sizes.sum()
    share = sizes / jnp.maximum(total, 1)
    return jnp.where(total > 0, share, 1 / sizes.shape[0])


def disturbance(key: Key[Array, ""], clients: int, radius: float | Array) -> Float[Array, "m m"]:
    """What to add to mixing weights and to subtract from them, to learn from losses alone how they change.

    Random signs, less their mean in each row so that rows still sum to one, times the radius [M,
    M]. With losses L+ and L- of a row, (L+ - L-) / 2 times the row, over the radius squared, is an
    estimate of the loss's slopes less their mean, unbiased up to the radius squared (simultaneous
    perturbation: Spall, 1992).
    """
    signs = jax.random.rademacher(key, (clients, clients), jnp.float32)
    return radius * (signs - signs.mean(axis=1, keepdims=True))
