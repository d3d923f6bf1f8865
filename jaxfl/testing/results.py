"""Rules that rounds show which are run in two ways, with the same results."""

import functools
import inspect
import tempfile
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxfl.core import tree
from jaxfl.core.errors import InputError
from jaxfl.core.facts import facts_of
from jaxfl.core.trainable import of_statistics, trainable
from jaxfl.core.types import (
    AlgorithmFactory,
    Cohort,
    Federation,
    Fitted,
    Gradient,
    Objective,
    Params,
    PRNGKey,
    State,
    Task,
)
from jaxfl.simulation import rounds
from jaxfl.testing.equality import close, differ, equal, require
from jaxfl.testing.federations import SIZES, TWINS, C, in_turns, opposite_groups, twins, uneven
from jaxfl.testing.quick_key import quick_key
from jaxfl.testing.runs import (
    between,
    cohort_of,
    full,
    half,
    honest_round,
    init_key,
    jit,
    made,
    pick,
    run,
    run_key,
    run_together,
)
from jaxfl.testing.tasks import idle, shallow


def check_padding(factory: AlgorithmFactory) -> None:
    """Rows that only pad the data change nothing, not even if they are NaN."""
    close(
        run_together(factory, uneven(), 1),
        run_together(factory, opposite_groups(sizes=SIZES, rubbish=np.nan), 1),
        1e-6,
        "with padding of 0 and of NaN (is a mean taken over the mask?)",
    )


def check_scan(factory: AlgorithmFactory) -> None:
    """A scan traces a round once and gives what single rounds give, in chunks of clients or not."""
    traces = []
    data, chunked = uneven(), made(factory, shallow, chunk=4)

    def counted(*arguments: Any) -> Any:
        traces.append(1)
        return chunked.round(*arguments)

    key = quick_key(0)
    advance = rounds.make_rounds(chunked._replace(round=counted), full(C))
    start = jit(made(factory, shallow).init)(init_key(), data.train)
    whole, said = advance(key, data, start, 0, 3)
    advance(key, data, whole, 3, 3)
    require(
        len(traces) == 1,
        f"a round is traced {len(traces)} times: its state changes its type from round to round",
    )
    alone = run(made(factory, shallow), data, 3)
    close((whole, *said), alone, message="three rounds in one program, and three programs")


def check_relabelling(factory: AlgorithmFactory) -> None:
    """Clients with other numbers get what they got with the first ones."""
    data = uneven()
    relabelled(functools.partial(honest_round, factory), data, run_together(factory, data, 2)[0])


def relabelled(step: Callable, federation: Federation, state: State) -> None:
    """A round of six clients in another order gives what it gives them in the first one."""
    order = np.array([3, 0, 5, 1, 4, 2])
    key = quick_key(7)
    plain, info = step(key, state, cohort_of(federation, np.arange(order.size)))
    moved_state = State(pick(state.clients, order), state.server)
    moved, moved_info = step(key, moved_state, cohort_of(federation, order))
    words = "clients in another order (does the place of a client in the cohort matter?):"
    close(moved.clients, pick(plain.clients, order), message=f"{words} the clients' state")
    close(moved.server, plain.server, message=f"{words} the server's state")
    close(moved_info.loss, info.loss[order], message=f"{words} info.loss")
    weights = jax.tree.map(lambda w: w[order][:, order], info.weights)
    close(moved_info.weights, weights, message=f"{words} info.weights")


def check_resume(factory: AlgorithmFactory) -> None:
    """Two rounds, a checkpoint, and two more rounds have the bits of four rounds."""
    from jaxfl.simulation import checkpoint

    algorithm, data = made(factory, shallow), twins()
    whole, info, ids = run(algorithm, data, 4, participation=in_turns())
    state, first, first_ids = run(algorithm, data, 2, participation=in_turns())
    like = jax.eval_shape(algorithm.init, quick_key(0), data.train)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(Path(folder) / "two", 2, state)
        number, restored = checkpoint.restore(Path(folder) / "two", like)
    state, second, second_ids = run(
        algorithm, data, 2, participation=in_turns(), state=restored, start=number
    )
    words = "restored and whole (what the next round needs is not in the state):"
    equal(state, whole, f"{words} the state")
    both = jax.tree.map(
        lambda a, b: np.concatenate([a, b]), (first, first_ids), (second, second_ids)
    )
    equal(both, (info, ids), f"{words} info and ids")


def check_seeds(factory: AlgorithmFactory) -> None:
    """The same seed gives the same bits, and another seed gives others."""
    once, again, other = (
        run_together(factory, uneven(), 2, key=quick_key(seed))[0] for seed in (4, 4, 5)
    )
    equal(once, again, "twice with one seed (random numbers that do not come from the key?)")
    require(differ(once, other), "two seeds give the same state: the key is not used")


