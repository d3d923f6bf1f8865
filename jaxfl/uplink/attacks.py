"""Poisoning: what malicious clients send in place of what they trained, and what they train on.

An attack turns models into others, `(key, before, after) -> sent`, a client at a time, or those of
a whole round, where the malicious know of each other; `attack` makes an uplink of it. One in
`FLIPPED` also turns the labels of their data.
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


def shuffle(key: PRNGKey, before: Params, after: Params) -> Params:
    """One random permutation of all parameters (pFedGraph, section 4.1 and Table 3)."""
    flat, back = flatten_util.ravel_pytree(after)
    return back(jax.random.permutation(key, flat))


def same_value(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter is 1 (pFedGraph)."""
    return jax.tree.map(jnp.ones_like, after)


def sign_flip(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter with the other sign (pFedGraph)."""
    return jax.tree.map(jnp.negative, after)


def gauss(key: PRNGKey, before: Params, after: Params) -> Params:
    """Standard normal noise, as the authors' code of pFedGraph; the paper's text says uniform."""
    flat, back = flatten_util.ravel_pytree(after)
    return back(jax.random.normal(key, flat.shape, flat.dtype))


def reverse(key: PRNGKey, before: Params, after: Params) -> Params:
    """The local update with the other sign: 2 before - after (`inv_grad` in the authors' code of pFedGraph)."""
    return jax.tree.map(lambda b, a: 2 * b - a, before, after)


def label_flip(key: PRNGKey, before: Params, after: Params) -> Params:
    """The model that was trained on labels turned round: class c of L is called L - 1 - c."""
    return after


def little(before: Params, after: Params, lying: Bool[Array, "m"]) -> Params:
    """A little is enough (Baruch et al., NeurIPS 2019, Algorithm 3): all send the mean of their own less z deviations.

    z is the largest with which a majority, the malicious among it, still lies further out: the
    quantile of the normal distribution at (M - s) / M of the honest, with s = floor(M / 2 + 1) less
    the malicious.
    """
    m, n = lying.sum(), lying.size
    honest = jnp.maximum(n - m, 1)
    share = (honest - jnp.maximum(n // 2 + 1 - m, 0)) / honest
    z = jax.scipy.special.ndtri(jnp.clip(share, 0.5, 0.999))

    def leaf(x: Array) -> Array:
        chosen = lying.reshape(-1, *[1] * (x.ndim - 1))
        mean = jnp.sum(jnp.where(chosen, x, 0.0), axis=0) / jnp.maximum(m, 1)
        spread = jnp.sqrt(
            jnp.sum(jnp.where(chosen, (x - mean[None]) ** 2, 0.0), axis=0) / jnp.maximum(m, 1)
        )
        return jnp.broadcast_to((mean - z * spread)[None], x.shape)

    return jax.tree.map(leaf, after)


def replacement(before: Params, after: Params, lying: Bool[Array, "m"]) -> Params:
    """Model replacement (Bagdasaryan et al., 2020, (3)): labels turned round, and updates M / malicious times."""
    factor = lying.size / jnp.maximum(lying.sum(), 1)
    return jax.tree.map(lambda b, a: b + factor * (a - b), before, after)


ALONE = (shuffle, same_value, sign_flip, gauss, reverse, label_flip)
TOGETHER = (little, replacement)
ATTACKS: dict[str, Callable] = {f.__name__: f for f in (*ALONE, *TOGETHER)}
FLIPPED = ("label_flip", "replacement")


def attack(name: str, malicious: Bool[ArrayLike, "c"]) -> Uplink:
    """The uplink in which the malicious clients attack and the others are honest.

    Args:
      name: one of `ATTACKS`.
      malicious: which clients do [C].

    Raises:
      InputError: no such attack.
    """
    check_name("attack", name, ATTACKS)
    lies, which = ATTACKS[name], jnp.asarray(malicious)

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        if lies in TOGETHER:
            sent = lies(before, after, which[ids])
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
            sent = jax.vmap(lies)(keys, before, after)
        return tree.choose(which[ids], sent, after)

    return uplink


def malicious_clients(clients: int, ratio: float, seed: int = 0) -> Bool[np.ndarray, "c"]:
    """A random `ratio` of the clients, rounded; of one seed the same in every run, whatever the run's [C].

    Raises:
      InputError: the ratio is outside [0, 1).
    """
    check(0 <= ratio < 1, f"an attack ratio of {ratio}: expected a fraction in [0, 1)")
    chosen = np.zeros(clients, bool)
    chosen[np.random.default_rng(seed).permutation(clients)[: round(ratio * clients)]] = True
    return chosen
