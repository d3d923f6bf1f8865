"""What a benchmark of a kernel needs to know, and random inputs of the kernels."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

MEMORY = 4 * 2**30  # bytes of the arguments and results, and of copies of the models
PAIRS = 2e9  # differences of entries, where each pair of models is subtracted
TRIPLES = 1e8
LARGE = 1e8  # entries beyond which only the main kernels are measured
RANKED = 2e7  # entries, where order statistics are found
HEADS = 8
WIDTH = 8


class Peer(NamedTuple):
    """Another implementation of a kernel."""

    run: Callable  # of the kernel's arguments, as NumPy arrays
    most: int = 1_000  # the largest M that it computes in some seconds
    compiled: bool = False  # whether the first call compiles


class Kernel(NamedTuple):
    """A kernel, and what a benchmark of it needs."""

    run: Callable
    # (rng, M, D) -> the arguments, as NumPy arrays
    inputs: Callable
    # (M, D) -> floating-point operations
    operations: Callable
    # (M, D) -> floats that are read and written at least
    floats: Callable
    peers: dict[str, Peer]
    # how the time grows: "products" of matrices, "pairs" of models, "ranks" of entries,
    # "triples" of clients
    kind: str = "products"
    main: bool = False  # whether it is measured at all sizes


def models(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray]:
    """Random models [M, D]."""
    return (rng.standard_normal((m, d), np.float32),)


def rows(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray]:
    """Rows that are projected onto the simplex [M, M]."""
    return (rng.standard_normal((m, m), np.float32) / m + 1 / np.float32(m),)


def stochastic(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray]:
    """Row-stochastic weights [M, M]."""
    weights = rng.random((m, m), np.float32)
    return (weights / weights.sum(axis=1, keepdims=True),)


def symmetric(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray]:
    """Symmetric similarities in [0, 1], 1 on the diagonal [M, M]."""
    (s,) = rng.random((1, m, m), np.float32)
    s = np.maximum(s, s.T)
    np.fill_diagonal(s, 1)
    return (s,)


def with_cells(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray, ...]:
    """Uploads [M, D], models of six cells [6, D], and the cell of each client [M]."""
    return *models(rng, m, d), *models(rng, 6, d), np.arange(m) % 6


def attention_inputs(rng: np.random.Generator, m: int, d: int) -> tuple[np.ndarray, ...]:
    """Features [M, D], projections [H, k, D] of receivers and senders, and a [H, 2, k]."""
    shape = (2, HEADS, WIDTH, d)
    receiver, sender = rng.standard_normal(shape, np.float32) * np.float32(d**-0.5)
    return *models(rng, m, d), receiver, sender, rng.standard_normal((HEADS, 2, WIDTH), np.float32)


def left_out(kernel: Kernel, m: int, d: int) -> str | None:
    """Why a kernel is not measured at this size, or None if it is."""
    # The models are on the host and on the device, and a kernel may copy them once.
    if 4 * (kernel.floats(m, d) + 2 * m * d) > MEMORY:
        return "more than 4 GiB"
    if kernel.kind == "pairs" and m * m * d > PAIRS:
        return "subtracting all pairs of models takes too long"
    if kernel.kind == "triples" and m**3 > TRIPLES:
        return "a term for each three clients takes too long"
    if m * d >= LARGE and not kernel.main:
        return "the whole page is to take less than ten minutes"
    if kernel.kind == "ranks" and m * d > RANKED:
        return "order statistics take too long"
    return None
