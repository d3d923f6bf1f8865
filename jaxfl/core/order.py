"""Orders of examples: sorted on most platforms, counted where a sort takes long to compile."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Shaped, UInt32

from jaxfl.core import target

__all__ = ["not_fused", "real_first", "real_only", "shuffled"]

# XLA for TPUs spends 9 seconds of a core on compiling the sort of `shuffled`, and one second on
# counting. Counting takes the square of the length; for longer sequences it would take too long.
COUNTED = 20_000


def shuffled(
    epoch: Int[Array, "l"], bits: UInt32[Array, "l"], example: Int[Array, "l"]
) -> Int[Array, "l"]:
    """The examples, ordered by epoch and within an epoch by their random bits; ties stay in place.

    The order is the same on all platforms.

    Example:
      >>> bits = jnp.array([9, 3, 5, 4], jnp.uint32)
      >>> shuffled(jnp.array([0, 0, 1, 1]), bits, jnp.array([0, 1, 0, 1])).tolist()
      [1, 0, 1, 0]
    """
    if target.platform() != "tpu" or epoch.size > COUNTED:
        return lax.sort((epoch, bits, example), num_keys=2)[2]
    place = jnp.arange(epoch.size)
    earlier = (epoch[None] < epoch[:, None]) | (
        (epoch[None] == epoch[:, None])
        & (
            (bits[None] < bits[:, None])
            | ((bits[None] == bits[:, None]) & (place[None] < place[:, None]))
        )
    )
    return _put_in_places(earlier.sum(axis=1), example)


def real_first(mask: Bool[Array, "n"]) -> Int[Array, "n"]:
    """The row numbers of the real examples in their order, then those of all others.

    Example:
      >>> real_first(jnp.array([False, True, False, True])).tolist()
      [1, 3, 0, 2]
    """
    if target.platform() != "tpu":
        slot = jnp.arange(mask.size)
        return jnp.sort(jnp.where(mask, slot, slot + mask.size)) % max(mask.size, 1)
    real = jnp.cumsum(mask)
    place = jnp.where(mask, real - 1, real[-1] + jnp.cumsum(~mask) - 1)
    return _put_in_places(place, jnp.arange(mask.size))


def real_only(mask: Shaped[Array, "n"], rows: Int[Array, "b"]) -> Int[Array, "b"]:
    """The rows, in which each that is padding is the real one before it, or the first of all.

    What is computed of such a row is masked later. But padding may hold NaN, and a derivative of
    what masks a NaN is NaN.

    Args:
      mask: which examples are real [n]; without any, nothing takes the place of padding.
      rows: rising row numbers [B].

    Example:
      >>> real_only(jnp.array([0, 1, 0, 1, 0]), jnp.arange(5)).tolist()
      [1, 1, 1, 3, 3]
    """
    return lax.cummax(jnp.where(mask[rows] > 0, rows, jnp.argmax(mask > 0)))


def not_fused(rows: Int[Array, "b"], count: int) -> Int[Array, "b"]:
    """The row numbers as they are, for a gather of images.

    XLA on CPU fuses a gather into the operations after it, and a convolution then reads the row
    numbers again for each pixel: evaluation of a LeNet takes a third longer. It does not fuse a
    gather of rows that come out of a sort. This one sorts by place, so that nothing moves.

    Args:
      rows: row numbers from 0 to `count` - 1.
      count: number of rows of the array that is read.

    Example:
      >>> not_fused(jnp.array([7, 3, 5]), 8).tolist()
      [7, 3, 5]
    """
    if target.platform() != "cpu":
        return rows
    place = jnp.arange(rows.size)
    if rows.size * count >= 2**32:
        return lax.sort((place, rows), num_keys=1)[1]
    # XLA on CPU sorts numbers alone five times as fast as pairs.
    numbers = place.astype(jnp.uint32) * count + rows.astype(jnp.uint32)
    return (jnp.sort(numbers) % max(count, 1)).astype(rows.dtype)


def _put_in_places(places: Int[Array, "n"], values: Int[Array, "n"]) -> Int[Array, "n"]:
    return jnp.zeros_like(values).at[places].set(values, unique_indices=True)
