"""Executes a compiled run: a host loop over jitted stretches of rounds, one record a stretch."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import numpy as np

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


def records(program: Program) -> Iterator[Record]:
    """Executes the run, or what remains of it; yields a record after each stretch."""
    config, seeds = program.built.config, program.built.seeds
    began = time.perf_counter() - program.before
    state, due = program.state, stops(config.rounds, config.eval_every)
    for start, end in stretches(config, program.done):
        state, (info, ids) = program.advance[end - start](state, np.int32(start))
        ids = mesh.fetch(ids)
        evaluated = evaluated_ids(program.built, ids[..., -1, :])
        evaluation = None
        if end in due:
            with jax.set_mesh(mesh.make_mesh(devices_of(config))):
                trained = mesh.place(info.trained, axis=seeds.client_axis)
            found = program.evaluate(state, np.int32(end), evaluated, trained)
            evaluation = mesh.fetch(found)
        info = mesh.fetch(info._replace(trained=None))
        found = seeds.with_axis((evaluation, evaluated, info, ids))
        seconds = time.perf_counter() - began
        evaluation, evaluated, info, ids = found
        yield Record(end, seconds, evaluation, evaluated, info, ids, state)
