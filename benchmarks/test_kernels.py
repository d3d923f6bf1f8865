"""The server's kernels over numbers of models and parameters: `pytest benchmarks --benchmark-only`.

Compiling is not included. `floor` in the extra columns (`--benchmark-json`) is the time in
milliseconds of the kernel's matrix products at the speed of 2048x2048 products in the same process;
None for a kernel without products.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.measure import product_gflops
from jaxfl.kernels.cluster import kmeans
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.simplex import project_rows

SIZES = [(10, 62_006), (50, 62_006), (200, 62_006), (1_000, 100_000)]
KERNELS = {
    "cosine": lambda x: cosine(x),
    "mix": lambda x: mix(x[:, : x.shape[0]], x),
    "project_rows": lambda x: project_rows(x[:, : x.shape[0]]),
    "kmeans": lambda x: (
        kmeans(jax.random.key(0), x, jnp.arange(x.shape[0]), 5, restarts=10).inertia
    ),
}
PRODUCTS = {"cosine", "mix", "kmeans"}
floor_gflops = functools.cache(product_gflops)


@pytest.fixture(scope="module", params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def models(request):
    """Random models [M, D]."""
    return jnp.asarray(np.random.default_rng(0).normal(size=request.param), jnp.float32)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernel(benchmark, models, name):
    """One call of the compiled kernel."""
    if name == "kmeans" and len(models) > 200:
        pytest.skip("k-means is for cohorts")
    run = jax.jit(KERNELS[name]).lower(models).compile()
    m, d = models.shape
    benchmark.extra_info["floor"] = (
        2 * m * m * d / floor_gflops() / 1e6 if name in PRODUCTS else None
    )
    benchmark.pedantic(lambda: jax.block_until_ready(run(models)), rounds=5, warmup_rounds=1)
