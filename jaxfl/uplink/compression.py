"""Compression: an update, after - before, in fewer bytes, which the server decodes with an error.

The server adds the decoded update to `before`, which it knows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import flatten_util
from jaxtyping import Array, Int

from jaxfl.core import tree
from jaxfl.core.errors import check
from jaxfl.core.trainable import of_statistics
from jaxfl.core.types import Params, PRNGKey

__all__ = ["Compression", "quantise", "top_k"]


@dataclass(frozen=True)
class Compression:
    """An uplink that knows how many bytes it takes."""

    # (key, update) -> the update that the server decodes, for one client
    read: Callable[[PRNGKey, Params], Params]
    # one model, or its shapes -> bytes that one client sends
    bytes: Callable[[Params], int]

    def __call__(self, key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        """The uplink itself."""

        def receive(key: PRNGKey, before: Params, after: Params) -> Params:
            update = jax.tree.map(jnp.subtract, after, before)
            return jax.tree.map(jnp.add, before, self.read(key, update))

        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
        return jax.vmap(receive)(keys, before, after)


def quantise(bits: int = 8) -> Compression:
    """Every leaf of an update as integers of `bits` bits times one float, by stochastic rounding.

    With s = 2^(bits - 1) - 1 levels of either sign, u becomes max|u| / s times the integer below or
    above s u / max|u|, drawn such that the mean is u (Alistarh et al., "QSGD", NeurIPS 2017,
    section 3.1, https://arxiv.org/abs/1610.02132). A client sends `bits` bits a parameter and 4
    bytes a leaf.

    Differs: the largest value of a leaf stands in the place of its norm.

    Args:
      bits: of an integer, 2 to 16.

    Raises:
      InputError: fewer than 2 bits or more than 16.

    Example:
      >>> quantise(8).bytes(jnp.zeros(1000)), quantise(4).bytes(jnp.zeros(1000))
      (1004, 504)
    """
    check(2 <= bits <= 16, f"quantisation to {bits} bits: expected 2 to 16")
    levels = 2 ** (bits - 1) - 1

    def round_leaf(key: PRNGKey, u: Array) -> Array:
        scale = jnp.max(jnp.abs(u), initial=0.0) / levels
        # The floor of x plus uniform noise is an integer next to x with mean x.
        exact = u / jnp.where(scale > 0, scale, 1)
        whole = jnp.floor(exact + jax.random.uniform(key, u.shape, u.dtype))
        return scale * jnp.clip(whole, -levels, levels)

    def read(key: PRNGKey, update: Params) -> Params:
        leaves, structure = jax.tree.flatten(update)
        return structure.unflatten(map(round_leaf, jax.random.split(key, len(leaves)), leaves))

    def size(model: Params) -> int:
        return -(-bits * tree.size(model) // 8) + 4 * len(jax.tree.leaves(model))

    return Compression(read, size)


def top_k(fraction: float) -> Compression:
    """The largest entries of an update, over all of its parameters; the others are decoded as 0.

    Statistics of BatchNorm are sent as they are. This is biased. A client sends k = `fraction` D
    floats, at least one, and as many places, 4 bytes each (Aji and Heafield, "Sparse Communication
    for Distributed Gradient Descent", EMNLP 2017, https://arxiv.org/abs/1704.05021).

    Differs: a client keeps nothing between rounds, so there is no error feedback, which would add
    what was left out to its next update.

    Args:
      fraction: of the parameters that are sent.

    Raises:
      InputError: the fraction is not in (0, 1].

    Example:
      >>> after = jnp.array([[3.0, -1.0, 0.5, -2.0]])
      >>> top_k(0.5)(jax.random.key(0), jnp.zeros((1, 4)), after, jnp.arange(1)).tolist()
      [[3.0, 0.0, 0.0, -2.0]]
    """
    check(0 < fraction <= 1, f"top-k of a fraction of {fraction}: expected a fraction in (0, 1]")

    def count(parameters: int) -> int:
        return min(max(round(fraction * parameters), 1), parameters)

    def read(key: PRNGKey, update: Params) -> Params:
        statistics, parameters = tree.split(update, of_statistics)
        flat, unflatten = flatten_util.ravel_pytree(parameters)
        places = jax.lax.top_k(jnp.abs(flat), count(flat.size))[1]
        kept = unflatten(jnp.zeros_like(flat).at[places].set(flat[places]))
        return tree.join(statistics, kept)

    def size(model: Params) -> int:
        statistics, parameters = map(tree.size, tree.split(model, of_statistics))
        return 8 * count(parameters) + 4 * statistics

    return Compression(read, size)
