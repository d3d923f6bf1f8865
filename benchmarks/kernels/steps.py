"""The server's step of each of the four systems, for uploads of any clients."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from benchmarks.kernels.rounds import LAYERS, SYSTEMS
from jaxfl.core.types import Dataset

__all__ = ["CLIENTS", "SYSTEMS", "compiled_step", "floats", "operations"]

CLIENTS = (10, 100, 1_000)
HIDDEN = 1_000  # of an MLP with 75,010 parameters
PARAMETERS = (LAYERS[0] + 1) * HIDDEN + (HIDDEN + 1) * LAYERS[-1]


def compiled_step(system: str, clients: int) -> tuple[Callable, float]:
    """A function that takes the step with the same uploads again, and seconds of compiling."""
    rng = np.random.default_rng(0)
    example = np.zeros(LAYERS[0], np.float32)
    task = jaxfl.classification(jaxfl.models.mlp(LAYERS[-1], hidden=(HIDDEN,)), example)
    algorithm = jaxfl.algorithms.ALGORITHMS[system](task)
    x, y, mask = np.zeros((clients, 1, LAYERS[0]), np.float32), np.zeros((clients, 1), int), np.ones
    # Clients of pFedGAT answer the server: what they would answer is not in its step.
    data = Dataset(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask((clients, 1), bool)))
    key = jax.random.key(0)
    state = algorithm.init(key, data)
    model = task.problem.init(key)
    uploads = jax.tree.map(
        lambda leaf: jnp.asarray(
            leaf + 0.01 * rng.standard_normal((clients, *leaf.shape), np.float32)
        ),
        model,
    )
    sizes = jnp.full(clients, 30)
    step = jaxfl.server_step(algorithm)
    began = time.perf_counter()
    jax.block_until_ready(step(state, uploads, sizes, data=data).models)
    compiling = time.perf_counter() - began
    return lambda: step(state, uploads, sizes, data=data).models, compiling


def operations(clients: int) -> float:
    """Floating-point operations of mixing models for each client; those of comparing vary."""
    return 2 * clients * clients * PARAMETERS


def floats(clients: int) -> float:
    """Uploads that are read and models that are written."""
    return 2 * clients * PARAMETERS
