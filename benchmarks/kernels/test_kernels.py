"""The server's kernels, and a round of each of the four systems.

`pytest benchmarks --benchmark-only` runs these benchmarks; `python -m benchmarks.kernels` does so
and writes docs/kernels.md. A test is one kernel at one size. Its extra columns (`--benchmark-json`)
are milliseconds of the floor and of each peer, and seconds of compiling.
"""

import functools
import gc
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.kernels import rounds, steps
from benchmarks.kernels.cases import KERNELS, OF_MODELS, OF_PAIRS
from benchmarks.kernels.inputs import Kernel, left_out
from benchmarks.measure import best_ms, copy_gbs, dispatch_ms, product_gflops, repeats_within

CLIENTS = (10, 100, 1_000)
PARAMETERS = (10_000, 100_000, 1_000_000)
CASES = [(m, d, name) for d in PARAMETERS for m in CLIENTS for name in sorted(OF_MODELS)]
CASES += [(m, 0, name) for m in CLIENTS for name in sorted(OF_PAIRS)]


@functools.cache
def rates() -> dict[str, float]:
    """The rates of this machine, one device, in this process."""
    return {"gflops": product_gflops(), "gbs": copy_gbs(), "dispatch_ms": dispatch_ms()}


def floor_ms(operations: float, floats: float) -> float:
    """The least time: the operations, the bytes, or the call itself, whatever takes longest."""
    rate = rates()
    by_operations = operations / rate["gflops"] / 1e6
    by_bytes = 4 * floats / rate["gbs"] / 1e6
    return max(by_operations, by_bytes, rate["dispatch_ms"])


@functools.lru_cache(maxsize=1)
def inputs_of(make: Callable, m: int, d: int) -> tuple[np.ndarray, ...]:
    """The arguments; kernels with the same arguments come one after another."""
    return make(np.random.default_rng(0), m, d)


def peers_ms(kernel: Kernel, arguments: tuple[np.ndarray, ...]) -> dict[str, float]:
    """Milliseconds of each peer that computes this size in some seconds."""
    clients = len(arguments[0])
    found = {}
    for name, peer in kernel.peers.items():
        if clients <= peer.most:
            found[name] = quickest_ms(functools.partial(peer.run, *arguments), peer.compiled)
    return found


def quickest_ms(function: Callable, compiled: bool = False) -> float:
    """Milliseconds of the best call. The first one warms up; it counts if it takes a second."""
    if compiled:
        function()
    began = time.perf_counter()
    jax.block_until_ready(function())
    first = 1e3 * (time.perf_counter() - began)
    return min(first, best_ms(function, repeats_within(first))) if first < 1e3 else first


def measure(benchmark, run: Callable, extra: dict[str, object]) -> None:
    """Times a compiled function as often as fits a third of a second."""
    began = time.perf_counter()
    jax.block_until_ready(run())
    rounds = repeats_within(1e3 * (time.perf_counter() - began))
    benchmark.extra_info.update(extra | rates())
    benchmark.pedantic(lambda: jax.block_until_ready(run()), rounds=rounds, warmup_rounds=1)


@pytest.mark.parametrize(("m", "d", "name"), CASES, ids=lambda value: str(value))
def test_kernel(benchmark, m, d, name):
    """One call of the compiled kernel."""
    kernel = KERNELS[name]
    reason = left_out(kernel, m, d)
    if reason:
        pytest.skip(reason)
    host = inputs_of(kernel.inputs, m, d)
    arguments = tuple(map(jnp.asarray, host))
    began = time.perf_counter()
    run = jax.jit(kernel.run).lower(*arguments).compile()
    extra = {
        "kernel": name,
        "kind": "models" if name in OF_MODELS else "pairs",
        "m": m,
        "d": d,
        "compile_seconds": time.perf_counter() - began,
        "floor_ms": floor_ms(kernel.operations(m, d), kernel.floats(m, d)),
        "peers": peers_ms(kernel, host),
    }
    measure(benchmark, lambda: run(*arguments), extra)
    gc.collect()


@pytest.mark.parametrize("clients", steps.CLIENTS)
@pytest.mark.parametrize("system", steps.SYSTEMS)
def test_server_step(benchmark, system, clients):
    """From uploads to a model for each client, by `jaxfl.server_step`."""
    step, compiling = steps.compiled_step(system, clients)
    extra = {
        "kernel": system,
        "kind": "step",
        "m": clients,
        "d": steps.PARAMETERS,
        "compile_seconds": compiling,
        "floor_ms": floor_ms(steps.operations(clients), steps.floats(clients)),
        "peers": {},
    }
    measure(benchmark, step, extra)
    gc.collect()


@pytest.mark.parametrize("system", rounds.SYSTEMS)
def test_round(benchmark, system):
    """A round of a toy federation: local training, uploads, the server's step."""
    one_round, compiling = rounds.compiled_round(system)
    extra = {
        "kernel": system,
        "kind": "round",
        "m": rounds.CLIENTS,
        "d": 0,
        "compile_seconds": compiling,
        "floor_ms": floor_ms(rounds.operations(), 0),
        "peers": {"NumPy, training alone": quickest_ms(rounds.numpy_training())},
    }
    measure(benchmark, one_round, extra)
