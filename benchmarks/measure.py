"""Shared by all benchmarks: a clock, the speed of matrix products, devices, a compiled round."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from jaxfl.core.ragged import is_ragged
from jaxfl.core.types import Algorithm, Dataset, Federation
from jaxfl.simulation import mesh, processes


def best_ms(function: Callable, repeats: int = 7) -> float:
    """Milliseconds of the best of several calls, after one to warm up."""
    best = float("inf")
    for number in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(function())
        if number:
            best = min(best, time.perf_counter() - began)
    return 1e3 * best


def product_gflops(size: int = 2048, dtype: str = "float32") -> float:
    """Billions of operations per second of matrix products, one on each device at once."""
    count = jax.local_device_count()
    a = mesh.place(jnp.asarray(np.random.default_rng(0).normal(size=(count, size, size)), dtype))
    product = jax.jit(jnp.matmul)
    return 2 * count * size**3 / best_ms(lambda: product(a, a)) / 1e6


def use_all_cores() -> AbstractContextManager:
    """A context in which clients are divided over one device per core, as `jaxfl run` does."""
    processes.prepare_host()
    return jax.set_mesh(mesh.make_mesh())


def compile_round(algorithm: Algorithm, federation: Federation) -> tuple[Callable, float]:
    """A function that runs the next round of all clients, and seconds of compiling.

    The function returns the state. A round consumes the state of the round before.
    """
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(len(federation.train.mask)))
    key = jax.random.key(0)
    federation = mesh.place(federation)
    state = mesh.place(jax.jit(algorithm.init)(key, federation.train))
    layout = jax.tree.map(lambda x: x.sharding, state)
    # As `jaxfl run` does: `place` shares NumPy's memory, which the first round could not take.
    state = jax.jit(partial(jax.tree.map, jnp.copy), out_shardings=layout)(state)
    began = time.perf_counter()
    run = jax.jit(partial(rounds, length=1), donate_argnums=2, out_shardings=(layout, None))
    run = run.lower(key, federation, state, 0).compile()
    seconds = time.perf_counter() - began

    def one_round():
        nonlocal state
        state, _ = run(key, federation, state, 0)
        return state

    return one_round, seconds


def without_evaluation(train: Dataset) -> Federation:
    """A federation without validation and test examples."""
    nothing = jax.tree.map(lambda x: x[:, :0], train, is_leaf=is_ragged)
    return Federation(train, nothing, nothing)


def copy_gbs(floats: int = 2**25) -> float:
    """Billions of bytes per second that an addition reads and writes in place, on one device.

    In place, because a new array of more than 32 MB is memory that the system must first hand out.
    """
    held = [jnp.zeros(floats)]
    add = jax.jit(lambda x: x + 1, donate_argnums=0)

    def in_place() -> jax.Array:
        held.append(add(held.pop()))
        return held[0]

    return 8 * floats / best_ms(in_place) / 1e6


def dispatch_ms() -> float:
    """Milliseconds of calling a compiled program that computes nothing to speak of."""
    x = jnp.zeros(1)
    add = jax.jit(lambda x: x + 1)
    return best_ms(lambda: add(x), 100)


def repeats_within(once_ms: float, seconds: float = 0.3) -> int:
    """How often to repeat a call that takes so many milliseconds: 2 to 20 times."""
    return min(max(int(1e3 * seconds / max(once_ms, 1e-3)), 2), 20)
