"""A run is one scan over rounds: draw a cohort, gather its state and data, run a round, scatter.

Nothing here depends on the algorithm.
"""

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

    Round t takes all its random numbers from `fold_in(key, t)`. Therefore 6 rounds equal 3 rounds
    and 3 more from the state in between, bit for bit. The function is pure: `vmap` it over keys and
    states for several seeds.

    Args:
      algorithm: what happens in a round.
      participation: (key, round) -> ids [M], each client at most once; the order does not matter.

    Returns:
      rounds(key, federation, state, start, length) -> (state, (Info [T, ...], ids [T, M]));
      `length` is static.
    """

    def one_round(key: PRNGKey, federation: Federation, state: State, number: Int[Array, ""]):
        sample_key, round_key = jax.random.split(jax.random.fold_in(key, number))
        ids = jnp.sort(participation(sample_key, number))
        everybody = ids.size == federation.train.mask.shape[0]
        if everybody:
            # The sorted ids are those of all clients in order, so nothing has to be copied.
            cohort = Cohort(ids, federation.train, federation.val)
            before = state
        else:
            cohort = Cohort(ids, tree.take(federation.train, ids), tree.take(federation.val, ids))
            before = State(tree.take(state.clients, ids), state.server)
        after, info = keep_finite(before, *algorithm.round(round_key, before, cohort))
        if not everybody:
            after = State(tree.put(state.clients, ids, after.clients), after.server)
        return after, (info, ids)

    @partial(jax.jit, static_argnames="length")
    def rounds(key: PRNGKey, federation: Federation, state: State, start: int | Array, length: int):
        return lax.scan(partial(one_round, key, federation), state, start + jnp.arange(length))

    return rounds


def keep_finite(before: State, after: State, info: Info) -> tuple[State, Info]:
    """The state after a round where it is finite, and the state before the round where it is not.

    A client keeps its state from before if it has not reported, or if its new state is not finite.
    If the server's new state is not finite, no state changes and no client counts as reported.
    """
    server_finite = tree.finite(tree.broadcast(after.server, 1), 1)[0]
    reported = info.reported & server_finite & tree.finite(after.clients, info.loss.size)
    clients = tree.choose(reported, after.clients, before.clients)
    server = tree.where(server_finite, after.server, before.server)
    return State(clients, server), info._replace(reported=reported)
