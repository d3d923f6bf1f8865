"""Robust rules, merging, CKA and Sinkhorn distances as cases of the kernels' benchmark."""

import jax
import numpy as np

from benchmarks.kernels import peers
from benchmarks.kernels.inputs import Kernel, Peer, models
from jaxfl.kernels import filters, robust, transport

CLASSES = 10  # of the clients' histograms of labels
STEPS = 20  # of Weiszfeld's algorithm
FITS = 50  # of rows and columns in turns


def with_reference(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray, ...]:
    """Updates [M, D] and the one that the server trusts [D]."""
    return *models(rng, m, d), models(rng, 1, d)[0][0]


def with_information(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray, ...]:
    """Models and their Fisher information [M, D]."""
    return *models(rng, m, d), rng.random((m, d), np.float32)


def features(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray]:
    """Features of the same examples by each model, D numbers of each [M, n, D / n]."""
    n = _examples(d)
    return (rng.standard_normal((m, n, d // n), np.float32),)


def histograms(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray, ...]:
    """Distributions of labels [M, K], and how far each two labels are from each other [K, K]."""
    labels = rng.dirichlet(np.ones(CLASSES), m).astype(np.float32)
    place = np.arange(CLASSES, dtype=np.float32) / (CLASSES - 1)
    return labels, np.abs(place[:, None] - place[None])


def _examples(d: int) -> int:
    return min(100, d // 10)


def _dnc(x: jax.Array) -> jax.Array:
    return filters.dnc(x, jax.random.key(0))


OF_MODELS = {
    "geometric_median": Kernel(
        lambda x: robust.geometric_median(x, steps=STEPS),
        models,
        # A step subtracts, squares and adds, and then takes a weighted mean.
        lambda m, d: STEPS * 5 * m * d,
        lambda m, d: m * d + d,
        {"NumPy": Peer(lambda x: peers.geometric_median(x, STEPS))},
    ),
    "bulyan": Kernel(
        robust.bulyan,
        models,
        lambda m, d: 3 * m * m * d,
        lambda m, d: m * d + d,
        {"SciPy": Peer(peers.bulyan)},
        "pairs",
    ),
    "dnc": Kernel(
        _dnc,
        models,
        lambda m, d: 2 * m * m * d,
        lambda m, d: m * d + m,
        {"NumPy": Peer(peers.dnc)},
    ),
    "fltrust": Kernel(
        filters.fltrust,
        with_reference,
        # Lengths, products with the reference, and a weighted mean.
        lambda m, d: 6 * m * d,
        lambda m, d: m * d + 2 * d,
        {"NumPy": Peer(peers.fltrust)},
    ),
    "fisher_mean": Kernel(
        filters.fisher_mean,
        with_information,
        lambda m, d: 3 * m * d,
        lambda m, d: 2 * m * d + d,
        {"NumPy": Peer(peers.fisher_mean)},
    ),
    "linear_cka": Kernel(
        filters.linear_cka,
        features,
        # Inner products of the examples of each model, and then of all pairs of these matrices.
        lambda m, d: 2 * m * _examples(d) * d + 2 * m * m * _examples(d) ** 2,
        lambda m, d: m * d + m * m,
        {"NumPy": Peer(peers.linear_cka)},
    ),
}

OF_PAIRS = {
    "sinkhorn_distances": Kernel(
        lambda x, cost: transport.sinkhorn_distances(x, cost, 0.1, FITS),
        histograms,
        # The two products of each fit, for all pairs.
        lambda m, d: (FITS + 1) * 4 * m * m * CLASSES**2,
        lambda m, d: m * CLASSES + m * m,
        {"NumPy": Peer(lambda x, cost: peers.sinkhorn_distances(x, cost, 0.1, FITS + 1))},
        "triples",
    ),
}
