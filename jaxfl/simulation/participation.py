"""Who takes part in a round: functions `(key, round) -> ids [M]`, with the same M in every round.

Where M must change (clients that join a full cohort), run `make_rounds` with one participation up
to that round and with another one from there: the state holds all C clients throughout.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import ArrayLike

from jaxfl.core.errors import check
from jaxfl.core.types import Participation

# A permutation sorts all clients, twice where they are many: 3 ms of a core for 10,000 clients and
# 35 ms for 100,000. To find the largest of 100,000 numbers takes 0.4 ms for the 100 largest, and 3
# to 12 ms for a tenth to nine tenths of them.
PERMUTED = 10_000


def full(clients: int) -> Participation:
    """Every client in every round: M = C.

    Example:
      >>> full(3)(jax.random.key(0), 0).tolist()
      [0, 1, 2]
    """
    return lambda key, number: jnp.arange(clients)


def uniform(clients: int, fraction: float) -> Participation:
    """A new sample without replacement in every round: M = fraction * C, rounded, at least 1.

    Raises:
      InputError: the fraction is outside (0, 1].

    Example:
      >>> uniform(10, 0.3)(jax.random.key(0), 0).shape
      (3,)
    """
    check(
        0 < fraction <= 1,
        f"participation is {fraction}: expected a fraction in (0, 1], 1 for every client",
    )
    size = max(1, round(fraction * clients))
    if size == clients:
        return full(clients)
    if clients <= PERMUTED:
        return lambda key, number: jax.random.permutation(key, clients)[:size]
    return lambda key, number: lax.top_k(jax.random.uniform(key, (clients,)), size)[1]


def among(ids: ArrayLike, sample: Participation) -> Participation:
    """A participation of some clients only: the others take part in no round.

    Args:
      ids: of the K clients that may take part [K].
      sample: a participation of K clients; its number k stands for the client `ids[k]`.

    Example:
      >>> among([4, 7, 9], full(3))(jax.random.key(0), 0).tolist()
      [4, 7, 9]
    """
    members = jnp.asarray(ids)
    return lambda key, number: members[sample(key, number)]


def schedule(table: ArrayLike) -> Participation:
    """A given table of ids [P, M]: the cohort of round t is row t mod P.

    Raises:
      InputError: the table is not a matrix of ids, or a row names a client twice.

    Example:
      >>> sample = schedule([[0, 1], [2, 3]])
      >>> [sample(jax.random.key(0), number).tolist() for number in range(3)]
      [[0, 1], [2, 3], [0, 1]]
    """
    table = np.asarray(table)
    check(
        table.ndim == 2 and table.size > 0 and table.dtype.kind in "iu" and table.min() >= 0,
        f"a participation schedule of shape {table.shape} and type {table.dtype}: "
        "expected client ids [rounds, cohort]",
    )
    rows = np.sort(table, axis=1)
    twice = np.flatnonzero((rows[:, 1:] == rows[:, :-1]).any(axis=1))
    check(
        twice.size == 0,
        f"the participation schedule names a client twice in rounds {twice[:3].tolist()}: "
        "list each id once",
    )
    ids = jnp.asarray(table)
    return lambda key, number: ids[number % len(ids)]


def stratified(groups: ArrayLike, size: int) -> Participation:
    """A new sample of `size` clients of each group in every round: M = groups * size.

    Args:
      groups: the group of each client [C].
      size: clients of each group in a round.

    Raises:
      InputError: a group has fewer clients than `size`.

    Example:
      >>> groups = np.array([0, 0, 0, 1, 1])
      >>> ids = stratified(groups, size=1)(jax.random.key(0), 0)
      >>> groups[ids].tolist()
      [0, 1]
    """
    groups = np.asarray(groups)
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    smallest = min(map(len, members))
    check(
        1 <= size <= smallest,
        f"{size} clients a group asked for: expected 1 to {smallest}, the smallest group",
    )

    def sample(key, number):
        keys = jax.random.split(key, len(members))
        samples = [jax.random.permutation(k, m)[:size] for k, m in zip(keys, members, strict=True)]
        return jnp.concatenate(samples)

    return sample


def every(period: int, special: Participation, otherwise: Participation) -> Participation:
    """`special` in rounds 0, period, 2 * period, ..., and `otherwise` in between; M is the same.

    Example:
      >>> sample = every(3, schedule([[8, 9]]), schedule([[0, 1]]))
      >>> [sample(jax.random.key(0), number).tolist() for number in range(4)]
      [[8, 9], [0, 1], [0, 1], [8, 9]]
    """
    check(period >= 1, f"a period of {period} rounds: expected 1 or more")

    def sample(key, number):
        return jnp.where(number % period == 0, special(key, number), otherwise(key, number))

    return sample


def joining(first_round: ArrayLike, size: int) -> Participation:
    """A new uniform sample, in every round, of the clients that have joined so far.

    Args:
      first_round: the round in which each client joins [C], 0 for a client of the start.
      size: M, the cohort of every round.

    Raises:
      InputError: fewer than `size` clients take part from round 0.

    Example:
      >>> sample = joining([0, 0, 5], size=2)  # client 2 joins in round 5
      >>> sorted(sample(jax.random.key(0), 4).tolist())
      [0, 1]
    """
    first = np.asarray(first_round)
    present = int((first <= 0).sum())
    check(
        1 <= size <= present,
        f"a cohort of {size} clients: expected 1 to {present}, the clients present in round 0",
    )
    first = jnp.asarray(first)

    def sample(key, number):
        draws = jax.random.uniform(key, first.shape)  # in [0, 1): absent clients come last
        return jnp.argsort(jnp.where(first <= number, draws, 2.0))[:size]

    return sample
