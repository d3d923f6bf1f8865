"""What a run computes: four functions of one seed, compiled for all seeds of the run."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import tree
from jaxfl.core.options import checked
from jaxfl.core.types import Algorithm, Cohort, Federation, Info, Params, State
from jaxfl.experiment.session.build import Built
from jaxfl.simulation import mesh
from jaxfl.simulation.checks import check_validation, warn_of_sizes
from jaxfl.simulation.evaluate import make_evaluate_models
from jaxfl.simulation.evaluation import After, Evaluation
from jaxfl.simulation.rounds import make_rounds

START = np.int32(0)  # round numbers are int32 throughout
INIT, ROUNDS, EVALUATE = range(3)  # streams of a run's random numbers
LONGEST_NAP = 0.02  # seconds between two looks at a computation under way


@partial(jax.jit, static_argnums=1)
def random_stream(seed: Array | np.uint32, number: int) -> jax.Array:
    """The key of one of a run's streams of random numbers."""
    return jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), number)


class OneSeed(NamedTuple):
    """The computation of a run for one seed, pure functions of the seed and its federation."""

    # (seed, federation) -> state
    init: Callable[[Array, Federation], State]
    # (rounds, seed, federation, state, start) -> (state, (Info, ids) of each round)
    advance: Callable[..., tuple[State, tuple[Info, Array]]]
    # (federation, state, ids) -> the models that these clients deploy
    deploy: Callable[[Federation, State, Array], Params]
    # (seed, federation, deployed, rounds done, ids, trained) -> Evaluation
    assess: Callable[..., Evaluation]


@dataclass(frozen=True)
class Program:
    """A run, compiled."""

    built: Built
    state: State  # before round 0; running consumes it
    advance: dict[int, Callable]  # (state, start) -> (state, (Info, ids)), by number of rounds
    evaluate: Callable  # (state, round, ids, trained) -> Evaluation
    # state -> the models that all clients deploy [C, ...], with several seeds [S, C, ...]; for runs
    # that keep models
    deploy: Callable
    seconds: float  # spent on compiling
    done: int = 0  # rounds that `state` has behind it
    before: float = 0.0  # seconds that they took
    # called with a state before a checkpoint of it is written
    before_checkpoint: Callable[[State], None] = lambda state: None


@dataclass(frozen=True)
class Record:
    """A stretch of rounds, and the evaluation after it if one is due; NumPy arrays, seeds first."""

    round: int  # rounds done
    seconds: float  # since the start, without compiling
    evaluation: Evaluation | None  # [S, E]
    evaluated: np.ndarray  # [S, E] ids of the clients evaluated
    info: Info  # [S, L, ...] of the L rounds since the last record
    ids: np.ndarray  # [S, L, M] ids of the cohorts
    state: State  # after it, on the devices; gone when the next stretch begins


def evaluated_ids(built: Built, ids: np.ndarray) -> np.ndarray:
    """The clients that an evaluation scores [E], with several seeds [S, E].

    Args:
      built: the run.
      ids: the clients of the last round [M] or [S, M].
    """
    clients = np.arange(built.clients, dtype=ids.dtype)
    if built.config.eval_on == "all":
        return np.broadcast_to(clients, (*ids.shape[:-1], clients.size))
    newcomers = clients[built.unseen]
    newcomers = np.broadcast_to(newcomers, (*ids.shape[:-1], newcomers.size))
    return np.concatenate([ids, newcomers], axis=-1)


@checked
def one_seed(
    built: Built, algorithm: Algorithm, after: After, pooled: np.ndarray | None = None
) -> OneSeed:
    """The computation of a run for one seed.

    Args:
      built: the run.
      algorithm: the run's own, or the same with other hyper-parameters.
      after: what is scored beside the deployed models.
      pooled: the clients whose test predictions together have a score [C], if there is to be one.
    """
    rounds = make_rounds(
        algorithm,
        built.participation,
        work=built.work,
        lost=built.lost,
        trained=after == "trained",
    )
    evaluate = make_evaluate_models(
        algorithm,
        built.task,
        chunk=built.config.chunk,
        after=after,
        metrics=built.named_metrics,
        pooled=pooled,
    )

    def init(seed, federation):
        return algorithm.init(random_stream(seed, INIT), federation.train)

    def advance(length, seed, federation, state, start):
        return rounds(random_stream(seed, ROUNDS), federation, state, start, length=length)

    def deploy(federation, state, ids):
        train, val = tree.take((federation.train, federation.val), ids)
        return algorithm.models(state, Cohort(ids, train, val))

    def assess(seed, federation, deployed, number, ids, trained=None):
        key = jax.random.fold_in(random_stream(seed, EVALUATE), number)
        # Fine-tuning has the learning rate of the last round.
        return evaluate(key, federation, deployed, ids, trained, round=number - 1)

    return OneSeed(init, advance, deploy, assess)


