"""A run is one scan over rounds: sample a cohort, gather, one algorithm round, scatter. Knows no algorithm."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int

from jaxfl import tree
from jaxfl.types import Algorithm, Cohort, Federation, Info, Participation, PRNGKey, State

# (key, federation, state, start, length) -> (state, (Info [T, ...], ids [T, M]))
Rounds = Callable[..., tuple[State, tuple[Info, Array]]]


def make_rounds(algorithm: Algorithm, participation: Participation) -> Rounds:
    """The jitted function that runs rounds `start`, ..., `start + length - 1`.

    Round t draws from `fold_in(key, t)` and from nothing else, so that 6 rounds equal 3 rounds and
    3 more from the state in between, bit for bit. The whole is a pure function: `vmap` it over keys
    and states for several seeds.

    Args:
      algorithm: what happens in a round.
      participation: (key, round) -> ids [M], each client at most once; the order does not count.

    Returns:
      rounds(key, federation, state, start, length) -> (state, (Info [T, ...], ids [T, M]));
      `length` is static.
    """

    def one_round(key: PRNGKey, federation: Federation, state: State, number: Int[Array, ""]):
        sample_key, round_key = jax.random.split(jax.random.fold_in(key, number))
        ids = jnp.sort(participation(sample_key, number))
        if (
            ids.size == federation.train.mask.shape[0]
        ):  # all clients, in order: there is nothing to copy
            after, info = keep_finite(
                state,
                algorithm.round(round_key, state, Cohort(ids, federation.train, federation.val)),
            )
            return after, (info, ids)
        cohort = Cohort(ids, tree.take(federation.train, ids), tree.take(federation.val, ids))
        gathered = State(tree.take(state.clients, ids), state.server)
        (clients, server), info = keep_finite(
            gathered, algorithm.round(round_key, gathered, cohort)
        )
        return State(tree.put(state.clients, ids, clients), server), (info, ids)

    @partial(jax.jit, static_argnames="length")
    def rounds(key: PRNGKey, federation: Federation, state: State, start: int | Array, length: int):
        return lax.scan(partial(one_round, key, federation), state, start + jnp.arange(length))

    return rounds


def keep_finite(before: State, round: tuple[State, Info]) -> tuple[State, Info]:
    """What a round made, where it is finite.

    A client that is not heard, or whose part of the state is not finite, keeps what it had. Where
    the server's part is not, nothing changes and nobody counts as heard. `Info.heard` is then known
    of each client.
    """
    (clients, server), info = round
    count = info.loss.size
    sound = tree.finite(tree.broadcast(server, 1), 1)[0]
    heard = tree.finite(clients, count) & sound & (True if info.heard is None else info.heard)
    state = State(
        tree.choose(heard, clients, before.clients), tree.where(sound, server, before.server)
    )
    return state, info._replace(heard=heard)
