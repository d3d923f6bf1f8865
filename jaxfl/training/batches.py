"""The batches of a client: which of its examples are in which batch, in random order."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from jaxfl.core import order
from jaxfl.core.errors import InputError
from jaxfl.core.ragged import Ragged, is_ragged
from jaxfl.core.types import PRNGKey


def minibatches(
    key: PRNGKey,
    mask: Bool[Array, "n"],
    batch_size: int,
    *,
    steps: int | None = None,
    epochs: int | None = None,
) -> tuple[Int[Array, "s b"], Bool[Array, "s b"]]:
    """All batches of one client: epochs one after the other, each a new permutation of its data.

    An epoch of n_i real examples has ceil(n_i / B) batches, of which the last may be short. With
    `steps`, epochs follow one another until that many batches are drawn. With `epochs`, the batches
    after the client's last one are empty. The batches depend on the key and on the order of the
    real examples, not on the padding.

    Args:
      key: of this client in this round.
      mask: which examples are real [n].
      batch_size: B.
      steps: S; give this or `epochs`.
      epochs: passes over the data; then S = epochs * ceil(n / B).

    Returns:
      Row numbers of the client's data [S, B], and which of them count [S, B]. None of them counts
      if the client has no data.

    Raises:
      InputError: neither steps nor epochs are given.

    Example:
      >>> rows, counts = minibatches(jax.random.key(0), jnp.ones(5, bool), 2, epochs=1)
      >>> rows.shape, counts.sum().item()
      ((3, 2), 5)
      >>> sorted(rows[counts].tolist())
      [0, 1, 2, 3, 4]
    """
    n = mask.shape[0]
    real = jnp.count_nonzero(mask)
    count = jnp.maximum(real, 1)
    per_epoch = jnp.maximum(-(-real // batch_size), 1)
    if steps is not None and 0 < n <= batch_size:
        # Each step is an epoch, and epochs take much less time to sort.
        steps, epochs = None, steps
    if steps is not None:
        total = steps
        # S batches use at most S * B elements and one epoch more.
        rank = _sequence(key, count, total * batch_size + n)
        length = count
    elif epochs is not None:
        total = epochs * -(-n // batch_size)
        rank = _orders(key, count, n, epochs).ravel()
        length = n
    else:
        raise InputError("there is no number of batches: give steps or epochs")
    # The rows of the real examples come first, in their order.
    rows = order.real_first(mask)

    step = jnp.arange(total)[:, None]  # [S, 1]
    epoch = step // per_epoch
    # The position of each batch element within its epoch [S, B].
    within = (step % per_epoch) * batch_size + jnp.arange(batch_size)[None]
    counts = within < real
    if steps is None and epochs is not None:
        counts &= epoch < epochs
    position = epoch * length + within
    return rows[rank[jnp.where(counts, position, 0)]], counts


def read(x: PyTree, index: tuple, real: Bool[Array, ""]) -> PyTree:
    """The examples of a batch; zeros if none of them is real.

    What is computed of padding is masked later. But padding may hold NaN, and a derivative of what
    masks a NaN is NaN.

    Args:
      x: examples, or their targets: an array, or a pytree of arrays. A `Ragged` array holds no
        padding.
      index: of the examples.
      real: whether one of them counts.

    Example:
      >>> read(jnp.array([jnp.nan, 2.0]), (jnp.array([0, 0]),), jnp.array(False)).tolist()
      [0.0, 0.0]
    """

    def leaf(x: Array | Ragged) -> Array:
        examples = x[index]
        return examples if is_ragged(x) else jnp.where(real, examples, jnp.zeros((), x.dtype))

    return jax.tree.map(leaf, x, is_leaf=is_ragged)


def _sequence(key: PRNGKey, count: Int[Array, ""], length: int) -> Int[Array, "l"]:
    """Epochs of `count` examples one after the other, each in random order [L].

    Element l has random bits of its own and is example l % n_i of epoch l // n_i. One sort by these
    bits permutes the elements within each epoch.
    """
    slot = jnp.arange(length)
    # Neither is negative; `//` and `%` are longer programs.
    epoch = lax.div(slot, count)
    example = lax.rem(slot, count)
    return order.shuffled(epoch, jax.random.bits(key, (length,), jnp.uint32), example)


def _orders(key: PRNGKey, count: Int[Array, ""], n: int, epochs: int) -> Int[Array, "e n"]:
    """Each of the first epochs of `_sequence`: its `count` examples, then padding [E, n].

    To sort epochs apart takes much less time than to sort the sequence.
    """
    bits = jax.random.bits(key, (epochs * n,), jnp.uint32)
    slot = jnp.arange(n)
    numbers = bits[jnp.arange(epochs)[:, None] * count + slot[None]]
    # The sort is stable, so that padding comes last also after an example with the largest bits.
    numbers = jnp.where(slot[None] < count, numbers, ~jnp.uint32(0))
    return jax.vmap(_stable_argsort)(numbers)


def _stable_argsort(bits: Shaped[Array, "n"]) -> Int[Array, "n"]:
    """The stable order of random 32-bit numbers.

    XLA on CPU sorts numbers alone five times as fast as pairs. Therefore the place of a number is
    kept in its lower half, and the numbers are sorted by their lower and then by their upper half.
    """
    n = bits.size
    half = jnp.uint32(16)
    lower = jnp.uint32(2**16 - 1)
    if n > 2**16:
        return lax.sort((bits, jnp.arange(n)), num_keys=1)[1]
    place = jnp.arange(n, dtype=jnp.uint32)
    by_lower = jnp.sort((bits << half) | place) & lower
    by_upper = jnp.sort((bits[by_lower] & ~lower) | place) & lower
    return by_lower[by_upper].astype(int)
