"""What a run computes: three functions of one seed, compiled for all seeds of the run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl import mesh
from jaxfl.evaluate import After, Evaluation, make_evaluate
from jaxfl.experiment.config import Config, devices_of
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.clients import unseen
from jaxfl.rounds import make_rounds
from jaxfl.rounds_checks import check_validation
from jaxfl.types import Algorithm, Cohort, Federation, Info, State

START = np.int32(0)  # round numbers are int32 throughout
INIT, ROUNDS, EVALUATE = range(3)  # streams of a run's random numbers


class OneSeed(NamedTuple):
    """The computation of a run for one seed, pure functions of the seed and its federation."""

    # (seed, federation) -> state
    init: Callable[[Array, Federation], State]
    # (rounds, seed, federation, state, start) -> (state, (Info, ids) of each round)
    advance: Callable[..., tuple[State, tuple[Info, Array]]]
    # (seed, federation, state, rounds done, ids, trained) -> Evaluation
    assess: Callable[..., Evaluation]


def evaluated_ids(built: Built, ids: np.ndarray) -> np.ndarray:
    """The clients that an evaluation scores [E], with several seeds [S, E].

    Args:
      built: the run.
      ids: the clients of the last round [M] or [S, M].
    """
    clients = np.arange(built.config.clients, dtype=ids.dtype)
    if built.config.eval_on == "all":
        return np.broadcast_to(clients, (*ids.shape[:-1], clients.size))
    newcomers = clients[unseen(built.config)]
    newcomers = np.broadcast_to(newcomers, (*ids.shape[:-1], newcomers.size))
    return np.concatenate([ids, newcomers], axis=-1)


def one_seed(built: Built, algorithm: Algorithm, after: After) -> OneSeed:
    """The computation of a run for one seed.

    Args:
      built: the run.
      algorithm: the run's own, or the same with other hyper-parameters.
      after: what is scored beside the deployed models.
    """
    rounds = make_rounds(algorithm, built.participation, trained=after == "trained")
    evaluate = make_evaluate(algorithm, built.task, chunk=built.config.chunk, after=after)

    def stream(seed: Array, number: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), number)

    def init(seed, federation):
        return algorithm.init(stream(seed, INIT), federation.train)

    def advance(length, seed, federation, state, start):
        return rounds(stream(seed, ROUNDS), federation, state, start, length=length)

    def assess(seed, federation, state, number, ids, trained=None):
        key = jax.random.fold_in(stream(seed, EVALUATE), number)
        # Fine-tuning has the learning rate of the last round.
        return evaluate(key, federation, state, ids, trained, round=number - 1)

    return OneSeed(init, advance, assess)


@dataclass(frozen=True)
class Program:
    """A run, compiled."""

    built: Built
    state: State  # before round 0; running consumes it
    advance: dict[int, Callable]  # (state, start) -> (state, (Info, ids)), by number of rounds
    evaluate: Callable  # (state, round, ids, trained) -> Evaluation
    # state -> the models that all clients deploy [C, ...], with several seeds [S, C, ...]
    deploy: Callable
    seconds: float  # spent on compiling
    done: int = 0  # rounds that `state` has behind it
    before: float = 0.0  # seconds that they took


def stops(rounds: int, every: int | None) -> list[int]:
    """The numbers of rounds after which to do something: every so many, and at the end."""
    return sorted({*range(every or rounds, rounds + 1, every or rounds), rounds})


def stretches(config: Config, done: int = 0) -> list[tuple[int, int]]:
    """(first round, the one after the last) of what runs without a break.

    Breaks are for evaluations and checkpoints.

    Args:
      config: of the run.
      done: rounds that are already done.
    """
    evaluations = stops(config.rounds, config.eval_every)
    checkpoints = stops(config.rounds, config.checkpoint_every)
    breaks = {stop for stop in (*evaluations, *checkpoints) if stop > done}
    return list(pairwise(sorted({done, *breaks})))


def compile_run(built: Built, done: int = 0) -> Program:
    """Compiles everything that the run will execute: later times are of computation alone.

    Args:
      built: the run.
      done: rounds that are already done; a checkpoint has their state.
    """
    began = time.perf_counter()
    config, federation, seeds = built.config, built.data.federation, built.seeds
    init, advance, assess = one_seed(built, built.algorithm, config.score_after)
    numbers = seeds.argument()

    def models(federation, state):
        ids = jnp.arange(config.clients)
        everybody = Cohort(ids, federation.train, federation.val)
        return built.algorithm.models(state, everybody)

    check_validation(built.algorithm, federation)
    with jax.set_mesh(mesh.make_mesh(devices_of(config))):
        state = jax.jit(seeds.each(init, (0, 0)))(numbers, federation)
        state = mesh.place(state, axis=seeds.client_axis)
        layout = jax.tree.map(lambda x: x.sharding, state)  # of what comes out as of what goes in
        programs, trained = {}, None
        for length in {end - start for start, end in stretches(config, done)}:
            many = seeds.each(partial(advance, length), (0, 0, 0, None))
            compiled = jax.jit(many, donate_argnums=2, out_shardings=(layout, None))
            lowered = compiled.lower(numbers, federation, state, START)
            programs[length] = partial(lowered.compile(), numbers, federation)
            trained = lowered.out_info[1][0].trained
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), trained)
        trained = mesh.place(zeros, axis=seeds.client_axis)
        cohort = jax.eval_shape(built.participation, jax.random.key(0), START)
        ids = evaluated_ids(built, np.zeros(seeds.shape(cohort.size), cohort.dtype))
        many = jax.jit(seeds.each(assess, (0, 0, 0, None, 0, 0)))
        assessed = many.lower(numbers, federation, state, START, ids, trained).compile()
        deploy = jax.jit(seeds.each(models, (0, 0)))
        if config.keep_models:
            deploy = deploy.lower(federation, state).compile()
    compiling = time.perf_counter() - began
    return Program(
        built,
        state,
        programs,
        partial(assessed, numbers, federation),
        partial(deploy, federation),
        compiling,
        done,
    )
