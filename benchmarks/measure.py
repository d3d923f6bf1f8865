"""What the benchmarks of jaxfl share: a clock, the machine's floor and its devices, a compiled round."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from jaxfl import mesh
from jaxfl.types import Algorithm, Dataset, Federation


def best_ms(function: Callable, repeats: int = 7) -> float:
    """Best of several calls, after one to warm up."""
    best = float("inf")
    for number in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(function())
        if number:
            best = min(best, time.perf_counter() - began)
    return 1e3 * best


def product_gflops(size: int = 2048) -> float:
    """The floor: f32 matrix products, one on each device at once, billions of operations a second."""
    count = jax.local_device_count()
    a = mesh.place(
        jnp.asarray(np.random.default_rng(0).normal(size=(count, size, size)), jnp.float32)
    )
    product = jax.jit(jnp.matmul)
    return 2 * count * size**3 / best_ms(lambda: product(a, a)) / 1e6


def use_all_cores() -> AbstractContextManager:
    """As `jaxfl run` by itself: in the context that this returns, clients are spread over a device for each core."""
    mesh.prepare_host()
    return jax.set_mesh(mesh.make_mesh())


def rounds_of(algorithm: Algorithm, federation: Federation) -> tuple[Callable, float]:
    """A function that runs one more round of all clients and returns the state; and the seconds of compiling.

    A round consumes the state that the one before returned.
    """
    rounds = jaxfl.make_rounds(algorithm, jaxfl.participation.full(len(federation.train.mask)))
    key, federation = jax.random.key(0), mesh.place(federation)
    state = mesh.place(jax.jit(algorithm.init)(key, federation.train))
    layout = jax.tree.map(lambda x: x.sharding, state)
    began = time.perf_counter()
    run = jax.jit(partial(rounds, length=1), donate_argnums=2, out_shardings=(layout, None))
    run = run.lower(key, federation, state, 0).compile()
    seconds = time.perf_counter() - began

    def one_round():
        nonlocal state
        state, _ = run(key, federation, state, 0)
        return state

    return one_round, seconds


def unscored(train: Dataset) -> Federation:
    """A federation that nothing is evaluated on."""
    nothing = jax.tree.map(lambda x: x[:, :0], train)
    return Federation(train, nothing, nothing)
