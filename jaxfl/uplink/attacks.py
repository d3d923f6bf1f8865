"""Model poisoning: what malicious clients send in place of what they trained (pFedGraph, section 4.1 and Table 3).

An attack turns one model into another, `(key, before, after) -> sent`; `attack` makes an uplink of it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import flatten_util
from jaxtyping import Array, Bool, Int

from jaxfl import tree
from jaxfl.errors import check, check_name
from jaxfl.types import Params, PRNGKey, Uplink


def shuffle(key: PRNGKey, before: Params, after: Params) -> Params:
    """One random permutation of all parameters."""
    flat, back = flatten_util.ravel_pytree(after)
    return back(jax.random.permutation(key, flat))


def same_value(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter is 1."""
    return jax.tree.map(jnp.ones_like, after)


def sign_flip(key: PRNGKey, before: Params, after: Params) -> Params:
    """Every parameter with the other sign."""
    return jax.tree.map(jnp.negative, after)


def gauss(key: PRNGKey, before: Params, after: Params) -> Params:
    """Standard normal noise, as the authors' code; the paper's text says uniform."""
    flat, back = flatten_util.ravel_pytree(after)
    return back(jax.random.normal(key, flat.shape, flat.dtype))


def reverse(key: PRNGKey, before: Params, after: Params) -> Params:
    """The local update with the other sign: 2 before - after (`inv_grad` in the authors' code)."""
    return jax.tree.map(lambda b, a: 2 * b - a, before, after)


ATTACKS: dict[str, Callable] = {f.__name__: f for f in (shuffle, same_value, sign_flip, gauss, reverse)}


def attack(name: str, malicious: Bool[np.ndarray, "c"]) -> Uplink:
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
        def one(key: PRNGKey, before: Params, after: Params, lying: Array) -> Params:
            return tree.where(lying, lies(key, before, after), after)

        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
        return jax.vmap(one)(keys, before, after, which[ids])

    return uplink


def malicious_clients(clients: int, ratio: float) -> Bool[np.ndarray, "c"]:
    """A random `ratio` of the clients, rounded; the same in every run, whatever its seed [C].

    Raises:
      InputError: the ratio is outside [0, 1).
    """
    check(0 <= ratio < 1, f"an attack ratio of {ratio}: expected a fraction in [0, 1)")
    chosen = np.zeros(clients, bool)
    chosen[np.random.default_rng(0).permutation(clients)[: round(ratio * clients)]] = True
    return chosen
