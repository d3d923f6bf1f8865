"""Milliseconds of one local SGD step of one client, compile time apart."""

import time

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import jaxfl
from jaxfl.models.block import ConvReluPool
from jaxfl.types import Chunk, Cohort, Dataset


class Three(nn.Module):
    """Three convolutions with same padding (5x5x32, 3x3x64, 3x3x64), each pooled, and two dense layers."""

    @nn.compact
    def __call__(self, x):
        """[B, h, w, channel] -> [B, 10]."""
        for kernel, width in ((5, 32), (3, 64), (3, 64)):
            x = ConvReluPool(width, (kernel, kernel))(x)
        x = nn.relu(nn.Dense(128)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


MODELS = {"lenet": lambda: jaxfl.models.lenet(10), "three": Three}


def client_step_ms(
    model: str, side: int, batch: int, *, clients: int = 4, steps: int = 20, repeats: int = 7, chunk: Chunk = "auto"
) -> dict[str, float]:
    """One SGD step of one client, best of several calls that train all clients; and the seconds of compiling."""
    channels = 1 if side == 28 else 3
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(clients, 320, side, side, channels)), jnp.float32)
    y = jnp.asarray(rng.integers(0, 10, (clients, 320)), jnp.int32)
    data = Dataset(x, y, jnp.ones((clients, 320), bool))
    task = jaxfl.classification(MODELS[model](), x[0, 0], batch_size=batch, steps=steps, chunk=chunk)
    params = jax.vmap(task.init)(jax.random.split(jax.random.key(0), clients))
    cohort = Cohort(jnp.arange(clients), data, data)
    began = time.perf_counter()
    fit = jax.jit(task.trainer(task.loss)).lower(jax.random.key(0), params, None, cohort).compile()
    compiling = time.perf_counter() - began
    best = float("inf")
    for _ in range(repeats + 1):  # the first warms up
        began = time.perf_counter()
        jax.block_until_ready(fit(jax.random.key(0), params, None, cohort))
        best = min(best, time.perf_counter() - began)
    return {"ms": 1e3 * best / clients / steps, "compile_seconds": compiling}
