"""Runs a config: compile once, then a host loop over jitted stretches of rounds, one record an evaluation."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jaxfl import mesh
from jaxfl.evaluate import Evaluation, make_evaluate
from jaxfl.experiment.build import Built
from jaxfl.experiment.config import Config
from jaxfl.rounds import make_rounds
from jaxfl.types import Info, State

START = np.int32(0)  # round numbers are int32 throughout
INIT, ROUNDS, EVALUATE = range(3)  # streams of a run's random numbers


@dataclass(frozen=True)
class Program:
    """A run, compiled."""

    built: Built
    state: State  # before round 0; running consumes it
    advance: dict[int, Callable]  # (state, start) -> (state, (Info, ids)), by number of rounds
    evaluate: Callable  # (state, round, ids) -> Evaluation
    # state -> the models that all clients deploy [C, ...], with several seeds [S, C, ...]
    deploy: Callable
    seconds: float  # spent on compiling
    done: int = 0  # rounds that `state` has behind it
    before: float = 0.0  # seconds that they took


@dataclass(frozen=True)
class Record:
    """A stretch of rounds, and the evaluation after it if one is due; NumPy arrays, seeds [S] first."""

    round: int  # rounds done
    seconds: float  # since the start, without compiling
    evaluation: Evaluation | None  # [S, E]
    evaluated: np.ndarray  # [S, E] ids of the clients evaluated
    info: Info  # [S, L, ...] of the L rounds since the last record
    ids: np.ndarray  # [S, L, M] ids of the cohorts
    state: State  # after it, on the devices; gone when the next stretch begins


def stops(rounds: int, every: int | None) -> list[int]:
    """The numbers of rounds after which to do something: every so many, and at the end."""
    return sorted({*range(every or rounds, rounds + 1, every or rounds), rounds})


def stretches(config: Config) -> list[tuple[int, int]]:
    """(first round, the one after the last) of what runs without a break for an evaluation or a checkpoint."""
    ends = {
        *stops(config.rounds, config.eval_every),
        *stops(config.rounds, config.checkpoint_every),
    }
    return list(pairwise([0, *sorted(ends)]))


def each_seed(function: Callable, seeds: int, axes: tuple[int | None, ...]) -> Callable:
    """`function` of one seed for all of them: the function itself if there is one seed, else its `vmap`."""
    return jax.vmap(function, in_axes=axes) if seeds > 1 else function


def compile_run(built: Built) -> Program:
    """Compiles everything that the run will execute, so that later times are of computation alone."""
    began = time.perf_counter()
    config, federation = built.config, built.data.federation
    seeds = config.seeds
    numbers = (
        np.arange(config.seed, config.seed + seeds, dtype=np.uint32)
        if seeds > 1
        else np.uint32(config.seed)
    )

    def stream(seed: Array, number: int) -> jax.Array:
        return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), number)

    def init(seed, federation):
        return built.algorithm.init(stream(seed, INIT), federation.train)

    rounds = make_rounds(built.algorithm, built.participation)
    evaluate = make_evaluate(built.algorithm, built.task, chunk=config.chunk)

    def advance(length, seed, federation, state, start):
        return rounds(stream(seed, ROUNDS), federation, state, start, length=length)

    def assess(seed, federation, state, number, ids):
        return evaluate(jax.random.fold_in(stream(seed, EVALUATE), number), federation, state, ids)

    with jax.set_mesh(mesh.make_mesh(config.devices)):
        state = jax.jit(each_seed(init, seeds, (0, 0)))(numbers, federation)
        state = mesh.place(state, axis=int(seeds > 1))
        layout = jax.tree.map(lambda x: x.sharding, state)  # of what comes out as of what goes in
        programs = {}
        for length in {end - start for start, end in stretches(config)}:
            many = each_seed(partial(advance, length), seeds, (0, 0, 0, None))
            compiled = jax.jit(many, donate_argnums=2, out_shardings=(layout, None))
            programs[length] = partial(
                compiled.lower(numbers, federation, state, START).compile(), numbers, federation
            )
        cohort = jax.eval_shape(built.participation, jax.random.key(0), START)
        ids = cohort if config.eval_on == "participants" else jnp.arange(config.clients)
        ids = np.zeros((seeds, ids.size) if seeds > 1 else ids.size, cohort.dtype)
        many = jax.jit(each_seed(assess, seeds, (0, 0, 0, None, 0)))
        assessed = many.lower(numbers, federation, state, START, ids).compile()
        deploy = jax.jit(
            each_seed(
                lambda state: built.algorithm.models(state, jnp.arange(config.clients)), seeds, (0,)
            )
        )
        if config.checkpoint_every:  # whose best models are then kept
            deploy = deploy.lower(state).compile()
    compiling = time.perf_counter() - began
    return Program(
        built, state, programs, partial(assessed, numbers, federation), deploy, compiling
    )


def run(program: Program) -> Iterator[Record]:
    """Executes the run, or what remains of it; yields a record after each stretch."""
    config = program.built.config
    several = config.seeds > 1
    began = time.perf_counter() - program.before
    state, due = program.state, stops(config.rounds, config.eval_every)
    for start, end in stretches(config):
        if start < program.done:
            continue
        state, (info, ids) = program.advance[end - start](state, np.int32(start))
        ids = mesh.fetch(ids)
        everyone = np.broadcast_to(
            np.arange(config.clients, dtype=ids.dtype), (*ids.shape[:-2], config.clients)
        )
        evaluated = ids[..., -1, :] if config.eval_on == "participants" else everyone
        evaluation = (
            mesh.fetch(program.evaluate(state, np.int32(end), evaluated)) if end in due else None
        )
        host = (evaluation, evaluated, mesh.fetch(info), ids)
        seconds = time.perf_counter() - began
        evaluation, evaluated, info, ids = (
            host if several else jax.tree.map(lambda x: x[None], host)
        )
        yield Record(end, seconds, evaluation, evaluated, info, ids, state)


def versions() -> dict[str, Any]:
    """Versions of what computes, and the device that did."""
    import platform
    from importlib.metadata import version

    names = ("jaxfl", "jax", "jaxlib", "flax", "optax", "numpy")
    device = jax.devices()[0]
    return (
        {"python": platform.python_version()}
        | {n: version(n) for n in names}
        | {"device": device.device_kind}
    )
