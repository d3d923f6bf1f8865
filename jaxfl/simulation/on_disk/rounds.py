"""Rounds of clients whose data and states lie on disk.

A round reads its cohort, and nothing else. While the devices compute a round, a thread writes the
states of the round before and reads the clients of the round after.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, Protocol, cast, overload, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Int, PyTree

from jaxfl.core.errors import check
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Dataset,
    Federation,
    Info,
    Loss,
    Participation,
    PRNGKey,
    State,
    Work,
)
from jaxfl.simulation import mesh
from jaxfl.simulation.checks import check_cohorts, label_check
from jaxfl.simulation.on_disk.clients import ClientStates, check_places
from jaxfl.simulation.on_disk.federation import StoredFederation
from jaxfl.simulation.rounds import cohort_round, draw_cohort


@runtime_checkable
class StoredRounds(Protocol):
    """(key, state, start, length) -> (state, (Info [T, ...], ids [T, M]))."""

    @overload
    def __call__(
        self,
        key: PRNGKey,
        state: State,
        start: int | np.integer,
        length: int,
        *,
        compile_only: Literal[False] = False,
    ) -> tuple[State, tuple[Info, np.ndarray]]: ...

    @overload
    def __call__(
        self,
        key: PRNGKey,
        state: State,
        start: int | np.integer,
        length: int,
        *,
        compile_only: Literal[True],
    ) -> Info: ...


def make_stored_rounds(
    algorithm: Algorithm,
    participation: Participation,
    federation: StoredFederation,
    clients: ClientStates,
    *,
    work: Work | None = None,
    lost: Loss | None = None,
    trained: bool = False,
) -> StoredRounds:
    """As `jaxfl.make_rounds`, for clients on disk: the results are the same, up to rounding.

    Args:
      algorithm: what happens in a round.
      participation: (key, round) -> ids [M].
      federation: the data of all clients.
      clients: the states of all clients.
      work: how much of its local training each client does, see `make_rounds`.
      lost: whose uploads are lost, see `make_rounds`.
      trained: whether the info has the models that the clients trained in the last round [M, ...].

    Returns:
      rounds(key, state, start, length) -> (state, (Info [T, ...], ids [T, M])), NumPy arrays except
      for the state of the server. The given state can be read afterwards only if it was protected.
      It raises an InputError as `make_rounds` does, and if the state is not the newest one. With
      `compile_only=True` it compiles the program of a round and returns the shapes of its Info.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> stored = jaxfl.on_disk.write_federation("ridge-data", federation)
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3), steps=5)
      >>> algorithm = jaxfl.algorithms.local(task)
      >>> key = jax.random.key(0)
      >>> clients, state = jaxfl.on_disk.open_clients("ridge-states", algorithm, key, stored)
      >>> participation = jaxfl.participation.uniform(150, 0.1)
      >>> rounds = jaxfl.on_disk.make_stored_rounds(algorithm, participation, stored, clients)
      >>> state, (info, ids) = rounds(key, state, 0, 4)
      >>> ids.shape, info.weights.shape
      ((4, 15), (4, 15, 15))
    """
    draw = jax.jit(partial(draw_cohort, participation))
    check_label_range = label_check(algorithm)
    if algorithm.validates:
        check(
            bool(federation.count("val").any()),
            "the method learns from the clients' validation data, and no client has any: give each "
            "some, or choose another method",
        )
    if algorithm.warn_of_sizes is not None:
        algorithm.warn_of_sizes(federation.count("train"))

    @jax.jit
    def step(
        round_key: PRNGKey,
        number: Array,
        ids: Int[Array, "m"],
        before: State,
        train: Dataset,
        val: Dataset,
    ) -> tuple[State, Info]:
        cohort = Cohort(ids, train, val, number)
        return cohort_round(algorithm, round_key, before, cohort, work=work, lost=lost)

    def draw_ids(key: PRNGKey, number: int) -> tuple[PRNGKey, np.ndarray]:
        round_key, ids = draw(key, np.int32(number))
        ids = np.asarray(ids)
        check_cohorts(ids[None], federation.clients, number)
        return round_key, ids

    def read(places: np.ndarray, ids: np.ndarray, first: PyTree) -> tuple[Dataset, Dataset, PyTree]:
        train = federation.read_part("train", ids)
        val = federation.read_part("val", ids)
        return train, val, clients.read(places, ids, first)

    def rounds(
        key: PRNGKey,
        state: State,
        start: int | np.integer,
        length: int,
        *,
        compile_only: bool = False,
    ) -> tuple[State, tuple[Info, np.ndarray]] | Info:
        check_places(state.clients, federation.clients)
        places = np.array(state.clients)
        server = state.server
        infos: list[Info] = []
        cohorts: list[np.ndarray] = []
        last: Any = None
        numbers = range(int(start), int(start) + length)
        with ThreadPoolExecutor(max_workers=1) as thread:
            round_key, ids = draw_ids(key, numbers[0])
            read_future = thread.submit(read, places, ids, clients.first_of(places, ids))
            write_future: Future | None = None
            after: PyTree = None
            for number in numbers:
                train, val, states = read_future.result()
                if cohorts:
                    states = _newest(states, ids, after, cohorts[-1])
                check_label_range(Federation(train, val, val), State(states, server))
                before = mesh.place(State(states, server))
                arguments = (round_key, np.int32(number), ids, before, *mesh.place((train, val)))
                if compile_only:
                    program = step.lower(*arguments)
                    program.compile()
                    return program.out_info[1]
                cohorts.append(ids)
                # All that the devices compute of the next round: they take one program after the
                # other, and these results would else come after those of this round.
                if number != numbers[-1]:
                    round_key, ids = draw_ids(key, number + 1)
                    first = clients.first_of(places, ids)
                    read_future = thread.submit(read, places, ids, first)
                result, info = step(*arguments)
                after = mesh.fetch(result.clients)
                server = result.server
                last = info.trained if trained else None
                infos.append(mesh.fetch(info._replace(trained=None)))
                if write_future is not None:
                    write_future.result()
                write_future = thread.submit(clients.write, places, cohorts[-1], after, number + 1)
            if write_future is not None:
                write_future.result()
        stacked = jax.tree.map(lambda *x: np.stack(x), *infos)._replace(trained=last)
        return State(places, server), (stacked, np.stack(cohorts))

    # A checker cannot see that the result depends on `compile_only`.
    return cast(StoredRounds, rounds)


def _newest(states: PyTree, ids: np.ndarray, after: PyTree, earlier: np.ndarray) -> PyTree:
    """The states that were read before the last round's were written, with those of that round.

    Args:
      states: as they were read [M, ...].
      ids: their clients [M], sorted.
      after: of the last round [M, ...].
      earlier: the clients of the last round [M], sorted.
    """
    _, here, there = np.intersect1d(ids, earlier, assume_unique=True, return_indices=True)
    if not here.size:
        return states

    def replace(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        old[here] = new[there]
        return old

    return jax.tree.map(replace, states, after)
