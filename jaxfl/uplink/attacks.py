"""Poisoning: what malicious clients send in place of what they trained, and what they train on.

An attack turns models into others: those of one client, `(key, before, after) -> sent`, or those of
a whole round, if the malicious clients know of each other, `(before, after, malicious) -> sent`.
`attack` makes an uplink of it. An attack in `FLIPPED` also flips the labels of their data.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import flatten_util
from jaxtyping import Array, ArrayLike, Bool, Int

from jaxfl import tree
from jaxfl.errors import check, check_name
from jaxfl.types import Params, PRNGKey, Uplink

__all__ = ["ATTACKS", "FLIPPED", "attack", "malicious_clients"]


def shuffle(key: PRNGKey, before: Params, after: Params) -> Params:
    """One random permutation of all parameters.

    pFedGraph, section 4.1 and Table 3, https://proceedings.mlr.press/v202/ye23b.html.
    """
    flat, unflatten = flatten_util.ravel_pytree(after)
    return unflatten(jax.random.permutation(key, flat))


def same_value(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter is 1 (pFedGraph)."""
    return jax.tree.map(jnp.ones_like, after)


def sign_flip(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter has the opposite sign (pFedGraph)."""
    return jax.tree.map(jnp.negative, after)


def gauss(key: PRNGKey, before: Params, after: Params) -> Params:
    """Standard normal noise, as in the code of pFedGraph's authors.

    Differs: the paper's text says uniform.
    """
    flat, unflatten = flatten_util.ravel_pytree(after)
    return unflatten(jax.random.normal(key, flat.shape, flat.dtype))


def reverse(key: PRNGKey, before: Params, after: Params) -> Params:
    """The update with the opposite sign: 2 before - after (`inv_grad` in pFedGraph's code)."""
    return jax.tree.map(lambda b, a: 2 * b - a, before, after)


def label_flip(key: PRNGKey, before: Params, after: Params) -> Params:
    """The model as trained, on flipped labels: class c of L is labelled L - 1 - c."""
    return after


def little(before: Params, after: Params, malicious: Bool[Array, "m"]) -> Params:
    """A little is enough: all send the mean of the malicious models less z standard deviations.

    Baruch et al., NeurIPS 2019, Algorithm 3, https://arxiv.org/abs/1902.06156. z is the largest
    with which a majority, the malicious clients included, still lies further out: the quantile of
    the normal distribution at (benign - s) / benign, where s = floor(M / 2 + 1) - malicious is how
    many benign clients the majority needs.
    """
    clients = malicious.size
    count = malicious.sum()
    # The quantile z
    benign = jnp.maximum(clients - count, 1)
    fraction = (benign - jnp.maximum(clients // 2 + 1 - count, 0)) / benign
    z = jax.scipy.special.ndtri(jnp.clip(fraction, 0.5, 0.999))

    def leaf(x: Array) -> Array:
        chosen = malicious.reshape(-1, *[1] * (x.ndim - 1))
        divisor = jnp.maximum(count, 1)
        mean = jnp.sum(jnp.where(chosen, x, 0.0), axis=0) / divisor
        variance = jnp.sum(jnp.where(chosen, (x - mean[None]) ** 2, 0.0), axis=0) / divisor
        return jnp.broadcast_to((mean - z * jnp.sqrt(variance))[None], x.shape)

    return jax.tree.map(leaf, after)


def replacement(before: Params, after: Params, malicious: Bool[Array, "m"]) -> Params:
    """Model replacement: updates trained on flipped labels, times M / number of malicious clients.

    Bagdasaryan et al., AISTATS 2020, equation (3), https://arxiv.org/abs/1807.00459.
    """
    factor = malicious.size / jnp.maximum(malicious.sum(), 1)
    return jax.tree.map(lambda b, a: b + factor * (a - b), before, after)


ALONE = (shuffle, same_value, sign_flip, gauss, reverse, label_flip)
TOGETHER = (little, replacement)
ATTACKS: dict[str, Callable] = {f.__name__: f for f in (*ALONE, *TOGETHER)}
FLIPPED = ("label_flip", "replacement")


def attack(name: str, malicious: Bool[ArrayLike, "c"]) -> Uplink:
    """The uplink in which the malicious clients attack and the benign ones send what they trained.

    Args:
      name: one of `ATTACKS`.
      malicious: which clients are [C].

    Raises:
      InputError: there is no such attack.
    """
    check_name("attack", name, ATTACKS)
    poison = ATTACKS[name]
    is_malicious = jnp.asarray(malicious)

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        if poison in TOGETHER:
            sent = poison(before, after, is_malicious[ids])
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
            sent = jax.vmap(poison)(keys, before, after)
        return tree.choose(is_malicious[ids], sent, after)

    return uplink


def malicious_clients(clients: int, ratio: float, seed: int = 0) -> Bool[np.ndarray, "c"]:
    """A random choice of `ratio` of the clients, rounded [C].

    It depends on this seed alone, not on the seed of the run.

    Args:
      clients: C.
      ratio: fraction of malicious clients.
      seed: of the choice.

    Raises:
      InputError: the ratio is outside [0, 1).
    """
    check(0 <= ratio < 1, f"an attack ratio of {ratio}: expected a fraction in [0, 1)")
    chosen = np.zeros(clients, bool)
    chosen[np.random.default_rng(seed).permutation(clients)[: round(ratio * clients)]] = True
    return chosen
