"""The server's step: similarities, collaboration weights, mixing; and k-means of models."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.cluster import KMeans

from benchmarks.measure import best_ms
from benchmarks.peers import peer_cells, run_peer
from benchmarks.peers.work import timed
from jaxfl.kernels.cluster import kmeans
from jaxfl.kernels.mixing import mix
from jaxfl.kernels.similarity import cosine
from jaxfl.kernels.simplex import collaboration_rows
from jaxfl.simulation import mesh

SIZE = 62_006  # parameters of a LeNet


def models(clients: int, size: int = SIZE) -> np.ndarray:
    """Random models [M, D]."""
    return np.random.default_rng(0).normal(size=(clients, size)).astype(np.float32)


def server_ms(clients: int, devices: int | None = None) -> float:
    """Milliseconds of pFedGraph's three kernels as one jitted function.

    The models are divided over the devices, as after training.

    Args:
      clients: M.
      devices: number of devices; all if None.
    """
    share = jnp.full(clients, 1 / clients)

    @jax.jit
    def step(x):
        weights = collaboration_rows(cosine(x), share, 0.08 * clients, "code")
        return weights, mix(weights, x)

    with jax.set_mesh(mesh.make_mesh(devices)):
        x = mesh.place(jnp.asarray(models(clients)))
        return best_ms(lambda: step(x))


def kmeans_ms(clients: int, clusters: int) -> tuple[float, float]:
    """Milliseconds of k-means by jaxfl and by scikit-learn, with ten restarts each."""
    host = models(clients)
    x = mesh.place(jnp.asarray(host))
    ids = jnp.arange(clients)
    key = jax.random.key(0)
    run = jax.jit(lambda key, x: kmeans(key, x, clusters, ids, restarts=10))
    # A checker takes the argument for a text, as its default is one.
    sklearn = KMeans(clusters, n_init=10, random_state=0)  # pyright: ignore[reportArgumentType]
    return best_ms(lambda: run(key, x)), 1e3 * min(timed(lambda: sklearn.fit(host)))


def section(
    environments: Path | None, floor: float, sizes: tuple[int, ...] = (10, 50, 100, 200)
) -> str:
    """The table and the line below it."""
    ours = [server_ms(clients, 1) for clients in sizes]
    split = [server_ms(clients) for clients in sizes]
    found = run_peer(environments, "server_loops", *sizes)
    peers = [found] * len(sizes) if isinstance(found, str) else [{"ms": ms} for ms in found["ms"]]
    rows = [
        f"| {clients} | {4 * clients**2 * SIZE / floor / 1e6:.2f} | {own:.2f} | {many:.2f} | "
        f"{peer_cells(peer, own, digits=0)} |"
        for clients, own, many, peer in zip(sizes, ours, split, peers, strict=True)
    ]
    own, sklearn = kmeans_ms(30, 5)
    version = "" if isinstance(found, str) else f"; {found['version']}"
    return TEXT.format(
        rows="\n".join(rows), version=version, own=own, sklearn=sklearn, ratio=sklearn / own
    )


TEXT = """## The server step of pFedGraph

Cosines, collaboration weights and mixing of M models of 62,006 parameters. The peer is the way of
reference scripts (`benchmarks/peers/server_loops.py`{version}): a NumPy cosine a pair, a
quadratic program a row, a sum a pair and layer.

| M | floor, ms | one device, ms | all devices, ms | loops, ms | times one device |
|---:|---:|---:|---:|---:|---:|
{rows}

The floor is the two products at the rate above. With few models the products are too thin for that
rate.

Other processors, and what was tried: [notebook](notebook.md#the-server-step-of-pfedgraph-on-cpu).

K-means of 30 such models in 5 clusters, ten restarts: {own:.1f} ms, scikit-learn {sklearn:.1f} ms
({ratio:.1f} times).
"""
