"""The program of a run whose clients lie on disk."""

import time
from pathlib import Path

import jax
import numpy as np

from jaxfl.core.errors import check
from jaxfl.core.types import Info, Params, State
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.run_program import (
    EVALUATE,
    INIT,
    ROUNDS,
    START,
    Program,
    random_stream,
    segments,
    stops,
)
from jaxfl.experiment.store import files
from jaxfl.simulation import mesh
from jaxfl.simulation.evaluation import Evaluation
from jaxfl.simulation.on_disk import (
    StoredFederation,
    make_stored_evaluate,
    make_stored_rounds,
    open_clients,
)


def stored_program(built: Built, stored: StoredFederation, directory: Path, done: int) -> Program:
    """The program of a run whose clients lie on disk.

    Args:
      built: the run.
      stored: its clients.
      directory: of the run; the states of the clients lie in it.
      done: rounds that are already done; a checkpoint has their state.
    """
    began = time.perf_counter()
    run, score_after = built.options.run, built.options.scores.score_after
    pieces = segments(built.options, done)
    check(
        jax.process_count() == 1,
        f"--store is given to {jax.process_count()} processes that run together: start one",
    )
    devices = mesh.make_mesh(built.devices)
    seed = np.uint32(built.seeds.first)
    with jax.set_mesh(devices):
        clients, state = open_clients(
            directory / files.STATES,
            built.algorithm,
            random_stream(seed, INIT),
            stored,
            keep=built.options.keeping.keep_checkpoints,
            resume=done > 0,
        )
    rounds = make_stored_rounds(
        built.algorithm,
        built.participation,
        stored,
        clients,
        work=built.work,
        lost=built.lost,
        trained=score_after == "trained",
    )
    assess = make_stored_evaluate(
        built.algorithm,
        built.task,
        stored,
        clients,
        chunk=run.chunk,
        after=score_after,
        metrics=built.named_metrics,
    )

    def advance(length: int):
        def advance_so_far(state: State, start: np.int32) -> tuple[State, tuple[Info, np.ndarray]]:
            with jax.set_mesh(devices):
                return rounds(random_stream(seed, ROUNDS), state, start, length)

        return advance_so_far

    def evaluate(
        state: State, number: np.int32, ids: np.ndarray, trained: Params | None
    ) -> Evaluation:
        with jax.set_mesh(devices):
            key = jax.random.fold_in(random_stream(seed, EVALUATE), number)
            # Fine-tuning has the learning rate of the last round.
            return assess(key, state, ids, trained, round=number - 1)

    with jax.set_mesh(devices):
        shapes = rounds(random_stream(seed, ROUNDS), state, 0, 1, compile_only=True)
        ids = np.arange(shapes.loss.shape[0], dtype=np.int32)
        trained = None
        if score_after == "trained":
            zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes.trained)
            trained = mesh.place(zeros)
        key = jax.random.fold_in(random_stream(seed, EVALUATE), START)
        evaluated = built.evaluated(ids)
        assess(key, state, evaluated, trained, round=0, compile_only=True)
    return Program(
        built.seeds,
        built.clients,
        built.devices,
        pieces,
        stops(run.rounds, built.options.scores.eval_every),
        built.evaluated,
        state,
        {end - start: advance(end - start) for start, end in pieces},
        evaluate,
        _no_models,
        time.perf_counter() - began,
        done,
        before_checkpoint=clients.protect,
    )


def _no_models(state: State) -> Params:
    raise AssertionError("a run whose clients lie on disk keeps no models of all of them")
