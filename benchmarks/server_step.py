"""Milliseconds of pFedGraph's server step: similarities, collaboration weights, mixing."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.simplex import collaboration_rows


def best_ms(function, repeats: int = 7) -> float:
    """Best of several calls, after one to warm up."""
    best = float("inf")
    for _ in range(repeats + 1):
        began = time.perf_counter()
        jax.block_until_ready(function())
        best = min(best, time.perf_counter() - began)
    return 1e3 * best


def models(clients: int, size: int) -> np.ndarray:
    """Random models [M, D]."""
    return np.random.default_rng(0).normal(size=(clients, size)).astype(np.float32)


def jaxfl_ms(clients: int, size: int = 62_006) -> float:
    """The three kernels as one jitted function."""
    share = jnp.full(clients, 1 / clients)

    @jax.jit
    def step(x):
        weights = collaboration_rows(cosine(x), share, 0.08 * clients, "code")
        return weights, mix(weights, x)

    x = jnp.asarray(models(clients, size))
    return best_ms(lambda: step(x))


def loops_ms(clients: int, size: int = 62_006) -> float:
    """As reference scripts do it: a NumPy cosine for each pair, a QP for each row (SciPy), a sum for each pair."""
    from scipy.optimize import minimize

    x = models(clients, size)
    p = np.full(clients, 1 / clients)
    alpha = 0.08 * clients

    def step():
        s = np.ones((clients, clients))
        for i in range(clients):
            for j in range(i):
                s[i, j] = s[j, i] = x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j])
        weights = np.stack(
            [
                minimize(
                    lambda w, s=s[i]: alpha * (w - p) @ (w - p) - s @ w,
                    p,
                    jac=lambda w, s=s[i]: 2 * alpha * (w - p) - s,
                    bounds=[(0, None)] * clients,
                    constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
                    method="SLSQP",
                ).x
                for i in range(clients)
            ]
        )
        mixed = np.zeros_like(x)
        for i in range(clients):
            for j in range(clients):
                mixed[i] += weights[i, j] * x[j]
        return mixed

    return best_ms(step, repeats=2)


def product_gflops(size: int = 2048) -> float:
    """The floor: f32 matrix product, billions of operations a second."""
    a = jnp.asarray(np.random.default_rng(0).normal(size=(size, size)), jnp.float32)
    product = jax.jit(jnp.matmul)
    return 2 * size**3 / best_ms(lambda: product(a, a)) / 1e6
