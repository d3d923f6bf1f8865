"""Compiles rounds and local steps for an accelerator that is described, and writes their page.

`python -m benchmarks.accelerators --platform cuda|tpu [METHOD ...] [--parts rounds steps]` compiles
for an H100 or for four chips of a TPU v5e, on a machine that has neither, in an environment with
the compiler: `pip install -e '.[tpu]'`, or `'.[cuda]'`. Each row is kept in measured.json
as soon as it is known, and docs/accelerators.md is written from it, so the two platforms may be
compiled in different environments. It takes half an hour to two hours a platform on two cores.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from itertools import product
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

import jaxfl
from benchmarks.accelerators import described_devices
from benchmarks.accelerators.page import ROWS, write_page
from benchmarks.rounds import adapters
from benchmarks.rounds.local_training import MODELS
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.types import CLIENTS, Cohort, Dataset, Federation, State, Task
from jaxfl.models.convolution.conv import Conv
from jaxfl.training.objectives import data_loss
from jaxfl.training.task import Compute

Platform = Literal["cuda", "tpu"]
Part = Literal["rounds", "mlp_rounds", "steps", "adapters"]

IMAGE = (32, 32, 3)
# The federation of the rounds.
ROUND_CLIENTS, EXAMPLES, HELD_OUT = 100, 200, 40
BATCH, STEPS = 64, 20


def images(mesh: Mesh, clients: int, rows: int) -> Dataset:
    """The shapes of images of all clients."""

    def shape(sides: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((clients, rows, *sides), dtype)

    mask = cast(Array, shape((), jnp.bool_))  # a shape stands for the array
    data = Dataset(shape(IMAGE, jnp.uint8), shape((), jnp.int32), mask)
    return placed(data, mesh, CLIENTS)


def placed(tree: PyTree, mesh: Mesh, *axes: str) -> PyTree:
    """Shapes with a layout: divided along the given axes of the mesh, or whole on each device."""
    sharding = NamedSharding(mesh, PartitionSpec(*axes))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def random_key(mesh: Mesh) -> PyTree:
    """The shape of a key, whole on each device."""
    return placed(jax.eval_shape(lambda: jax.random.key(0)), mesh)


def round_program(platform: Platform, part: Part, method: str) -> jax.stages.Lowered:
    """A round of all clients by a method, traced for the described devices."""
    mesh = described_devices.mesh_of(platform)
    task = jaxfl.classification(
        jaxfl.models.lenet(10) if part == "rounds" else jaxfl.models.mlp(10),
        np.zeros(IMAGE, np.uint8),
        scale=255.0,
        steps=STEPS,
        batch_size=BATCH,
    )
    held_out = images(mesh, ROUND_CLIENTS, HELD_OUT)
    federation = Federation(images(mesh, ROUND_CLIENTS, EXAMPLES), held_out, held_out)
    key = random_key(mesh)
    algorithm = ALGORITHMS[method](task)
    with jax.set_mesh(mesh):
        state = jax.eval_shape(algorithm.init, key, federation.train)
        state = State(placed(state.clients, mesh, CLIENTS), placed(state.server, mesh))
        everybody = jaxfl.participation.full(ROUND_CLIENTS)
        rounds = partial(jaxfl.make_rounds(algorithm, everybody), length=1)
        traced = jax.jit(rounds).trace(key, federation, state, 0)
        return traced.lower(lowering_platforms=(platform,))


def step_program(platform: Platform, task: Task, clients: int, examples: int) -> jax.stages.Lowered:
    """Local training of all clients, traced for one of the described devices."""
    mesh = described_devices.mesh_of(platform, devices=1)
    data = images(mesh, clients, examples)
    params = jax.eval_shape(
        lambda: jaxfl.tree.broadcast(task.problem.init(jax.random.key(0)), clients)
    )
    ids = jax.ShapeDtypeStruct((clients,), jnp.int32)
    cohort = Cohort(placed(ids, mesh, CLIENTS), data, data)
    with jax.set_mesh(mesh):
        fit = jax.jit(task.trainer(data_loss(task.problem)))
        traced = fit.trace(random_key(mesh), placed(params, mesh, CLIENTS), None, cohort)
        return traced.lower(lowering_platforms=(platform,))


# Model, clients, batch, arithmetic of the table of local steps; each with both convolutions.
ARITHMETIC: tuple[Compute, ...] = ("float32", "bfloat16")
CASES = tuple(product(("lenet", "three", "cedar6"), (10, 100, 1000), (10, 64), ARITHMETIC))


def case_task(model: str, batch: int, arithmetic: Compute, conv: Conv) -> Task:
    """Local training of a case: 20 steps."""
    return jaxfl.classification(
        MODELS[model](conv=conv),
        np.zeros(IMAGE, np.uint8),
        scale=255.0,
        steps=STEPS,
        batch_size=batch,
        compute=arithmetic,
    )


# Clients, batch of the table of adapters.
ADAPTERS = ((100, 16),)
# Without a device XLA finds no size of tiles for its own kernels of the joint products ("Couldn't
# find output tile sizes"), of which it measures several where there is one: those of cuBLAS.
ADAPTER_OPTIONS: dict[Platform, dict[str, Any]] = {
    "cuda": {"xla_gpu_enable_triton_gemm": False},
    "tpu": {},
}


def measure(
    platform: Platform,
    lower: Callable[[], jax.stages.Lowered],
    frozen: Collection[tuple[int, int]] = (),
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Compiles a program: what it consists of and how long that takes, or why it fails.

    Args:
      platform: what it is compiled for.
      lower: traces it.
      frozen: sides of weights that all clients share.
      options: of the compiler.
    """
    try:
        began = time.perf_counter()
        lowered = lower()
        traced = time.perf_counter()
        used = time.process_time()
        program = lowered.compile(compiler_options=options)
        compiled = time.perf_counter()
        used = time.process_time() - used
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:200]}"}
    text = program.as_text() or ""
    memory = program.memory_analysis()
    row: dict[str, Any] = {
        "trace_seconds": round(traced - began, 1),
        "compile_seconds": round(compiled - traced, 1),
        "compile_cpu_seconds": round(used, 1),
        "temporaries": 0 if memory is None else memory.temp_size_in_bytes,
        "grouped": described_devices.is_grouped(text),
    }
    cost = described_devices.program_cost(program)
    if cost is not None:
        row["program_operations"], row["program_bytes"] = cost
    step = described_devices.step_of(text)
    if step is not None:
        row |= {"kernels": step.kernels, "bytes": step.bytes, "operations": step.operations}
        if frozen:
            row |= described_devices.frozen_products(step, frozen)
    return row


