"""The program of a run: four functions of one seed, compiled for all seeds."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from jaxfl.core.types import Federation, Info, Params, State
from jaxfl.experiment.session.build import Built
from jaxfl.experiment.session.run_program import (
    START,
    Program,
    longest_call,
    one_seed,
    segments,
    stops,
)
from jaxfl.experiment.session.stored_program import stored_program
from jaxfl.simulation import mesh
from jaxfl.simulation.checks import check_validation, warn_of_sizes
from jaxfl.simulation.evaluation import Evaluation


def make_program(built: Built, directory: Path, done: int = 0) -> Program:
    """What a run computes, wherever its clients lie.

    Args:
      built: the run.
      directory: of the run; the states of clients on disk lie in it.
      done: rounds that are already done; a checkpoint has their state.
    """
    stored = built.data.stored
    if stored is None:
        return compile_run(built, done)
    return stored_program(built, stored, directory, done)


def compile_run(built: Built, done: int = 0) -> Program:
    """Compiles everything that the run will execute: later times are of computation alone.

    Args:
      built: the run.
      done: rounds that are already done; a checkpoint has their state.
    """
    began = time.perf_counter()
    options, federation, seeds = built.options, built.data.federation, built.seeds
    key = jax.eval_shape(jax.random.key, 0)
    cohort = jax.eval_shape(built.participation, key, START)
    pieces = segments(options, done, longest_call(built, cohort.size))
    init, advance, deploy, assess = one_seed(
        built, built.algorithm, options.scores.score_after, built.pooled
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
        for length in {end - start for start, end in pieces} or {1}:
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
        ids = built.evaluated(np.zeros(seeds.shape(cohort.size), cohort.dtype))
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
        if options.keeping.keep_models != "none" and ids.shape != everybody.shape:
            models_of_all, _ = compile_deploy(everybody)

    def evaluate(
        state: State, number: np.int32, ids: np.ndarray, trained: Params | None
    ) -> Evaluation:
        deployed = models(federation, state, ids)
        return scoring(numbers, federation, deployed, number, ids, trained)

    compiling = time.perf_counter() - began
    return Program(
        seeds,
        built.clients,
        built.devices,
        pieces,
        stops(options.run.rounds, options.scores.eval_every),
        built.evaluated,
        state,
        programs,
        evaluate,
        lambda state: without_padding(models_of_all(federation, state, everybody)),
        compiling,
        done,
    )
