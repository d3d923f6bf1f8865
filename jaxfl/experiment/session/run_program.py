"""What a run computes, and its execution: a record after each segment of rounds."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core import target, tree
from jaxfl.core.options import checked
from jaxfl.core.types import Algorithm, Cohort, Federation, Info, Params, State
from jaxfl.experiment.config import Options
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.seeds import Seeds
from jaxfl.simulation import mesh
from jaxfl.simulation.evaluate import make_evaluate_models
from jaxfl.simulation.evaluation import After, Evaluation
from jaxfl.simulation.rounds import make_rounds

START = np.int32(0)  # round numbers are int32 throughout
INIT, ROUNDS, EVALUATE = range(3)  # streams of a run's random numbers
LONGEST_NAP = 0.02  # seconds between two looks at a computation under way
# Steps of clients in one call on several devices of a CPU. There XLA keeps memory for each step
# until the call ends, 1 MiB of a transformer with 16 texts of 80 characters (docs/notebook.md).
STEPS = 1_000


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

    seeds: Seeds
    clients: int
    devices: int  # of each process
    segments: list[tuple[int, int]]  # (first round, the one after the last) of what is to be run
    evaluations: list[int]  # rounds after which models are scored
    evaluated: Callable[[np.ndarray], np.ndarray]  # the clients that are scored, by the last cohort
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
    """A segment of rounds, and the evaluation after it if one is due; NumPy arrays, seeds first."""

    round: int  # rounds done
    seconds: float  # since the start, without compiling
    evaluation: Evaluation | None  # [S, E]
    evaluated: np.ndarray  # [S, E] ids of the clients evaluated
    info: Info  # [S, L, ...] of the L rounds since the last record
    ids: np.ndarray  # [S, L, M] ids of the cohorts
    state: State  # after it, on the devices; gone when the next segment begins


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
        chunk=built.options.run.chunk,
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


def longest_call(built: Built, cohort: int) -> int | None:
    """The most rounds, of so many clients, in one call of a program; None: any number."""
    if built.devices == 1 or target.platform() != "cpu":
        return None
    training, mask = built.options.training, built.data.federation.train.mask
    epoch = -(-mask.shape[-1] // training.batch_size)
    steps = training.local_steps or epoch * (training.local_epochs or 1)
    return max(STEPS // (built.seeds.count * cohort * steps), 1)


def segments(options: Options, done: int = 0, longest: int | None = None) -> list[tuple[int, int]]:
    """(first round, the one after the last) of what runs without a break.

    Breaks are for evaluations, checkpoints and models that are kept. Each length is a program to
    compile, so that segments of more than two lengths are cut into pieces of two.

    Args:
      options: of the run.
      done: rounds that are already done.
      longest: the most rounds of a segment; None: any number.
    """
    keeping = options.keeping
    intervals = (options.scores.eval_every, keeping.checkpoint_every, keeping.snapshot_every)
    breaks = {stop for every in intervals for stop in stops(options.run.rounds, every)}
    every = [done, *sorted(one for one in breaks if one > done)]
    return list(pairwise(of_two_lengths(every, longest)))


def of_two_lengths(breaks: list[int], longest: int | None = None) -> list[int]:
    """The breaks, with others between them if segments have more than two lengths or are too long.

    Then all segments have one round or one other length, which makes them as few as possible.

    Args:
      breaks: numbers of rounds, in order.
      longest: the most rounds of a segment; None: any number.

    Example:
      >>> of_two_lengths([0, 10, 20, 25])
      [0, 10, 20, 25]
      >>> of_two_lengths([0, 7, 10, 14, 20])
      [0, 3, 6, 7, 10, 13, 14, 17, 20]
      >>> of_two_lengths([0, 6, 12], longest=5)
      [0, 3, 6, 9, 12]
    """
    lengths = [end - start for start, end in pairwise(breaks)]
    largest = max(lengths, default=1)
    if len(set(lengths)) <= 2 and (longest is None or largest <= longest):
        return breaks

    def pieces(length: int) -> int:
        return sum(one // length + one % length for one in lengths)

    length = min(range(1, min(largest, longest or largest) + 1), key=pieces)
    cut = breaks[:1]
    for start, end in pairwise(breaks):
        whole = range(start + length, end + 1, length)
        cut += whole
        cut += range(cut[-1] + 1, end + 1)
    return cut


def records(program: Program, meanwhile: Callable[[], None] = lambda: None) -> Iterator[Record]:
    """Executes the run, or what remains of it; yields a record after each segment.

    Args:
      program: the run.
      meanwhile: called again and again while the devices compute.
    """
    seeds, state = program.seeds, program.state
    began = time.perf_counter() - program.before
    for start, end in program.segments:
        state, (info, ids) = program.advance[end - start](state, np.int32(start))
        wait_for(ids, meanwhile)
        ids = mesh.fetch(ids)
        evaluated = program.evaluated(ids[..., -1, :])
        evaluation = None
        if end in program.evaluations:
            with jax.set_mesh(mesh.make_mesh(program.devices)):
                trained = mesh.place(info.trained, axis=seeds.client_axis)
            with jax.debug_nans(False):  # NaN is no score
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
