"""A run is one scan over rounds: draw a cohort, gather its state and data, run a round, scatter.

Nothing here depends on the algorithm.
"""

from collections.abc import Callable
from functools import partial, wraps

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Int, PyTree

from jaxfl import tree
from jaxfl.errors import Diverged, InputError, check
from jaxfl.types import Algorithm, Cohort, Federation, Info, Participation, PRNGKey, State

# (key, federation, state, start, length) -> (state, (Info [T, ...], ids [T, M]))
Rounds = Callable[..., tuple[State, tuple[Info, Array]]]


def make_rounds(
    algorithm: Algorithm, participation: Participation, *, trained: bool = False
) -> Rounds:
    """The jitted function that runs rounds `start`, ..., `start + length - 1`.

    Round t takes all its random numbers from `fold_in(key, t)`. Therefore 6 rounds equal 3 rounds
    and 3 more from the state in between, bit for bit. The function is pure: `vmap` it over keys and
    states for several seeds.

    Args:
      algorithm: what happens in a round.
      participation: (key, round) -> ids [M], each client at most once; the order does not matter.
      trained: whether the info has the models that the clients trained in the last round [M, ...].

    Returns:
      rounds(key, federation, state, start, length) -> (state, (Info [T, ...], ids [T, M]));
      `length` is static. Where its arguments are not traced, it raises an InputError if the state
      is not one of this algorithm and these clients, if the algorithm learns from validation data
      and there are none, if a label is out of range for the model, or
      if a cohort names a client twice or a client that does not exist. It does not raise an error
      if clients diverge: see `check_finite`.
    """

    def one_round(key: PRNGKey, federation: Federation, state: State, number: Int[Array, ""]):
        sample_key, round_key = jax.random.split(jax.random.fold_in(key, number))
        ids = jnp.sort(participation(sample_key, number))
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
        after, info = keep_finite(before, *algorithm.round(round_key, before, cohort))
        if not everybody:
            after = State(tree.put(state.clients, ids, after.clients), after.server)
        return after, info, ids

    @partial(jax.jit, static_argnames="length")
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

    labels = _LabelCheck(algorithm)

    @wraps(scan)
    def rounds(
        key: PRNGKey,
        federation: Federation,
        state: PyTree,
        start: int | np.integer | Array,
        length: int,
    ):
        if any(isinstance(x, Tracer) for x in jax.tree.leaves((key, federation, state, start))):
            return scan(key, federation, state, start, length)
        _check_client_axis(federation, state)
        check_validation(algorithm, federation)
        labels(federation, state)
        try:
            after, (info, ids) = scan(key, federation, state, start, length)
        except InputError:
            raise
        except Exception:
            _check_structure(algorithm, key, federation, state)
            raise
        _check_cohorts(ids, federation.train.mask.shape[0], int(start))
        return after, (info, ids)

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


def check_finite(info: Info, ids: Array | np.ndarray, start: int = 0) -> None:
    """Raises an error if an update of a client was not finite, and so was left out of its round.

    The loss of a round is not finite either if the model or the data are at fault.

    Args:
      info: of some rounds, as `make_rounds` returns it; its arrays may have an axis of seeds first.
      ids: the clients of these rounds, as `make_rounds` returns them.
      start: the number of the first of these rounds.

    Raises:
      Diverged: it names the first round in which a client has not reported, and its clients.
    """
    reported = np.asarray(info.reported)
    left_out = np.argwhere(~reported)
    if not left_out.size:
        return
    first = left_out[:, -2].min()
    clients = np.unique(np.asarray(ids)[..., first, :][~reported[..., first, :]])
    names = ", ".join(map(str, clients[:5])) + (", ..." if clients.size > 5 else "")
    raise Diverged(
        f"an update of client {names} was not finite in round {start + first}, and was left out: "
        "lower the learning rate, or look for labels and inputs that the model cannot take"
    )


def check_validation(algorithm: Algorithm, federation: Federation) -> None:
    """Raises an `InputError` if the algorithm learns from validation data and no client has any."""
    mask = federation.val.mask
    if not algorithm.validates or not getattr(mask, "is_fully_addressable", True):
        return
    check(
        bool((mask > 0).any()),
        "the method learns from the clients' validation data, and no client has any: give each "
        "some, such as a fifth of its examples (--val 0.2), or choose another method",
    )