def check_vmap(factory: AlgorithmFactory) -> None:
    """One program for two seeds and two values of each float option gives what each gives alone."""
    hints = {
        n: h for n, h in typing.get_type_hints(factory).items() if jax.Array in typing.get_args(h)
    }
    task, data = shallow(), uneven()
    values = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        try:
            if name in hints:
                factory(task, **{name: 0.6})
                values[name] = np.array([parameter.default or 0.6, 0.3], np.float32)
        except InputError:  # takes effect beside another hyper-parameter only
            continue

    def final(seed: Any, hyper: dict) -> State:
        algorithm, key = factory(task, **hyper), quick_key(seed)
        start = algorithm.init(jax.random.fold_in(key, 10**6), data.train)
        return rounds.make_rounds(algorithm, half(C))(key, data, start, 0, 2)[0]

    seeds, alone = np.array([1, 0]), jit(final)
    try:
        both = jit(jax.vmap(final))(seeds, values)
    except jax.errors.ConcretizationTypeError as error:
        options = ", ".join(values)
        raise AssertionError(
            f"the round branches on the value of an option ({options}): write jnp.where, or give "
            "the option a hint without Array"
        ) from error
    for i, seed in enumerate(seeds):
        one = alone(seed, {n: v[i] for n, v in values.items()})
        close(pick(both, i), one, message="side by side and alone:")


def check_absence(factory: AlgorithmFactory) -> None:
    """Clients out of the cohort are left alone."""
    algorithm, data, turns = made(factory, shallow), twins(), in_turns()
    state, _, _ = run(algorithm, data, 2, participation=turns)
    after, info, ids = run(algorithm, data, 1, state=state, participation=turns, start=2)
    require(info.loss.shape == ids.shape == (1, 4), "info of a cohort of four has other shapes")
    rest = np.setdiff1d(np.arange(TWINS), ids[0])
    words = "the state of clients that were not in the cohort:"
    equal(pick(after.clients, rest), pick(state.clients, rest), words)


def check_rows(factory: AlgorithmFactory) -> None:
    """Mixing weights are not negative, and each row sums to one."""
    _, info = run_together(factory, uneven(), 4)
    row_stochastic(info.weights)


def row_stochastic(weights: Any) -> None:
    """Requires rows [..., M, M] of weights."""
    for matrix in jax.tree.leaves(weights):
        require(matrix.min() >= 0, f"a mixing weight is {matrix.min()}: expected none below 0")
        sums = matrix.sum(axis=-1)
        require(
            np.abs(sums - 1).max() <= 1e-6,
            f"a row of mixing weights sums to {sums.flat[np.abs(sums - 1).argmax()]}: expected 1",
        )


def check_comparisons(factory: AlgorithmFactory) -> None:
    """Nothing that is compared or chosen depends on dropout or on running statistics.

    Clients move their parameters by numbers of their own, and their statistics by others, which the
    model's predictions do not use, but for whether there is dropout.
    """
    data, task = uneven(), idle()

    @jax.jit
    def two_rounds(move: Any) -> tuple:
        algorithm = factory(_still(task, move))
        start = algorithm.init(init_key(), data.train)
        advance = rounds.make_rounds(algorithm, full(C))
        state, (info, _) = advance(run_key(), data, start, 0, 2)
        models = algorithm.models(state, Cohort(jnp.arange(C), data.train, data.val))
        return trainable(state), info.weights, trainable(models)

    close(
        two_rounds(0.0),
        two_rounds(4.0),
        1e-5,
        "with other dropout and other statistics of BatchNorm, where training moves parameters all "
        "the same (is there something that core.trainable should leave out?):",
    )


def _still(task: Task, move: Any) -> Task:
    """The task in which training moves each client's parameters to a place of its own.

    No example passes through the model in training, and gradients are 0.
    """

    def moved(client: Any, start: Params) -> Params:
        def leaf(keys: tuple, x: Any) -> Any:
            if of_statistics(tree.path(keys)):
                return x + move * (1 + client)
            key = jax.random.fold_in(jax.random.fold_in(run_key(), client), x.size)
            return x + jax.random.normal(key, x.shape)

        return jax.tree_util.tree_map_with_path(leaf, start)

    def fit(key: PRNGKey, params: Params, anchor: PyTree, cohort: Cohort) -> Fitted:
        zeros = jnp.zeros(cohort.ids.size)
        return Fitted(jax.vmap(moved)(cohort.ids, params), zeros, zeros.astype(int) + 1)

    def gradient(objective: Objective) -> Gradient:
        return lambda *given: jax.tree.map(jnp.zeros_like, task.gradient(objective)(*given))

    return task._replace(trainer=lambda objective, **differing: fit, gradient=gradient)


def check_floats(factory: AlgorithmFactory) -> None:
    """Who mixes also sends, and what is sent is counted."""
    _, info = run_together(factory, uneven(), 2)
    sends = facts_of(factory).sends != ""
    mixes = sends if info.weights is None else between(info.weights).any()
    for name in ("up", "down"):
        floats = getattr(info, name)
        require(
            np.issubdtype(floats.dtype, np.integer) and (floats >= 0).all(),
            f"info.{name} is {floats}: expected whole numbers of floats",
        )
        require(
            bool((floats > 0).all()) == mixes,
            f"info.{name} is {floats[0]}, and clients {'mix' if mixes else 'do not mix'}: expected "
            f"{'a number above 0' if mixes else 'zeros'} for each client; @method(sends=...) says "
            "whether they send",
        )


RULES = (
    check_padding,
    check_scan,
    check_relabelling,
    check_resume,
    check_seeds,
    check_vmap,
    check_absence,
    check_rows,
    check_comparisons,
    check_floats,
)
