"""The server's kernels with their inputs, their floors and their peers.

What a client computes is not here: alignment, contrastive, gaussian, neighbours. Neither are
coupling, fomo and gossip, which are arithmetic on a few numbers for each pair of clients, nor
hypernet and server, which are a product and an optimiser of other libraries. coalitions,
combination, merit and reversible, which take no models, and learned have no benchmark. sketch and
sparse are in `sparse_step.py`. attention has a file of its own.
"""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import distance
from sklearn.metrics import pairwise

from benchmarks.kernels import peers
from benchmarks.kernels.attention import attention_kernels
from benchmarks.kernels.inputs import Kernel, Peer, models, rows, stochastic, symmetric, with_cells
from jaxfl.algorithms.steps import admm
from jaxfl.graphs import topology
from jaxfl.kernels import amp, consensus, projection, propagate, robust, similarity
from jaxfl.kernels.attention import layer_norm
from jaxfl.kernels.bipartition import bipartition
from jaxfl.kernels.cluster import centres, kmeans, nearest
from jaxfl.kernels.mixing import mix

STEPS = 20  # of Weiszfeld's algorithm


def gfedmtl_round(uploads, before, cells) -> tuple[jax.Array, jax.Array]:
    """(14) to (18) for a ring of three servers with two clusters each."""
    stack = jnp.concatenate([uploads, before])
    coupled, exchanged = consensus.server_round(cells, topology.adjacency("ring", 3), 0.5, 2)
    return mix(coupled, stack)[cells], mix(exchanged, stack)


def _everybody(x) -> jax.Array:
    return jnp.ones(x.shape[0], bool)


def _product(m: int, d: int) -> float:
    """Operations of a product [M, D] [D, M]."""
    return 2 * m * m * d


def _differences(m: int, d: int) -> float:
    """Operations of subtracting, squaring and adding for each pair of models."""
    return 3 * m * m * d


def _read(m: int, d: int) -> float:
    return m * d + m * m


def _square(m: int, d: int) -> float:
    return 2 * m * m


def _none(m: int, d: int) -> float:
    return 0


def _measured(measure: similarity.Measure) -> Callable:
    return lambda x: similarity.similarities(x, measure)


Metric = Literal["cityblock", "euclidean", "sqeuclidean"]


def _cdist(metric: Metric) -> dict[str, Peer]:
    return {"SciPy": Peer(lambda x: distance.cdist(x, x, metric))}


_QUADRATIC = {
    "SciPy SLSQP": (peers.slsqp, 10, False),
    "jaxopt OSQP": (peers.jaxopt_osqp, 10, True),
    "jaxopt gradient": (peers.jaxopt_gradient, 100, True),
}

