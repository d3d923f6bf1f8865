"""Clients that do only a part of their work: how much each trains, and whose uploads are lost.

Both are drawn anew in each round: `make_rounds(..., work=stragglers(0.5), lost=drop(0.2))`. What a
client draws depends only on the key of the round and on the client's id.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from jaxfl.core.errors import InputError, check
from jaxfl.core.npy import read_npy
from jaxfl.core.streams import client_keys
from jaxfl.core.types import Loss, PRNGKey, Work

__all__ = ["drop", "given", "read_fractions", "stragglers"]


def stragglers(fraction: float, *, least: float = 0.0, epochs: int | None = None) -> Work:
    """Some clients of each round take a random part of their local steps, the others all of them.

    FedProx, Li et al., MLSys 2020, section 5.2, https://arxiv.org/abs/1812.06127: the fraction .5
    or .9 of the clients takes a number of epochs that is uniform from 1 to E. FedNova, Wang et al.,
    NeurIPS 2020, section 5, https://arxiv.org/abs/2007.07481: each client takes 2 to 5 epochs,
    which is `stragglers(1.0, least=0.4, epochs=5)`.

    Args:
      fraction: probability that a client is a straggler in a round.
      least: the smallest part of its steps that a straggler takes.
      epochs: E, the local epochs; a straggler then takes whole epochs, at least 1 and at least
        `least` * E. None: any part of its steps from `least` to 1.

    Raises:
      InputError: a number is out of its range.

    Differs: FedProx makes exactly this fraction of a round's clients stragglers; here each client
    draws for itself, so that no client's work depends on who else takes part.

    Example:
      >>> work = stragglers(1.0, least=0.4, epochs=5)
      >>> parts = work(jax.random.key(0), jnp.arange(100))
      >>> np.unique(np.asarray(5 * parts).round()).tolist()
      [2.0, 3.0, 4.0, 5.0]
    """
    check(0 <= fraction <= 1, f"a fraction of {fraction} stragglers: expected a fraction in [0, 1]")
    check(0 <= least <= 1, f"the least work is {least}: expected a fraction in [0, 1]")
    check(epochs is None or epochs >= 1, f"{epochs} epochs of stragglers: expected 1 or more")

    def draw(key: PRNGKey) -> Float[Array, ""]:
        who_key, part_key = jax.random.split(key)
        if epochs is None:
            share = 1 - (1 - least) * jax.random.uniform(part_key)
        else:
            # 1e-6 is for rounding: .4 * 5 is 2.
            fewest = max(1, int(np.ceil(least * epochs - 1e-6)))
            share = jax.random.randint(part_key, (), fewest, epochs + 1) / epochs
        return jnp.where(jax.random.uniform(who_key) < fraction, share, 1.0)

    def work(key: PRNGKey, ids: Int[Array, "m"]) -> Float[Array, "m"]:
        return jax.vmap(draw)(client_keys(key, ids))

    return work


def given(fractions: ArrayLike) -> Work:
    """Each client takes the same given part of its local steps in every round.

    Args:
      fractions: of each client [C], in (0, 1].

    Raises:
      InputError: the fractions are not an array [C] of numbers in (0, 1].

    Example:
      >>> given([1.0, 0.5, 0.25])(jax.random.key(0), jnp.array([0, 2])).tolist()
      [1.0, 0.25]
    """
    table = jnp.asarray(_fractions(np.asarray(fractions), "the work of the clients"), jnp.float32)
    return lambda key, ids: table[ids]


def read_fractions(file: str | Path, clients: int) -> Float[np.ndarray, "c"]:
    """The fractions for `given` from a NumPy file (.npy) with one for each client [C].

    Raises:
      InputError: there is no such file, or it holds something else than C numbers in (0, 1].

    Example:
      >>> np.save("work.npy", np.array([1.0, 0.5]))
      >>> read_fractions("work.npy", clients=2).tolist()
      [1.0, 0.5]
    """
    what = "the work of the clients"
    source = f"{what} in {file}"
    table = _fractions(read_npy(file, what), source)
    check(
        table.size == clients,
        f"{source} has {table.size} numbers, and there are {clients} clients: expected one each",
    )
    return table


def _fractions(array: np.ndarray, source: str) -> np.ndarray:
    """The array, if it holds fractions of clients [C]."""
    check(
        array.ndim == 1 and array.size > 0 and array.dtype.kind in "iuf",
        f"{source} has shape {array.shape} and type {array.dtype}: expected numbers [clients]",
    )
    wrong = np.flatnonzero(~((array > 0) & (array <= 1)))
    if wrong.size:
        raise InputError(
            f"{source} has {array[wrong[0]]} for client {wrong[0]}: expected a fraction in (0, 1], "
            "1 for all of its steps"
        )
    return array


def drop(rate: float, *, stragglers: bool = False) -> Loss:
    """What a client uploads in a round is lost with this probability.

    All uploads of the client in that round are lost together. The client has not reported: nobody
    learns from it, and its state is that from before the round.

    Args:
      rate: probability that the uploads of a client are lost in a round.
      stragglers: whether the uploads of clients that take only a part of their steps are lost too,
        as FedProx's paper says of FedAvg.

    Raises:
      InputError: the rate is outside [0, 1).

    Example:
      >>> lost = drop(0.0, stragglers=True)
      >>> lost(jax.random.key(0), jnp.arange(3), jnp.array([1.0, 0.5, 1.0])).tolist()
      [False, True, False]
    """
    check(0 <= rate < 1, f"a rate of {rate} lost uploads: expected a probability in [0, 1)")

    def lost(
        key: PRNGKey, ids: Int[Array, "m"], work: Float[Array, "m"] | None
    ) -> Bool[Array, "m"]:
        mask = jax.vmap(jax.random.uniform)(client_keys(key, ids)) < rate
        if stragglers and work is not None:
            mask = mask | (work < 1)
        return mask

    return lost