def keep(platform: Platform, part: Part, name: str, row: dict[str, Any]) -> None:
    """Writes a row into the file of all rows, and the page."""
    rows = json.loads(ROWS.read_text()) if ROWS.exists() else {}
    rows.setdefault(platform, {}).setdefault(part, {})[name] = row
    new = ROWS.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    new.replace(ROWS)
    write_page(rows)
    told = " ".join(f"{key}={value}" for key, value in row.items())
    print(f"{platform} {name}: {told}", flush=True)


def check_request(platform: Platform, methods: tuple[str, ...]) -> None:
    """Ends the program with one line if nothing could be compiled; no row is lost then."""
    unknown = [name for name in methods if name not in ALGORITHMS]
    if unknown:
        sys.exit(f"there is no method {unknown[0]}: choose from {', '.join(sorted(ALGORITHMS))}")
    try:
        described_devices.mesh_of(platform)
    except (NotImplementedError, RuntimeError, ValueError) as error:
        sys.exit(
            f"this environment has no compiler for {platform} ({str(error).splitlines()[0]}): "
            f"install jaxfl into one of its own with pip install -e '.[{platform}]'"
        )


def main(
    methods: tyro.conf.Positional[tuple[str, ...]] = (),
    /,
    *,
    platform: Platform,
    parts: tuple[Part, ...] = ("rounds", "steps", "adapters"),
    skip_known: bool = False,
) -> None:
    """Compiles, and writes docs/accelerators.md.

    Args:
      methods: whose rounds are compiled; all of the registry if none is named.
      platform: an NVIDIA H100, or four chips of a TPU v5e.
      parts: rounds of methods with LeNet, and with an MLP, which compile sooner; local steps of
        models, and of adapters on a frozen one.
      skip_known: only what has no row yet, or did not compile.
    """
    described_devices.prepare()
    check_request(platform, methods)
    known = json.loads(ROWS.read_text()).get(platform, {}) if skip_known else {}
    for part in ("rounds", "mlp_rounds"):
        for method in methods or sorted(ALGORITHMS) if part in parts else ():
            if "kernels" not in known.get(part, {}).get(method, {}):
                lower = partial(round_program, platform, part, method)
                keep(platform, part, method, measure(platform, lower))
    if "steps" in parts:
        for model, clients, batch, arithmetic in CASES:
            for conv in ("patches", "grouped"):
                name = f"{model} {clients} {batch} {arithmetic} {conv}"
                if "kernels" not in known.get("steps", {}).get(name, {}):
                    task = case_task(model, batch, arithmetic, conv)
                    lower = partial(step_program, platform, task, clients, 4 * batch)
                    keep(platform, "steps", name, measure(platform, lower))
    if "adapters" in parts:
        for clients, batch in ADAPTERS:
            name = f"{clients} {batch}"
            if "kernels" not in known.get("adapters", {}).get(name, {}):
                task = adapters.task_of(batch, STEPS)
                lower = partial(step_program, platform, task, clients, 4 * batch)
                frozen = adapters.frozen_kernels()
                row = measure(platform, lower, frozen, ADAPTER_OPTIONS[platform])
                keep(platform, "adapters", name, row)


if __name__ == "__main__":
    tyro.cli(main)
