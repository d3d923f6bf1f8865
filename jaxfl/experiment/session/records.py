"""Executes a compiled run: a host loop over jitted stretches of rounds, one record a stretch."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import PyTree

from jaxfl import mesh
from jaxfl.evaluate import Evaluation
from jaxfl.experiment.config import devices_of
from jaxfl.experiment.session.program import Program, evaluated_ids, stops, stretches
from jaxfl.types import Info, State


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


LONGEST_NAP = 0.02  # seconds between two looks at a computation under way


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
    for start, end in stretches(config, program.done):
        state, (info, ids) = program.advance[end - start](state, np.int32(start))
        wait_for(ids, meanwhile)
        ids = mesh.fetch(ids)
        evaluated = evaluated_ids(program.built, ids[..., -1, :])
        evaluation = None
        if end in due:
            with jax.set_mesh(mesh.make_mesh(devices_of(config))):
                trained = mesh.place(info.trained, axis=seeds.client_axis)
            found = program.evaluate(state, np.int32(end), evaluated, trained)
            wait_for(found, meanwhile)
            evaluation = mesh.fetch(found)
        info = mesh.fetch(info._replace(trained=None))
        found = seeds.with_axis((evaluation, evaluated, info, ids))
        seconds = time.perf_counter() - began
        evaluation, evaluated, info, ids = found
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
