"""Adapters of many clients on a frozen vision transformer: time beside PyTorch, and memory.

`python -m benchmarks.rounds.adapters 100 16` prints the memory of local training of 100 clients
with batches of 16 as JSON. Each case has its own process, because the peak memory is that of a
process.
"""

import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from benchmarks.measure import best_ms
from benchmarks.peers import peer_cells, run_peer
from jaxfl.core import tree
from jaxfl.core.types import Chunk, Cohort, Dataset, Params, Task
from jaxfl.simulation import mesh
from jaxfl.training.objectives import data_loss

RANK = 8
SIDE = 32
CLIENTS = 100
# Examples of a client.
ROWS = 64


class Case(NamedTuple):
    """Batch and local steps of a row; fewer steps of larger batches."""

    batch: int
    steps: int


CASES = (Case(1, 4), Case(4, 2), Case(16, 1))


@functools.cache
def frozen_weights() -> dict[str, np.ndarray]:
    """Random weights of ViT-Tiny by their paths; with biases, as trained ones have them."""
    images = jnp.zeros((1, SIDE, SIDE, 3))
    params = jax.jit(jaxfl.models.vit_tiny(10).init)(jax.random.key(0), images)
    rng = np.random.default_rng(0)
    return {
        tree.path(keys): np.asarray(leaf) + 0.02 * rng.normal(size=leaf.shape).astype(np.float32)
        for keys, leaf in jax.tree_util.tree_leaves_with_path(params)
    }


def task_of(batch: int, steps: int, chunk: Chunk = "auto") -> Task:
    """Local training of adapters of rank 8 at the layers of all blocks, and of the head."""
    adapted = jaxfl.lora(jaxfl.models.vit_tiny(10), RANK, "block")
    model = jaxfl.freeze(adapted, frozen_weights(), "^lora/|head")
    image = np.zeros((SIDE, SIDE, 3), np.float32)
    return jaxfl.classification(model, image, batch_size=batch, steps=steps, chunk=chunk)


def examples_of(clients: int, rows: int = ROWS) -> Dataset:
    """Images and labels of all clients."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(clients, rows, SIDE, SIDE, 3)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 10, (clients, rows)), jnp.int32)
    return Dataset(x, y, jnp.ones((clients, rows), bool))


def compile_training(
    case: Case, clients: int = CLIENTS, chunk: Chunk = "auto"
) -> tuple[Callable[[], Params], float, jax.stages.Compiled]:
    """Local training of all clients, seconds of compiling it, and the program."""
    task = task_of(*case, chunk)
    key = jax.random.key(0)
    start = jax.jit(lambda key: tree.broadcast(task.problem.init(key), clients))(key)
    params = mesh.place(start)
    data = examples_of(clients)
    cohort = mesh.place(Cohort(jnp.arange(clients), data, data))
    began = time.perf_counter()
    fit = jax.jit(task.trainer(data_loss(task.problem))).lower(key, params, None, cohort).compile()
    seconds = time.perf_counter() - began
    return lambda: fit(key, params, None, cohort), seconds, fit


def write_sample(file: Path, examples: int = 8, steps: int = 2) -> None:
    """Writes weights, a batch, and what the model makes of both: logits, and adapters after steps.

    The names in the npz file are GROUP:PATH.
    """
    task = task_of(examples, steps)
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(task.problem.init, jax.random.key(0))
    # B is not zero, so that its layer's A has a gradient.
    adapters = jax.tree.map(
        lambda leaf: jnp.asarray(0.05 * rng.normal(size=leaf.shape), leaf.dtype), shapes
    )
    data = examples_of(1, examples)
    logits = jax.jit(task.problem.apply)(adapters, data.x[0])
    fit = jax.jit(task.trainer(data_loss(task.problem)))
    stacked = jax.tree.map(lambda leaf: leaf[None], adapters)
    fitted = fit(jax.random.key(0), stacked, None, Cohort(jnp.arange(1), data, data))
    trained = jax.tree.map(lambda leaf: leaf[0], fitted.params)
    groups = {
        "frozen": frozen_weights(),
        "adapters": by_path(adapters),
        "trained": by_path(trained),
        "batch": {"x": data.x[0], "y": data.y[0].astype(jnp.int32), "logits": logits},
    }
    groups["batch"]["steps"] = np.array(steps)
    np.savez(
        file,
        **{f"{name}:{path}": one for name, group in groups.items() for path, one in group.items()},
    )


def by_path(params: Params) -> dict[str, np.ndarray]:
    """The leaves by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {tree.path(keys): np.asarray(leaf) for keys, leaf in leaves}
