"""A run is one scan over rounds: draw a cohort, gather its state and data, run a round, scatter.

Nothing here depends on the algorithm.
"""

from functools import partial, wraps
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Int, PyTree

from jaxfl.core import tree
from jaxfl.core.errors import Diverged, InputError, check
from jaxfl.core.streams import stream
from jaxfl.core.types import (
    Algorithm,
    Cohort,
    Federation,
    Info,
    Loss,
    Participation,
    PRNGKey,
    State,
    Work,
)
from jaxfl.simulation.checks import (
    check_algorithm,
    check_client_axis,
    check_cohorts,
    check_federation,
    check_key,
    check_structure,
    check_validation,
    label_check,
    warn_of_sizes,
)
from jaxfl.simulation.mesh import fetch


@runtime_checkable
class Rounds(Protocol):
    """(key, federation, state, start, length) -> (state, (Info [T, ...], ids [T, M]))."""

    def __call__(
        self,
        key: PRNGKey,
        federation: Federation,
        state: State,
        start: int | np.integer | Array,
        length: int,
    ) -> tuple[State, tuple[Info, Array]]:
        """See `make_rounds`."""
        ...


def make_rounds(
    algorithm: Algorithm,
    participation: Participation,
    *,
    work: Work | None = None,
    lost: Loss | None = None,
    trained: bool = False,
    donate: bool = False,
) -> Rounds:
    """The jitted function that runs rounds `start`, ..., `start + length - 1`.

    Round t takes all its random numbers from `fold_in(key, t)`. Therefore 6 rounds equal 3 rounds
    and 3 more from the state in between, bit for bit. The function is pure: `vmap` it over keys and
    states for several seeds.

    Args:
      algorithm: what happens in a round.
      participation: (key, round) -> ids [M], each client at most once; the order does not matter.
      work: (key, ids [M]) -> the fraction of its local steps that each client takes [M], such as
        `work.stragglers`. None: all clients take all steps.
      lost: (key, ids [M], work [M] or None) -> whose uploads are lost [M], such as `work.drop`.
        None: all uploads arrive.
      trained: whether the info has the models that the clients trained in the last round [M, ...].
      donate: whether a call takes the memory of the state that it is given, which is gone then. So
        states need half the memory; it has no effect on platforms without donation or in a trace.

    Returns:
      rounds(key, federation, state, start, length) -> (state, (Info [T, ...], ids [T, M]));
      `length` is static. Where its arguments are not traced, it raises an InputError if the state
      is not one of this algorithm and these clients, if the algorithm learns from validation data
      and there are none, if a label is out of range for the model, or
      if a cohort names a client twice or a client that does not exist. It does not raise an error
      if clients diverge: see `check_finite`.

    Raises:
      InputError: something else stands in the place of the algorithm or the participation.

    Example:
      >>> federation = jaxfl.data.ridge(0, dim=3).federation  # of 150 clients
      >>> task = jaxfl.regression(jaxfl.models.linear(), np.zeros(3), steps=5)
      >>> algorithm = jaxfl.algorithms.fedavg(task)
      >>> rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.uniform(150, 0.1))
      >>> key = jax.random.key(0)
      >>> state, (info, ids) = rounds(key, federation, algorithm.init(key, federation.train), 0, 4)
      >>> ids.shape, info.weights.shape
      ((4, 15), (4, 15, 15))
    """
    check_algorithm(algorithm)
    check(
        callable(participation),
        f"the participation is {participation!r:.60}: expected a function such as "
        "jaxfl.participation.uniform(clients, fraction)",
    )

    def one_round(key: PRNGKey, federation: Federation, state: State, number: Int[Array, ""]):
        round_key, ids = draw_cohort(participation, key, number)
        clients = federation.train.mask.shape[0]
        check(
            ids.size <= clients,
            f"the participation names {ids.size} clients a round, the federation has {clients}: "
            "make the participation for these clients",
        )
        everybody = ids.size == clients
        if everybody:
            # The sorted ids are those of all clients in order, so nothing has to be copied.
            cohort = Cohort(ids, federation.train, federation.val, number)
            before = state
        else:
            train, val = tree.take((federation.train, federation.val), ids)
            cohort = Cohort(ids, train, val, number)
            before = State(tree.take(state.clients, ids), state.server)
        after, info = cohort_round(algorithm, round_key, before, cohort, work=work, lost=lost)
        if not everybody:
            after = State(tree.put(state.clients, ids, after.clients), after.server)
        return after, info, ids

    @partial(jax.jit, static_argnames="length", donate_argnames="state" if donate else None)
    def scan(
        key: PRNGKey,
        federation: Federation,
        state: State,
        start: int | np.integer | Array,
        length: int,
    ):
        def step(carry: tuple, number: Int[Array, ""]):
            after, info, ids = one_round(key, federation, carry[0], number)
            last = info.trained if trained else None
            return (after, last), (info._replace(trained=None), ids)

        last = None
        if trained:
            shapes = jax.eval_shape(one_round, key, federation, state, start)[1].trained
            last = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        (after, last), (info, ids) = lax.scan(step, (state, last), start + jnp.arange(length))
        return after, (info._replace(trained=last), ids)

    check_label_range = label_check(algorithm)

    @wraps(scan)
    def rounds(
        key: PRNGKey,
        federation: Federation,
        state: PyTree,
        start: int | np.integer | Array,
        length: int,
    ) -> tuple[State, tuple[Info, Array]]:
        if any(isinstance(x, Tracer) for x in jax.tree.leaves((key, federation, state, start))):
            return scan(key, federation, state, start, length)
        check_key(key)
        check_federation(federation)
        check_client_axis(federation, state)
        check(
            isinstance(length, int | np.integer) and length >= 0,
            f"the number of rounds is {length!r:.60}: expected a whole number, 0 or more",
        )
        check_validation(algorithm, federation)
        if start == 0:
            warn_of_sizes(algorithm, federation)
        check_label_range(federation, state)
        try:
            after, (info, ids) = scan(key, federation, state, start, length)
        except InputError:
            raise
        except Exception:
            check_structure(algorithm, key, federation, state)
            raise
        # They are traced if the algorithm's hyper-parameters are.
        if not isinstance(ids, Tracer):
            check_cohorts(ids, federation.train.mask.shape[0], int(start))
        return after, (info, ids)

    return rounds


