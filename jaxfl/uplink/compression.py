"""Compression: fewer bytes for an update, after - before, of which the server reads something near.

The server adds what it reads to `before`, which it knows.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import flatten_util
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.errors import check
from jaxfl.types import Params, PRNGKey


@dataclass(frozen=True)
class Compression:
    """An uplink that says how many bytes it takes."""

    read: Callable[
        [PRNGKey, Params], Params
    ]  # (key, update) -> what the server reads of it, for one client
    bytes: Callable[[Params], int]  # of one model, or of its shapes -> bytes that one client sends

    def __call__(self, key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        """The uplink itself."""

        def one(key: PRNGKey, before: Params, after: Params) -> Params:
            return jax.tree.map(
                jnp.add, before, self.read(key, jax.tree.map(jnp.subtract, after, before))
            )

        return jax.vmap(one)(jax.vmap(jax.random.fold_in, (None, 0))(key, ids), before, after)


def quantise(bits: int = 8) -> Compression:
    """Every leaf of an update as integers of so many bits times one float, by stochastic rounding.

    With s = 2^(bits - 1) - 1 levels of either sign, u becomes max|u| / s times the integer below or
    above s u / max|u|, drawn such that the mean is u (Alistarh et al., "QSGD", NeurIPS 2017,
    section 3.1, with the largest value in place of the norm). A client sends `bits` a parameter and
    4 bytes a leaf.

    Raises:
      InputError: fewer than 2 bits or more than 16.
    """
    check(2 <= bits <= 16, f"quantisation to {bits} bits: expected 2 to 16")
    levels = 2 ** (bits - 1) - 1

    def rounded(key: PRNGKey, u: Array) -> Array:
        scale = jnp.max(jnp.abs(u), initial=0.0) / levels
        whole = jnp.floor(
            u / jnp.where(scale > 0, scale, 1) + jax.random.uniform(key, u.shape, u.dtype)
        )
        return scale * jnp.clip(whole, -levels, levels)

    def read(key: PRNGKey, update: Params) -> Params:
        leaves, structure = jax.tree.flatten(update)
        return structure.unflatten(map(rounded, jax.random.split(key, len(leaves)), leaves))

    def size(model: Params) -> int:
        return -(-bits * tree.size(model) // 8) + 4 * len(jax.tree.leaves(model))

    return Compression(read, size)


def top_k(fraction: float) -> Compression:
    """The largest entries of an update, over all of its parameters; the server reads 0 for the others.

    Not unbiased, and without the memory of what was left out (error feedback) that some add: a
    client keeps nothing. A client sends k = `fraction` D floats and as many places, 4 bytes each
    (Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017); at
    least one.

    Args:
      fraction: of the parameters that are sent.

    Raises:
      InputError: the fraction is not in (0, 1].
    """
    check(0 < fraction <= 1, f"top-k of a fraction of {fraction}: expected a fraction in (0, 1]")

    def kept(parameters: int) -> int:
        return min(max(round(fraction * parameters), 1), parameters)

    def read(key: PRNGKey, update: Params) -> Params:
        flat, back = flatten_util.ravel_pytree(update)
        places = jax.lax.top_k(jnp.abs(flat), kept(flat.size))[1]
        return back(jnp.zeros_like(flat).at[places].set(flat[places]))

    return Compression(read, lambda model: 8 * kept(tree.size(model)))
