"""The server's step: similarities, collaboration weights, mixing."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.measure import best_ms
from benchmarks.peers import against, ask
from jaxfl import mesh
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.simplex import collaboration_rows

SIZE = 62_006  # parameters of a LeNet


def models(clients: int, size: int = SIZE) -> np.ndarray:
    """Random models [M, D]."""
    return np.random.default_rng(0).normal(size=(clients, size)).astype(np.float32)


def server_ms(clients: int) -> float:
    """The three kernels of pFedGraph as one jitted function."""
    share = jnp.full(clients, 1 / clients)

    @jax.jit
    def step(x):
        weights = collaboration_rows(cosine(x), share, 0.08 * clients, "code")
        return weights, mix(weights, x)

    x = mesh.place(jnp.asarray(models(clients)))  # as training leaves them
    return best_ms(lambda: step(x))


def section(environments: Path | None, sizes: tuple[int, ...] = (10, 50, 100, 200)) -> str:
    """The table."""
    ours = [server_ms(clients) for clients in sizes]
    found = ask(environments, "server_loops", *sizes)
    peers = [found] * len(sizes) if isinstance(found, str) else [{"ms": ms} for ms in found["ms"]]
    rows = [
        f"| {clients} | {own:.2f} | {against(peer, own, digits=0)} |"
        for clients, own, peer in zip(sizes, ours, peers, strict=True)
    ]
    version = "" if isinstance(found, str) else f"; {found['version']}"
    return TEXT.format(rows="\n".join(rows), version=version)


TEXT = """## The server step of pFedGraph

Cosines, collaboration weights and mixing of M models of 62,006 parameters. The peer is the way of reference scripts
(`benchmarks/peers/server_loops.py`{version}): a NumPy cosine a pair, a quadratic program a row, a sum a pair and layer.

| M | jaxfl, ms | loops, ms | times jaxfl |
|---:|---:|---:|---:|
{rows}
"""