def draw_cohort(
    participation: Participation, key: PRNGKey, number: Int[Array, ""]
) -> tuple[PRNGKey, Int[Array, "m"]]:
    """The key of round `number`, and the sorted ids of its clients [M].

    Args:
      participation: (key, round) -> ids [M].
      key: of all rounds.
      number: of the round.

    Example:
      >>> _, ids = draw_cohort(jaxfl.participation.full(3), jax.random.key(0), jnp.array(0))
      >>> ids.tolist()
      [0, 1, 2]
    """
    sample_key, round_key = jax.random.split(jax.random.fold_in(key, number))
    return round_key, jnp.sort(participation(sample_key, number))


def cohort_round(
    algorithm: Algorithm,
    round_key: PRNGKey,
    before: State,
    cohort: Cohort,
    *,
    work: Work | None = None,
    lost: Loss | None = None,
) -> tuple[State, Info]:
    """One round of a cohort, whose state changes only where the new state is finite.

    Args:
      algorithm: what happens in a round.
      round_key: of `draw_cohort`.
      before: the state, with the clients of the cohort only [M, ...].
      cohort: the clients of the round.
      work: see `make_rounds`, as for `lost`.
      lost: whose uploads are lost; the info says it.

    Example:
      >>> algorithm = jaxfl.algorithms.fedavg(task)
      >>> key = jax.random.key(0)
      >>> state = algorithm.init(key, cohort.train)
      >>> cohort_round(algorithm, key, state, cohort)[1].reported.tolist()
      [True, True, True, True]
    """
    if work is not None:
        cohort = cohort._replace(work=work(stream(round_key, "work"), cohort.ids))
    if lost is not None:
        lost_uploads = lost(stream(round_key, "lost"), cohort.ids, cohort.work)
        cohort = cohort._replace(lost=lost_uploads)
    after, info = keep_finite(before, *algorithm.round(round_key, before, cohort))
    return after, info._replace(lost=cohort.lost)


def keep_finite(before: State, after: State, info: Info) -> tuple[State, Info]:
    """The state after a round where it is finite, and the state before the round where it is not.

    A client keeps its state from before if it has not reported, or if its new state is not finite.
    If the server's new state is not finite, no state changes and no client counts as reported.
    The new state has the types of the old one, in whatever types a method computes.

    Example:
      >>> before, after = State(jnp.zeros(2), ()), State(jnp.array([1.0, jnp.nan]), ())
      >>> info = Info(jnp.zeros(2), None, None, None, None, reported=jnp.ones(2, bool))
      >>> state, info = keep_finite(before, after, info)
      >>> state.clients.tolist(), info.reported.tolist()
      ([1.0, 0.0], [True, False])
    """
    after = State(*tree.cast_like(tuple(after), tuple(before)))
    server_finite = tree.finite(tree.broadcast(after.server, 1), 1)[0]
    reported = info.reported & server_finite & tree.finite(after.clients, info.loss.size)
    clients = tree.choose(reported, after.clients, before.clients)
    server = tree.where(server_finite, after.server, before.server)
    return State(clients, server), info._replace(reported=reported)


def check_finite(info: Info, ids: Array | np.ndarray, start: int = 0) -> None:
    """Raises an error if an update of a client was not finite, and so was left out of its round.

    The loss of a round is not finite either if the model or the data are at fault. An update that
    was lost on its way is no error.

    Args:
      info: of some rounds, as `make_rounds` returns it; its arrays may have an axis of seeds first.
      ids: the clients of these rounds, as `make_rounds` returns them.
      start: the number of the first of these rounds.

    With several processes, each of them must call it.

    Raises:
      Diverged: it names the first round in which a client has not reported, and its clients.

    Example:
      >>> reported = np.array([[True, True], [True, False]])
      >>> info = Info(loss=None, weights=None, up=None, down=None, batches=None, reported=reported)
      >>> jaxfl.check_finite(info, ids=np.array([[4, 7], [4, 7]]))
      Traceback (most recent call last):
      jaxfl.core.errors.Diverged: an update of client 7 was not finite in round 1, ...
    """
    reported = _whole(info.reported)
    if info.lost is not None:
        reported = reported | _whole(info.lost)
    left_out = np.argwhere(~reported)
    if not left_out.size:
        return
    first = left_out[:, -2].min()
    clients = np.unique(_whole(ids)[..., first, :][~reported[..., first, :]])
    names = ", ".join(map(str, clients[:5])) + (", ..." if clients.size > 5 else "")
    raise Diverged(
        f"an update of client {names} was not finite in round {start + first}, and was left out: "
        "lower the learning rate, or look for labels and inputs that the model cannot take"
    )


def _whole(array: Array | np.ndarray) -> np.ndarray:
    """The array with the parts that other processes have."""
    if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    return np.asarray(fetch(array))
