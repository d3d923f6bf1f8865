"""Adapters of many clients on a frozen vision transformer: their time, beside PyTorch."""

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
from benchmarks.measure import best_ms, product_gflops
from benchmarks.peers import peer_cells, run_peer
from jaxfl.core import tree
from jaxfl.core.types import Chunk, Cohort, Dataset, Params, Task
from jaxfl.models.vit import ViT
from jaxfl.simulation import mesh
from jaxfl.training.objectives import data_loss

RANK = 8
# Of ViT-Tiny.
WIDTH = 192
SIDE = 32
CLIENTS = 100
# Examples of a client.
ROWS = 64


class Case(NamedTuple):
    """Batch, local steps and clients of a row."""

    batch: int
    steps: int
    clients: int = CLIENTS


CASES = (Case(1, 4), Case(4, 2), Case(16, 1))
# Of all clients side by side the activations must fit into memory.
SIDE_BY_SIDE = (Case(1, 4, 16), Case(4, 2, 16), Case(16, 1, 16))
CHUNKS: tuple[Chunk, ...] = (1, 4, "all")


@functools.cache
def frozen_weights(width: int = WIDTH) -> dict[str, np.ndarray]:
    """Random weights of the transformer by their paths; no bias is 0, as in trained ones."""
    images = jnp.zeros((1, SIDE, SIDE, 3))
    params = jax.jit(ViT(10, width).init)(jax.random.key(0), images)
    rng = np.random.default_rng(0)
    return {
        path: leaf + np.float32(0.02) * rng.normal(size=leaf.shape).astype(np.float32)
        for path, leaf in by_path(params).items()
    }


def frozen_kernels() -> set[tuple[int, int]]:
    """The sides of the frozen weights of dense layers [in, out]."""
    weights = frozen_weights().items()
    return {w.shape for path, w in weights if path.endswith("kernel") and "head" not in path}


def by_path(params: Params) -> dict[str, np.ndarray]:
    """The leaves by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {tree.path(keys): np.asarray(leaf) for keys, leaf in leaves}


def task_of(batch: int, steps: int, chunk: Chunk = "auto", width: int = WIDTH) -> Task:
    """Local training of adapters at the dense layers of all blocks, and of the head.

    These are the layers that `jaxfl run --lora 8` chooses.
    """
    adapted = jaxfl.lora(ViT(10, width), RANK, "block")
    model = jaxfl.freeze(adapted, frozen_weights(width), "^lora/|head")
    image = np.zeros((SIDE, SIDE, 3), np.uint8)
    return jaxfl.classification(
        model, image, scale=255.0, batch_size=batch, steps=steps, chunk=chunk
    )


def examples(clients: int, rows: int = ROWS) -> Dataset:
    """Images and labels of all clients."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(0, 256, (clients, rows, SIDE, SIDE, 3), dtype=np.uint8))
    y = jnp.asarray(rng.integers(0, 10, (clients, rows)), jnp.int32)
    return Dataset(x, y, jnp.ones((clients, rows), bool))


class Training(NamedTuple):
    """Local training of all clients."""

    run: Callable[[], Params]
    program: jax.stages.Compiled
    # seconds
    compiling: float


def compile_training(case: Case, chunk: Chunk = "auto") -> Training:
    """Local training of a case."""
    task = task_of(case.batch, case.steps, chunk)
    key = jax.random.key(0)
    params = mesh.place(tree.broadcast(task.problem.init(key), case.clients))
    data = examples(case.clients)
    cohort = mesh.place(Cohort(jnp.arange(case.clients), data, data))
    began = time.perf_counter()
    fit = jax.jit(task.trainer(data_loss(task.problem))).lower(key, params, None, cohort).compile()
    seconds = time.perf_counter() - began
    return Training(lambda: fit(key, params, None, cohort), fit, seconds)