def _check_client_axis(federation: Federation, state: PyTree) -> None:
    """Raises an `InputError` unless the state has one row for each client of the federation."""
    check(
        isinstance(state, State),
        f"the state has type {type(state).__name__}: expected the State of algorithm.init",
    )
    clients = federation.train.mask.shape[0]
    wrong = [np.shape(x) for x in jax.tree.leaves(state.clients) if np.shape(x)[:1] != (clients,)]
    check(
        not wrong,
        f"the state has clients' arrays of shape {wrong[:1]}, the federation has {clients} "
        "clients: expected a row for each; make the state by algorithm.init of this federation",
    )


def _check_structure(
    algorithm: Algorithm, key: PRNGKey, federation: Federation, state: State
) -> None:
    """Raises an `InputError` if the state is not one that this algorithm makes."""
    expected = jax.eval_shape(algorithm.init, key, federation.train)
    same = jax.tree.structure(expected) == jax.tree.structure(state) and all(
        made.shape == np.shape(given)
        for made, given in zip(jax.tree.leaves(expected), jax.tree.leaves(state), strict=True)
    )
    check(
        same,
        "the state is of another algorithm, model or federation: expected one with the arrays "
        f"{_shapes(expected)}, got {_shapes(state)}; make it by algorithm.init",
    )


def _shapes(tree: PyTree) -> str:
    shapes = [str(np.shape(x)) for x in jax.tree.leaves(tree)]
    return ", ".join(shapes[:6]) + (", ..." if len(shapes) > 6 else "")


class _LabelCheck:
    """Checks labels against the number of the model's outputs, once for each federation."""

    def __init__(self, algorithm: Algorithm):
        self.algorithm = algorithm
        self.outputs: int | None = None
        self.checked: tuple = ()

    def __call__(self, federation: Federation, state: State) -> None:
        """Raises an `InputError` if a label is out of range.

        Targets are labels if they are integers, one an example, and the model has several outputs.
        """
        targets = tuple(part.y for part in federation)
        if len(self.checked) == 3 and all(
            x is y for x, y in zip(targets, self.checked, strict=True)
        ):
            return
        self.checked = targets
        for name, part in federation._asdict().items():
            local = getattr(part.y, "is_fully_addressable", True)
            if not local or part.y.dtype.kind not in "iu" or part.y.size == 0:
                continue
            if self.outputs is None:
                self.outputs = _outputs(self.algorithm, federation, state)
            if self.outputs < 2:
                return
            counts = np.asarray(part.mask) > 0
            labels = np.asarray(part.y)
            if counts.ndim > labels.ndim:  # a pool
                counts = counts.any(axis=0)
            if counts.shape != labels.shape or not counts.any():
                continue
            low, high = labels[counts].min(), labels[counts].max()
            check(
                low >= 0 and high < self.outputs,
                f"the {name} data hold labels from {low} to {high}, the model has {self.outputs} "
                f"outputs: expected labels from 0 to {self.outputs - 1}, or a model with more "
                "outputs",
            )


def _outputs(algorithm: Algorithm, federation: Federation, state: State) -> int:
    """The number of outputs of the model that a client deploys; 0 if it cannot be told."""

    def predict(federation: Federation, state: State) -> Array:
        train = jax.tree.map(lambda x: x[:1], federation.train)
        val = jax.tree.map(lambda x: x[:1], federation.val)
        models = algorithm.models(state, Cohort(jnp.arange(1), train, val))
        model, train = jax.tree.map(lambda x: x[0], (models, train))
        if algorithm.recall is not None:
            model = algorithm.recall(model, train)
        return algorithm.apply(model, train.x[:1])

    try:
        predictions = jax.eval_shape(predict, federation, state)
    except Exception:  # the round itself says what is wrong
        return 0
    return predictions.shape[1] if len(predictions.shape) == 2 else 0


def _check_cohorts(ids: Array, clients: int, start: int) -> None:
    """Raises an `InputError` if a cohort [T, M] names a client twice, or one that there is not."""
    if not getattr(ids, "is_fully_addressable", True):
        return
    rows = np.asarray(ids)
    outside = (rows < 0) | (rows >= clients)
    twice = np.zeros(rows.shape, bool)
    twice[:, 1:] = rows[:, 1:] == rows[:, :-1]  # the ids of a round are sorted
    for wrong, what in ((outside, "names client"), (twice, "names twice client")):
        if wrong.any():
            number, place = np.argwhere(wrong)[0]
            raise InputError(
                f"the participation {what} {rows[number, place]} in round {start + number}: "
                f"expected each of the clients 0 to {clients - 1} at most once"
            )
