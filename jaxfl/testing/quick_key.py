"""Random numbers that compile quickly, for tests."""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jaxtyping import Array

from jaxfl.core.types import PRNGKey

ODD = 0x9E3779B9


def _mixed(x: Array) -> Array:
    """32 bits from 32 bits, one to one: two rounds of multiplication and shift."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _numbers(count: int) -> Array:
    return jnp.arange(1, count + 1, dtype=jnp.uint32) * jnp.uint32(ODD)


def _seed(seed: Array) -> Array:
    return _mixed(jnp.asarray(seed).astype(jnp.uint32) + jnp.uint32(ODD))[None]


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return _mixed(~key + _numbers(math.prod(shape))).reshape(*shape, 1)


def _fold_in(key: Array, number: Array | int) -> Array:
    return _mixed(_mixed(key) + jnp.asarray(number).astype(jnp.uint32))


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    bits = _mixed(key ^ _numbers(math.prod(shape))).reshape(shape)
    if width <= 32:
        return bits.astype(f"uint{width}")
    return bits.astype("uint64") << 32 | _mixed(bits).astype("uint64")


QUICK = define_prng_impl(
    key_shape=(1,), seed=_seed, split=_split, random_bits=_bits, fold_in=_fold_in, name="quick"
)


def quick_key(seed: int) -> PRNGKey:
    """As `jax.random.key`, with a generator of few operations, which is no good outside tests.

    A third of what tiny programs take to compile is JAX's own generator, threefry. What is computed
    with this key has other numbers and is the same otherwise, also under `vmap`.

    Source: https://github.com/skeeto/hash-prospector for the constants.

    Example:
      >>> key = quick_key(0)
      >>> abs(jax.random.normal(key, (1000,)).mean().item()) < 0.1
      True
      >>> jax.random.split(key, 3).shape
      (3,)
    """
    return jax.random.key(seed, impl=QUICK)