def write_sample(file: Path, rows: int = 8, steps: int = 2) -> None:
    """Writes weights, a batch, and what the model makes of both: logits, and adapters after steps.

    The names in the npz file are GROUP:PATH.
    """
    task = task_of(rows, steps)
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(task.problem.init, jax.random.key(0))
    # B is not zero, so that A has a gradient.
    adapters = jax.tree.map(
        lambda leaf: jnp.asarray(0.05 * rng.normal(size=leaf.shape), leaf.dtype), shapes
    )
    data = examples(1, rows)
    logits = jax.jit(task.problem.apply)(adapters, data.x[0])
    # The batch is all of the client's rows, so that their order does not matter.
    fit = jax.jit(task.trainer(data_loss(task.problem)))
    cohort = Cohort(jnp.arange(1), data, data)
    fitted = fit(jax.random.key(0), tree.broadcast(adapters, 1), None, cohort)
    groups = {
        "frozen": frozen_weights(),
        "adapters": by_path(adapters),
        "trained": by_path(tree.at(fitted.params, 0)),
        "batch": {"x": data.x[0] / 255, "y": data.y[0], "logits": logits, "steps": steps},
    }
    named = {f"{name}:{path}": one for name, group in groups.items() for path, one in group.items()}
    np.savez(file, **named)


def client_step_ms(case: Case, chunk: Chunk = "auto", repeats: int = 2) -> tuple[float, float]:
    """Milliseconds of one SGD step of one client, best of several calls, and seconds of compiling.

    Each call trains all clients.
    """
    training = compile_training(case, chunk)
    return best_ms(training.run, repeats) / case.clients / case.steps, training.compiling


def row(environments: Path | None, case: Case, sample: Path) -> str:
    """A row of the table beside PyTorch."""
    peer = run_peer(environments, "torch_adapters", *case, sample)
    rate = product_gflops()
    ms, compiling = client_step_ms(case)
    share = 100 * operations(case.batch) / ms / 1e6 / max(rate, product_gflops())
    cells = " | ".join(peer_cells(peer, ms, key, 1) for key in ("threads", "processes"))
    step = f"{case.clients} clients, batch {case.batch}"
    return f"| {step} | {ms:.1f} | {share:.0f} | {cells} | {compiling:.1f} |"


def operations(batch: int) -> float:
    """Floating-point operations of a gradient."""
    task = task_of(batch, 1)
    key = jax.random.key(0)
    gradient = jax.jit(jax.grad(data_loss(task.problem), has_aux=True))
    params = jax.eval_shape(task.problem.init, key)
    analysis = gradient.lower(params, tree.at(examples(1, batch), 0), None, key).cost_analysis()
    return (analysis or {})["flops"]


def chunk_row(case: Case) -> str:
    """A row of the table of clients side by side."""
    times = [client_step_ms(case, chunk)[0] for chunk in CHUNKS]
    cells = " | ".join(f"{ms:.1f}" for ms in times)
    return f"| {case.clients} clients, batch {case.batch} | {cells} |"


def section(
    environments: Path | None,
    cases: tuple[Case, ...] = CASES,
    side_by_side: tuple[Case, ...] = SIDE_BY_SIDE,
) -> str:
    """Both tables."""
    with tempfile.TemporaryDirectory() as folder:
        sample = Path(folder) / "sample.npz"
        if environments is not None:
            write_sample(sample)
        rows = [row(environments, case, sample) for case in cases]
    return TEXT.format(
        floats=f"{trained_floats():,}",
        rows="\n".join(rows),
        chunks=" | ".join(f"{chunk}, ms" for chunk in CHUNKS),
        rule="---:|" * len(CHUNKS),
        chunk_rows="\n".join(map(chunk_row, side_by_side)),
    )


def trained_floats() -> int:
    """That a client trains and sends."""
    return tree.size(jax.eval_shape(task_of(1, 1).problem.init, jax.random.key(0)))


TEXT = """## Adapters on a frozen vision transformer

One local SGD step of one client: `vit_tiny` (12 blocks of width 192, random weights) on images
32x32x3 in patches of 4, frozen but for adapters of rank 8 at the four dense layers of each block
and for the head, {floats} floats; momentum .9, weight decay 1e-5. The peer is a PyTorch loop over
clients and steps (`benchmarks/peers/torch_adapters.py`), all of whose clients share one frozen
model; as one process with its own threads, and, which nobody writes, as one process of one thread
for each core. Before it is timed, it is checked to give the same logits and the same adapters after
two steps from the same weights. *Of products* is as for one local step. A batch of 16 is computed
in parts of 4 (`micro`), whose activations stay in the L2.

| step | jaxfl, ms | of products | torch, ms | times | torch a core, ms | times | compiling, s |
|---|---:|---:|---:|---:|---:|---:|---:|
{rows}

The same step by the number of clients that each core trains side by side (`chunk`; all are half of
them), whose products with a frozen weight are one product:

| step | {chunks} |
|---|{rule}
{chunk_rows}

Other processors: [notebook](notebook.md#adapters-and-networks-on-another-processor).
"""
