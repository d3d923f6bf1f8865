"""Rules for clients that lie, diverge, or whose examples are few."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.core.facts import facts_of
from jaxfl.core.types import AlgorithmFactory, Dataset, Info, State
from jaxfl.testing.equality import all_finite, differ, equal, require
from jaxfl.testing.federations import C, opposite_groups, uneven
from jaxfl.testing.quick_key import quick_key
from jaxfl.testing.results import row_stochastic
from jaxfl.testing.runs import (
    LIAR,
    between,
    cohort_of,
    deployed,
    evaluate_deployed,
    init_key,
    jit,
    made,
    pick,
    round_with_liar,
    run_together,
)
from jaxfl.testing.tasks import shallow


def first_state(factory: AlgorithmFactory) -> State:
    """The state of `uneven` before the first round."""
    return jit(made(factory, shallow).init)(init_key(), uneven().train)


def check_lie(factory: AlgorithmFactory) -> None:
    """One lie is felt wherever clients mix, and leaves everything finite."""
    cohort = cohort_of(uneven(), np.arange(C))

    def two_rounds(scale: float) -> tuple[State, Info]:
        state, infos = first_state(factory), []
        for number in range(2):
            key = quick_key(number)
            state, info = round_with_liar(factory)(key, state, cohort, scale, 0.0)
            infos.append(info)
        return state, jax.tree.map(lambda *x: np.stack(x), *infos)

    state, info = two_rounds(1.0)
    misled, told = two_rounds(-100.0)
    others = None if info.weights is None else between(info.weights)
    sends = facts_of(factory).sends != ""
    if not sends or (others is not None and not others.any()):
        require(
            not differ(state, misled),
            "a lying upload changes the state, and the weights or @method(sends=...) say that "
            "nobody learns from uploads",
        )
    elif others is None or others[:, :, LIAR].max() > 1e-3:  # a robust rule may not choose it
        require(
            differ(state, misled),
            "a lying upload changes nothing, and the weights say that others learn from it: what "
            "the server receives must have gone through task.upload",
        )
    all_finite((misled, told), "after a lie of 100 times the model")


def check_not_finite(factory: AlgorithmFactory, rubbish: float = np.nan) -> None:
    """A client whose update is not finite is named, and left out until it is finite again."""
    data, broken, others = uneven(), 2, np.delete(np.arange(C), 2)

    def spoil(part: Dataset) -> Dataset:
        x = np.array(part.x)
        x[broken] = rubbish
        return part._replace(x=jax.device_put(x))

    spoilt = data._replace(train=spoil(data.train), val=spoil(data.val))
    start = jit(made(factory, shallow).init)(quick_key(1), data.train)
    state, info = run_together(factory, spoilt, 2, state=start)
    words = f"one client's examples are {rubbish}"
    require(
        (info.reported == (np.arange(C) != broken)).all(),
        f"{words}: info.reported is {info.reported[0]}, expected all but client {broken}; its "
        "upload must not reach the server's state",
    )
    all_finite((state, info.weights, info.metrics), words)
    require(np.isfinite(info.loss[:, others]).all(), f"{words}: the loss of another is not finite")
    for matrix in jax.tree.leaves(info.weights):
        require(
            (matrix[:, others, broken] == 0).all(),
            f"{words}: others give it the weight {matrix[:, others, broken].max():.3g}, expected 0",
        )
    row_stochastic(info.weights)
    healed, told = run_together(factory, data, 1, state=state, start=2)
    require(told.reported.all(), "a client that is finite again is still left out")
    require(
        differ(pick(state.clients, others), pick(healed.clients, others))
        or differ(state.server, healed.server),
        "nothing changes any more after a round in which a client was not finite",
    )


def check_overflow(factory: AlgorithmFactory) -> None:
    """An upload whose squares overflow counts as not finite.

    One client cannot keep the others from learning by finite numbers, whatever their size.
    """
    others = np.delete(np.arange(C), LIAR)
    given = (quick_key(3), first_state(factory), cohort_of(uneven(), np.arange(C)), 0.0)
    state, info = round_with_liar(factory)(*given, jnp.nan)
    require(info.reported[others].all(), "a NaN in one upload keeps others from being heard")
    for number in (3e38, -1e20, 2e15):
        words = f"an upload of {number:g} is not left out as NaN is:"
        equal(round_with_liar(factory)(*given, number), (state, info), words)


def check_silence(factory: AlgorithmFactory) -> None:
    """Where nobody reports everything stays finite."""
    data = uneven()
    spoilt = data._replace(train=data.train._replace(x=data.train.x * np.nan))
    state, info = run_together(factory, spoilt, 1)
    require(not info.reported.any(), "all examples are NaN, and info.reported names clients")
    all_finite((state, info.weights), "where nobody reports")
    row_stochastic(info.weights)


def check_one_example(factory: AlgorithmFactory) -> None:
    """A client with one example is served."""
    data = opposite_groups(sizes=[1, 40, 40, 40, 40, 40])
    algorithm = made(factory, shallow)
    state, info = run_together(factory, data, 2)
    all_finite((state, info), "a client has one example")
    models = deployed(algorithm, state, C, data)
    scores = evaluate_deployed(algorithm, shallow(steps=20), data, models)
    require(
        np.isnan(scores.deployed.val).tolist() == [True] + [False] * 5,
        "a client without validation data has a validation score",
    )
    require(np.isfinite(scores.deployed.test).all(), "a test score is not finite")


RULES = (
    check_lie,
    check_not_finite,
    check_overflow,
    check_silence,
    check_one_example,
)