# Kernels of models [M, D].
OF_MODELS = {
    "cosine": Kernel(
        similarity.cosine,
        models,
        _product,
        _read,
        {"scikit-learn": Peer(pairwise.cosine_similarity)},
    ),
    "dice": Kernel(_measured("dice"), models, _product, _read, {"NumPy": Peer(peers.dice)}),
    "inner": Kernel(
        _measured("inner"), models, _product, _read, {"NumPy": Peer(lambda x: x @ x.T)}
    ),
    "l1": Kernel(
        similarity.distances_l1, models, _differences, _read, _cdist("cityblock"), "pairs"
    ),
    "l2": Kernel(
        similarity.distances_l2, models, _differences, _read, _cdist("euclidean"), "pairs"
    ),
    "squared_differences": Kernel(
        similarity.squared_differences, models, _differences, _read, _cdist("sqeuclidean"), "pairs"
    ),
    "squared_distances": Kernel(
        similarity.squared_distances,
        models,
        _product,
        _read,
        {"scikit-learn": Peer(functools.partial(pairwise.euclidean_distances, squared=True))},
    ),
    "inverse_norms": Kernel(
        similarity.inverse_norms,
        models,
        lambda m, d: 2 * m * d,
        lambda m, d: m * d + m,
        {"NumPy": Peer(peers.inverse_norms)},
    ),
    "mix": Kernel(
        mix,
        lambda rng, m, d: (*stochastic(rng, m, d), *models(rng, m, d)),
        _product,
        lambda m, d: 2 * m * d + m * m,
        {"NumPy": Peer(np.matmul)},
    ),
    "kmeans": Kernel(
        lambda x: kmeans(jax.random.key(0), x, 5, restarts=10).inertia,
        models,
        _product,
        _read,
        {"scikit-learn": Peer(peers.kmeans_inertia)},
    ),
    "nearest": Kernel(
        nearest,
        lambda rng, m, d: (*models(rng, m, d), *models(rng, 5, d)),
        lambda m, d: 10 * m * d,
        lambda m, d: (m + 5) * d + m,
        {"scikit-learn": Peer(pairwise.pairwise_distances_argmin)},
    ),
    "centres": Kernel(
        lambda x, assignment: centres(x, assignment, jnp.zeros((5, x.shape[1]))),
        lambda rng, m, d: (*models(rng, m, d), np.arange(m) % 5),
        lambda m, d: m * d,
        lambda m, d: (m + 5) * d,
        {"NumPy": Peer(peers.centres)},
    ),
    "median": Kernel(
        lambda x: robust.median(x, _everybody(x)),
        models,
        _none,
        lambda m, d: m * d + d,
        {"NumPy": Peer(functools.partial(np.median, axis=0))},
        "ranks",
    ),
    "trimmed_mean": Kernel(
        lambda x: robust.trimmed_mean(x, 0.2, _everybody(x)),
        models,
        _none,
        lambda m, d: m * d + d,
        {"SciPy": Peer(peers.trimmed_mean)},
        "ranks",
    ),
    "krum": Kernel(
        lambda x: robust.krum(x, jnp.arange(x.shape[0]), _everybody(x), None, None),
        models,
        _differences,
        _read,
        {"SciPy": Peer(peers.krum)},
        "pairs",
    ),
    "geometric_median": Kernel(
        lambda x: robust.geometric_median(x, steps=STEPS),
        models,
        # A step subtracts, squares and adds, and then takes a weighted mean.
        lambda m, d: STEPS * 5 * m * d,
        lambda m, d: m * d + d,
        {"NumPy": Peer(lambda x: peers.geometric_median(x, STEPS))},
    ),
    "clip_updates": Kernel(
        lambda before, after: robust.clip_updates(before, after, None, _everybody(after)),
        lambda rng, m, d: (*models(rng, m, d), *models(rng, m, d)),
        _none,
        lambda m, d: 3 * m * d,
        {"NumPy": Peer(peers.clip_updates)},
    ),
    "layer_norm": Kernel(
        layer_norm, models, _none, lambda m, d: 2 * m * d, {"NumPy": Peer(peers.layer_norm)}
    ),
    **attention_kernels("gat"),
    **attention_kernels("gatv2"),
    **attention_kernels("dot"),
    "gfedmtl_round": Kernel(
        gfedmtl_round,
        with_cells,
        lambda m, d: 2 * 2 * 6 * (m + 6) * d,
        lambda m, d: (2 * m + 12) * d,
        {"NumPy": Peer(peers.server_round)},
    ),
    "admm_step": Kernel(
        lambda model, dual, shared: (
            admm.message(model, dual, 0.1),
            admm.ascend(dual, model, shared, 0.1),
        ),
        lambda rng, m, d: tuple(models(rng, m, d)[0] for _ in range(3)),
        _none,
        lambda m, d: 5 * m * d,
        {"NumPy": Peer(peers.admm_step)},
    ),
}

# pFedGraph's server step is measured at all sizes.
for _name in ("cosine", "mix"):
    OF_MODELS[_name] = OF_MODELS[_name]._replace(main=True)

# Kernels of matrices [M, M], which do not depend on D.
OF_PAIRS = {
    "project_rows": Kernel(
        projection.project_rows,
        rows,
        _none,
        _square,
        {"NumPy sort": Peer(peers.projected)}
        | {name: Peer(*peer) for name, peer in _QUADRATIC.items()},
    ),
    "project_capped_rows": Kernel(
        lambda x: projection.project_capped_rows(x, jnp.full(x.shape, 4 / x.shape[0])),
        rows,
        _none,
        _square,
        {
            name: Peer(lambda x, run=run: run(x, 4 / len(x)), most, compiled)
            for name, (run, most, compiled) in _QUADRATIC.items()
        }
        | {
            "jaxopt bisection": Peer(lambda x: peers.jaxopt_bisection(x, 4 / len(x)), compiled=True)
        },
    ),
    "graph_rows": Kernel(
        propagate.graph_rows, symmetric, _none, _square, {"NumPy": Peer(peers.graph_rows)}
    ),
    "propagate": Kernel(
        lambda x: propagate.propagate(x, 2),
        stochastic,
        lambda m, d: 2 * m**3,
        _square,
        {"NumPy": Peer(lambda x: np.linalg.matrix_power(x, 2))},
    ),
    "contraction": Kernel(
        lambda x: propagate.contraction(x, 2),
        stochastic,
        lambda m, d: 4 * m**3,
        _square,
        {"SciPy": Peer(peers.contraction)},
        "triples",
    ),
    "bipartition": Kernel(
        bipartition,
        lambda rng, m, d: (*symmetric(rng, m, d), np.zeros(m, int), np.arange(m)),
        _none,
        _square,
        {"SciPy": Peer(lambda x, cluster, ids: peers.bipartition(x))},
    ),
    "attentive": Kernel(
        lambda x: amp.attentive(x, 0.001, 1.0),
        symmetric,
        _none,
        _square,
        {"NumPy": Peer(peers.attentive)},
    ),
    "heuristic": Kernel(
        lambda x: amp.heuristic(x, 0.5, 10.0),
        symmetric,
        _none,
        _square,
        {"NumPy": Peer(lambda x: peers.heuristic(x.copy()))},
    ),
}
KERNELS = OF_MODELS | OF_PAIRS