def stops(rounds: int, every: int | None) -> list[int]:
    """The numbers of rounds after which to do something: every so many, and at the end."""
    return sorted({*range(every or rounds, rounds + 1, every or rounds), rounds})


def stretches(built: Built, done: int = 0) -> list[tuple[int, int]]:
    """(first round, the one after the last) of what runs without a break.

    Breaks are for evaluations, checkpoints and models that are kept. Each length is a program to
    compile, so that stretches of more than two lengths are cut into pieces of two.

    Args:
      built: the run.
      done: rounds that are already done.
    """
    config = built.config
    evaluations = stops(config.rounds, config.eval_every)
    checkpoints = stops(config.rounds, config.checkpoint_every)
    models = stops(config.rounds, config.keep_models_every)
    breaks = {stop for stop in (*evaluations, *checkpoints, *models) if stop > done}
    return list(pairwise(of_two_lengths([done, *sorted(breaks)])))


def of_two_lengths(breaks: list[int]) -> list[int]:
    """The breaks, with others between them if the stretches have more than two lengths.

    Then all stretches have one round or one other length, which makes them as few as possible.

    Args:
      breaks: numbers of rounds, in order.

    Example:
      >>> of_two_lengths([0, 10, 20, 25])
      [0, 10, 20, 25]
      >>> of_two_lengths([0, 7, 10, 14, 20])
      [0, 3, 6, 7, 10, 13, 14, 17, 20]
    """
    lengths = [end - start for start, end in pairwise(breaks)]
    if len(set(lengths)) <= 2:
        return breaks

    def pieces(length: int) -> int:
        return sum(one // length + one % length for one in lengths)

    length = min(range(1, max(lengths) + 1), key=pieces)
    cut = breaks[:1]
    for start, end in pairwise(breaks):
        whole = range(start + length, end + 1, length)
        cut += whole
        cut += range(cut[-1] + 1, end + 1)
    return cut


def compile_run(built: Built, done: int = 0) -> Program:
    """Compiles everything that the run will execute: later times are of computation alone.

    Args:
      built: the run.
      done: rounds that are already done; a checkpoint has their state.
    """
    began = time.perf_counter()
    config, federation, seeds = built.config, built.data.federation, built.seeds
    init, advance, deploy, assess = one_seed(
        built, built.algorithm, config.score_after, built.pooled
    )
    numbers, axis = seeds.argument(), seeds.client_axis

    def without_padding(tree: PyTree) -> PyTree:
        return mesh.unpad(tree, built.clients, axis=axis)

    def with_padding(tree: PyTree) -> PyTree:
        """Divided among the devices, whatever the number of clients."""
        return mesh.place(jax.jit(partial(mesh.pad, axis=axis))(tree), axis=axis)

    def compile_deploy(ids: np.ndarray) -> tuple[Callable, Params]:
        """The compiled function (federation, state, ids) -> models, and their shapes."""
        each = seeds.each(deploy, (0, 0, 0))

        def deploy_all(federation: Federation, state: State, ids: Array) -> Params:
            models = each(without_padding(federation), without_padding(state), ids)
            return mesh.pad(models, axis=axis)

        shapes = jax.eval_shape(deploy_all, federation, state, ids)
        shardings = mesh.layout(shapes, axis=seeds.client_axis)
        jitted = jax.jit(deploy_all, out_shardings=shardings)
        compiled = jitted.lower(federation, state, ids).compile()
        return compiled, jax.tree.map(lambda x, where: x.update(sharding=where), shapes, shardings)

    check_validation(built.algorithm, federation)
    warn_of_sizes(built.algorithm, seeds.one(federation))
    with jax.set_mesh(mesh.make_mesh(built.devices)):
        # Not jitted: the task's own `init` is, and it is the same program for all methods.
        state = seeds.each(init, (0, 0))(numbers, federation)
        # Copied, because the first round takes its memory: it may hold one array in two places.
        if built.clients % jax.sharding.get_abstract_mesh().size:
            state, federation = with_padding(state), with_padding(federation)
        state = mesh.place(state, axis=axis)
        layout = jax.tree.map(lambda x: x.sharding, state)  # of what comes out as of what goes in
        state = jax.jit(partial(jax.tree.map, jnp.copy), out_shardings=layout)(state)
        programs, trained = {}, None
        # Where no round is left, one is compiled for the shapes of what it gives.
        for length in {end - start for start, end in stretches(built, done)} or {1}:
            each = seeds.each(partial(advance, length), (0, 0, 0, None))

            def advance_all(
                numbers: Array,
                federation: Federation,
                state: State,
                start: Array,
                each: Callable = each,
            ) -> tuple[State, tuple[Info, Array]]:
                known = without_padding(federation), without_padding(state)
                after, results = each(numbers, *known, start)
                return mesh.pad(after, axis=axis), results

            jitted = jax.jit(advance_all, donate_argnums=2, out_shardings=(layout, None))
            lowering = jitted.lower(numbers, federation, state, START)
            programs[length] = partial(lowering.compile(), numbers, federation)
            trained = lowering.out_info[1][0].trained
        zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), trained)
        trained = mesh.place(zeros, axis=seeds.client_axis)
        key = jax.eval_shape(jax.random.key, 0)
        cohort = jax.eval_shape(built.participation, key, START)
        ids = evaluated_ids(built, np.zeros(seeds.shape(cohort.size), cohort.dtype))
        # Apart from the method's own models, so that scoring is the same program for all methods.
        models, deployed = compile_deploy(ids)
        each = seeds.each(assess, (0, 0, 0, None, 0, 0))

        def assess_all(
            numbers: Array,
            federation: Federation,
            deployed: Params,
            number: Array,
            ids: Array,
            trained: Params | None,
        ) -> Evaluation:
            deployed = mesh.unpad(deployed, ids.shape[-1], axis=axis)
            return each(numbers, without_padding(federation), deployed, number, ids, trained)

        jitted = jax.jit(assess_all)
        scoring = jitted.lower(numbers, federation, deployed, START, ids, trained).compile()
        everybody = np.broadcast_to(
            np.arange(built.clients, dtype=ids.dtype), seeds.shape(built.clients)
        )
        models_of_all = models
        if config.keep_models and ids.shape != everybody.shape:
            models_of_all, _ = compile_deploy(everybody)

    def evaluate(
        state: State, number: np.int32, ids: np.ndarray, trained: Params | None
    ) -> Evaluation:
        deployed = models(federation, state, ids)
        return scoring(numbers, federation, deployed, number, ids, trained)

    compiling = time.perf_counter() - began
    return Program(
        built,
        state,
        programs,
        evaluate,
        lambda state: without_padding(models_of_all(federation, state, everybody)),
        compiling,
        done,
    )


