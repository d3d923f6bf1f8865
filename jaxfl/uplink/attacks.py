"""Poisoning: what malicious clients send in place of what they trained, and what they train on.

An attack turns models into others: those of one client (`alone`), or those of a whole cohort, if
the malicious clients know of each other (`together`). `attack` makes an uplink of it. An attack in
`FLIPPED` also flips the labels of their data.
"""

import inspect
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Int

from jaxfl.core import tree
from jaxfl.core.errors import check, check_name
from jaxfl.core.options import POSITIVE, check_range
from jaxfl.core.types import Params, PRNGKey, Scalar, Uplink
from jaxfl.uplink.alone import ALONE
from jaxfl.uplink.together import TOGETHER

__all__ = ["ATTACKS", "FLIPPED", "SCALED", "attack", "malicious_clients"]

ATTACKS: dict[str, Callable] = {f.__name__: f for f in (*ALONE, *TOGETHER)}
FLIPPED = ("label_flip", "replacement", "collude")
# The attacks that have a strength
SCALED = tuple(name for name, f in ATTACKS.items() if "scale" in inspect.signature(f).parameters)


def attack(name: str, malicious: Bool[ArrayLike, "c"], scale: Scalar | None = None) -> Uplink:
    """The uplink in which the malicious clients attack and the benign ones send what they trained.

    Args:
      name: one of `ATTACKS`.
      malicious: which clients are [C].
      scale: the strength of an attack in `SCALED`, see the attack; None: the attack's own default.

    Raises:
      InputError: there is no such attack, it has no strength, or the strength is not positive.

    Example:
      >>> uplink = attack("sign_flip", malicious=np.array([True, False]))
      >>> after = jnp.array([[3.0], [3.0]])
      >>> uplink(jax.random.key(0), jnp.zeros((2, 1)), after, jnp.arange(2)).tolist()
      [[-3.0], [3.0]]
    """
    check_name("attack", name, ATTACKS)
    check_scale(name, scale)
    poison = ATTACKS[name]
    if scale is not None:
        poison = partial(poison, scale=scale)
    is_malicious = jnp.asarray(malicious)

    def uplink(key: PRNGKey, before: Params, after: Params, ids: Int[Array, "m"]) -> Params:
        if ATTACKS[name] in TOGETHER:
            uploads = poison(before, after, is_malicious[ids])
        else:
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, ids)
            uploads = jax.vmap(poison)(keys, before, after)
        return tree.choose(is_malicious[ids], tree.cast_like(uploads, after), after)

    return uplink


def check_scale(name: str, scale: Scalar | None) -> None:
    """Raises an `InputError` if a strength is given and the attack has none, or is not positive.

    Example:
      >>> check_scale("sign_flip", 2.0)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: attack sign_flip has no strength (scale): leave it out, ...
    """
    check(
        scale is None or name in SCALED,
        f"attack {name} has no strength (scale): leave it out, or choose from {', '.join(SCALED)}",
    )
    check_range(POSITIVE, scale=scale)


def malicious_clients(clients: int, ratio: float, seed: int = 0) -> Bool[np.ndarray, "c"]:
    """A random choice of `ratio` of the clients, rounded [C].

    It depends on this seed alone, not on the seed of the run.

    Args:
      clients: C.
      ratio: fraction of malicious clients.
      seed: of the choice.

    Raises:
      InputError: the ratio is outside [0, 1).

    Example:
      >>> malicious_clients(10, 0.4).sum().item()
      4
    """
    check(0 <= ratio < 1, f"an attack ratio of {ratio}: expected a fraction in [0, 1)")
    malicious = np.zeros(clients, bool)
    malicious[np.random.default_rng(seed).permutation(clients)[: round(ratio * clients)]] = True
    return malicious
