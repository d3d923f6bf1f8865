"""The server's step of many clients: products of matrices beside sketches and sparse rows."""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import best_ms
from benchmarks.rounds.server_step import SIZE, models
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.simplex import collaboration_rows
from jaxfl.kernels.sketch import sketches
from jaxfl.kernels.sparse import keep_largest, sparse_rows
from jaxfl.simulation import mesh

EDGES = 10
SKETCH = 256
SKETCHES = (64, 256, 1024)  # of which the error is shown


def step_ms(clients: int, size: int = SIZE, repeats: int = 3) -> dict[str, float]:
    """Milliseconds of each part of the step, on one device.

    Args:
      clients: M.
      size: D.
      repeats: of each part; the best counts.
    """
    key = jax.random.key(0)
    x = jnp.asarray(models(clients, size))
    share = jnp.full(clients, 1 / clients)
    exact = jax.jit(cosine)
    sketched = jax.jit(lambda key, x: cosine(sketches(key, x, SKETCH)))
    rows_of = jax.jit(lambda near: collaboration_rows(near, share, 0.08 * clients, "code"))
    few = jax.jit(lambda weights: sparse_rows(keep_largest(weights, EDGES), EDGES + 1))
    mixed = jax.jit(mix)
    near = exact(x)
    weights = rows_of(near)
    rows = few(weights)
    return {
        "exact cosines": best_ms(lambda: exact(x), repeats),
        "cosines of sketches": best_ms(lambda: sketched(key, x), repeats),
        "weights": best_ms(lambda: rows_of(near), repeats),
        "largest weights": best_ms(lambda: few(weights), repeats),
        "dense mixing": best_ms(lambda: mixed(weights, x), repeats),
        "sparse mixing": best_ms(lambda: mixed(rows, x), repeats),
    }


def cosine_error(size: int, clients: int = 100, parameters: int = SIZE) -> float:
    """The root mean square of the error of the cosines of sketches, of pairs of random models."""
    x = jnp.asarray(models(clients, parameters))
    exact = np.asarray(cosine(x))
    found = np.asarray(cosine(sketches(jax.random.key(1), x, size)))
    return float(np.sqrt(np.mean((found - exact)[~np.eye(clients, dtype=bool)] ** 2)))


def section(floor: float, sizes: tuple[int, ...] = (200, 2000), size: int = SIZE) -> str:
    """The table and the lines below it."""
    rows = []
    for clients in sizes:
        # With several devices in use, each would compute all of it.
        with jax.set_mesh(mesh.make_mesh(1)):
            ms = step_ms(clients, size)
        bound = 2 * clients**2 * size / floor / 1e6
        weights = ms["weights"] + ms["largest weights"]
        dense = ms["exact cosines"] + ms["weights"] + ms["dense mixing"]
        sparse = ms["cosines of sketches"] + weights + ms["sparse mixing"]
        cells = [
            ("similarities", ms["exact cosines"], ms["cosines of sketches"]),
            ("weights", ms["weights"], weights),
            ("mixing", ms["dense mixing"], ms["sparse mixing"]),
            ("all", dense, sparse),
        ]
        rows += [
            f"| {clients} | {part} | {exact:.1f} | {few:.1f} | {exact / few:.1f} |"
            for part, exact, few in cells
        ]
        rows.append(f"| {clients} | floor of one product | {bound:.1f} | - | - |")
    errors = ", ".join(f"{cosine_error(d, parameters=size):.3f} with {d}" for d in SKETCHES)
    return TEXT.format(rows="\n".join(rows), errors=errors, size=size)


TEXT = """## The server step of many clients

The parts of pFedGraph's step for M models of {size:,} parameters on one device: with exact cosines
and mixing by a product of matrices, and with cosines of sketches of 256 numbers (`sketch=256`) and
the ten largest weights of each row (`--top-edges 10`), which are mixed by sparse rows. The weights
are those of the quadratic program, and of the choice of the largest.

| M | part | dense, ms | sparse, ms | times |
|---:|---|---:|---:|---:|
{rows}

A product of matrices is bound by its 2 M^2 D operations, the floor at the rate above; rates differ
by a few per cent within a run, so a product can be below it. Each part is timed as a program of its
own; together they take longer than the whole step of the section before. The root mean square of
the error of a cosine of two random models is
{errors} numbers.

Other processors: [notebook](notebook.md#the-server-step-of-many-clients-on-cpu).
"""