def nothing() -> None:
    """What there is to do while a stretch is computed: nothing."""


def records(program: Program, meanwhile: Callable[[], None] = nothing) -> Iterator[Record]:
    """Executes the run, or what remains of it; yields a record after each stretch.

    Args:
      program: the run.
      meanwhile: called again and again while the devices compute.
    """
    config, seeds = program.built.config, program.built.seeds
    began = time.perf_counter() - program.before
    state, due = program.state, stops(config.rounds, config.eval_every)
    for start, end in stretches(program.built, program.done):
        state, (info, ids) = program.advance[end - start](state, np.int32(start))
        wait_for(ids, meanwhile)
        ids = mesh.fetch(ids)
        evaluated = evaluated_ids(program.built, ids[..., -1, :])
        evaluation = None
        if end in due:
            with jax.set_mesh(mesh.make_mesh(program.built.devices)):
                trained = mesh.place(info.trained, axis=seeds.client_axis)
            results = program.evaluate(state, np.int32(end), evaluated, trained)
            wait_for(results, meanwhile)
            evaluation = mesh.fetch(results)
        info = mesh.fetch(info._replace(trained=None))
        results = seeds.with_axis((evaluation, evaluated, info, ids))
        seconds = time.perf_counter() - began
        evaluation, evaluated, info, ids = results
        yield Record(end, seconds, evaluation, evaluated, info, ids, state)


def wait_for(computed: PyTree, meanwhile: Callable[[], None]) -> None:
    """Returns when the arrays are computed.

    Python handles a signal only between its own instructions: a call that waits for the devices, as
    reading an array does, would leave Ctrl-C without an answer until they are done.
    """
    nap = 0.0005
    arrays = [leaf for leaf in jax.tree.leaves(computed) if hasattr(leaf, "is_ready")]
    while not all(leaf.is_ready() for leaf in arrays):
        meanwhile()
        time.sleep(nap)
        nap = min(2 * nap, LONGEST_NAP)
