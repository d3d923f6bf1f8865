"""Attacks of malicious clients that do not know of each other: `(key, before, after) -> sent`.

Each is a function of one client: its models before and after local training become the model that
it sends.
"""

import jax
import jax.numpy as jnp
from jax import flatten_util

from jaxfl.core.types import Params, PRNGKey


def shuffle(key: PRNGKey, before: Params, after: Params) -> Params:
    """One random permutation of all parameters.

    pFedGraph, section 4.1 and Table 3, https://proceedings.mlr.press/v202/ye23b.html.

    Example:
      >>> model = jnp.array([1.0, 2.0, 3.0])
      >>> sorted(shuffle(jax.random.key(0), model, model).tolist())
      [1.0, 2.0, 3.0]
    """
    flat, unflatten = flatten_util.ravel_pytree(after)
    return unflatten(jax.random.permutation(key, flat))


def same_value(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter is 1 (pFedGraph).

    Example:
      >>> same_value(jax.random.key(0), jnp.zeros(2), jnp.array([3.0, 5.0])).tolist()
      [1.0, 1.0]
    """
    return jax.tree.map(jnp.ones_like, after)


def sign_flip(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter has the opposite sign (pFedGraph).

    Example:
      >>> sign_flip(jax.random.key(0), jnp.zeros(2), jnp.array([3.0, -5.0])).tolist()
      [-3.0, 5.0]
    """
    return jax.tree.map(jnp.negative, after)


def gauss(key: PRNGKey, before: Params, after: Params) -> Params:
    """Standard normal noise, as in the code of pFedGraph's authors.

    Differs: the paper's text says uniform.

    Example:
      >>> gauss(jax.random.key(0), jnp.zeros(2), jnp.array([3.0, 5.0])).shape
      (2,)
    """
    flat, unflatten = flatten_util.ravel_pytree(after)
    return unflatten(jax.random.normal(key, flat.shape, flat.dtype))


def reverse(key: PRNGKey, before: Params, after: Params) -> Params:
    """The update with the opposite sign: 2 before - after (`inv_grad` in pFedGraph's code).

    Example:
      >>> reverse(jax.random.key(0), jnp.array([1.0]), jnp.array([3.0])).tolist()
      [-1.0]
    """
    return jax.tree.map(lambda b, a: 2 * b - a, before, after)


def label_flip(key: PRNGKey, before: Params, after: Params) -> Params:
    """The model as trained, on flipped labels: class c of L is labelled L - 1 - c.

    Example:
      >>> label_flip(jax.random.key(0), jnp.array([1.0]), jnp.array([3.0])).tolist()
      [3.0]
    """
    return after


ALONE = (shuffle, same_value, sign_flip, gauss, reverse, label_flip)
