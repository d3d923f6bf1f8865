"""One local SGD step of one client, beside a PyTorch loop."""

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array

import jaxfl
from benchmarks.measure import best_ms, product_gflops
from benchmarks.peers import peer_cells, run_peer
from jaxfl.core.types import Chunk, Cohort, Dataset, Params, PRNGKey
from jaxfl.models.convolution import block, conv
from jaxfl.models.convolution.block import ConvReluPool
from jaxfl.models.convolution.conv import Conv
from jaxfl.simulation import mesh
from jaxfl.training.objectives import data_loss
from jaxfl.training.task import Compute


class Three(nn.Module):
    """Three convolutions (5x5x32, 3x3x64, 3x3x64, same padding) with pooling; two dense layers."""

    conv: Conv = "auto"

    @nn.compact
    def __call__(self, x):
        """[B, h, w, channel] -> [B, 10]."""
        for kernel, width in ((5, 32), (3, 64), (3, 64)):
            x = ConvReluPool(width, (kernel, kernel), conv=self.conv)(x)
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


class RowByRow(nn.Module):
    """An LSTM of 64 units that reads the rows of an image in turn."""

    @nn.compact
    def __call__(self, x):
        """[B, h, w, channel] -> [B, 10]."""
        return jaxfl.models.lstm(10)(x.reshape(*x.shape[:2], -1))


MODELS = {
    "lenet": partial(jaxfl.models.lenet, 10),
    "three": Three,
    "cedar6": partial(jaxfl.models.cedar6, 10),
    "resnet8": partial(jaxfl.models.resnet8, 10),
    "mlp": partial(jaxfl.models.mlp, 10),
    "lstm": RowByRow,
}
CASES = (
    ("lenet", 32, 16),
    ("lenet", 32, 64),
    ("lenet", 28, 16),
    ("lenet", 28, 64),
    ("three", 32, 16),
    ("three", 32, 64),
    ("cedar6", 32, 16),
    ("resnet8", 32, 16),
    ("mlp", 28, 16),
    ("mlp", 28, 64),
    ("lstm", 28, 16),
    ("lstm", 28, 64),
)


@functools.cache
def examples(clients: int, side: int) -> Dataset:
    """Images and labels of all clients, 320 each."""
    channels = 1 if side == 28 else 3
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(clients, 320, side, side, channels)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 10, (clients, 320)), jnp.int32)
    return Dataset(x, y, jnp.ones((clients, 320), bool))


def compile_training(
    model: str | nn.Module,
    side: int,
    batch: int,
    *,
    clients: int = 4,
    steps: int = 20,
    chunk: Chunk = "auto",
    compute: Compute = "float32",
) -> tuple[Callable[[], Params], float]:
    """Local training of all clients by SGD, and seconds of compiling it."""
    data = examples(clients, side)
    task = jaxfl.classification(
        MODELS[model]() if isinstance(model, str) else model,
        data.x[0, 0],
        batch_size=batch,
        steps=steps,
        chunk=chunk,
        compute=compute,
    )
    key = jax.random.key(0)
    params = mesh.place(jax.vmap(task.problem.init)(jax.random.split(key, clients)))
    cohort = mesh.place(Cohort(jnp.arange(clients), data, data))
    began = time.perf_counter()
    fit = jax.jit(task.trainer(data_loss(task.problem))).lower(key, params, None, cohort).compile()
    seconds = time.perf_counter() - began
    return lambda: fit(key, params, None, cohort), seconds


def client_step_ms(
    model: str | nn.Module, side: int, batch: int, *, repeats: int = 5
) -> dict[str, float]:
    """Milliseconds of one SGD step of one of four clients, and seconds of compiling.

    The best of several calls, each of which trains all clients for 20 steps.
    """
    train, compiling = compile_training(model, side, batch, clients=4, steps=20)
    return {"ms": best_ms(train, repeats) / 4 / 20, "compile_seconds": compiling}


def operations(model: str, side: int, batch: int) -> float:
    """Floating-point operations of a gradient whose convolutions are lax's own.

    Winograd's way needs fewer, patches of several outputs need more.
    """
    task = jaxfl.classification(MODELS[model](), examples(1, side).x[0, 0], batch_size=batch)
    data = jax.tree.map(lambda x: x[0, :batch], examples(1, side))
    key = jax.random.key(0)

    def gradient(params: Params, data: Dataset, key: PRNGKey) -> tuple[Params, Array]:
        return jax.grad(data_loss(task.problem), has_aux=True)(params, data, None, key)

    with ExitStack() as stack:
        for module in (conv, block):
            stack.enter_context(mock.patch.object(module, "layout_of", return_value="grouped"))
        # Of a loop one turn is counted.
        stack.enter_context(mock.patch.object(nn, "RNN", partial(nn.RNN, unroll=side)))
        analysis = jax.jit(gradient).lower(task.problem.init(key), data, key).cost_analysis()
    return (analysis or {})["flops"]


def row(environments: Path | None, case: tuple[str, int, int]) -> str:
    """A row of the table."""
    peer = run_peer(environments, "torch_loop", *case)
    rate = product_gflops()
    ours = client_step_ms(*case)
    rate = max(rate, product_gflops())
    share = 100 * operations(*case) / ours["ms"] / 1e6 / rate
    cells = " | ".join(peer_cells(peer, ours["ms"], key) for key in ("threads", "processes"))
    compiling = ours["compile_seconds"]
    name, side, batch = case
    step = f"{name} {side}x{side}, batch {batch}"
    return f"| {step} | {ours['ms']:.2f} | {share:.0f} | {cells} | {compiling:.1f} |"


def section(environments: Path | None, cases: tuple[tuple[str, int, int], ...] = CASES) -> str:
    """The table."""
    return TEXT.format(rows="\n".join(row(environments, case) for case in cases))


TEXT = """## One local SGD step of one client

Momentum .9, weight decay 1e-5; 4 clients, 20 steps each in one call. The peer is a PyTorch loop
over clients and steps without a data loader (`benchmarks/peers/torch_loop.py`): as one process with
its own threads, and, which nobody writes, as one process of one thread for each core. `lenet` has
two convolutions 5x5, `three` has three with 32, 64 and 64 channels, `cedar6` FedCedar's six with 32
to 256 and group normalisation, `resnet8` 16 to 64 channels, `mlp` three hidden layers of 32, and
`lstm` 64 units that read the rows of the image in turn.
*Of products* are the operations of a step, its convolutions computed directly, in per cent of those
that products of 2048x2048 reach just before or after.

| step | jaxfl, ms | of products | torch, ms | times | torch a core, ms | times | compiling, s |
|---|---:|---:|---:|---:|---:|---:|---:|
{rows}

Convolution, bias, ReLU and pooling are one operation with one gradient
(`jaxfl/models/convolution/block.py`), by Winograd's way if it is 3x3 with 16 channels or more
(`tiles.py`). Other 3x3 convolutions go by Winograd's way from 32 channels on if there are enough
tiles of 4x4, else from 128 on. Tiles of 4x4 round some four times as coarsely as plain sums. Other
convolutions of 16 channels or more go row by row, which leaves nothing large beside the image
(`image_rows.py`). Clients run one at a time on each core (`chunk="auto"`, a device a core), and
batches in parts of 16 (`micro`).

Other processors, and what was tried: [notebook](notebook.md#one-local-step-on-cpu).
"""
