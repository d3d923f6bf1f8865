"""One round of each of the four systems on a toy federation, beside a NumPy loop over clients."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import jaxfl
from benchmarks.measure import compile_round, without_evaluation
from jaxfl.core.types import Dataset, Federation

SYSTEMS = ("fedcedar", "gfedmtl", "pfedgat", "pfedgraph")
CLIENTS = 20
EXAMPLES = 64
STEPS = 10
BATCH = 16
LAYERS = (64, 128, 10)  # an MLP: features, hidden units, classes


def toy_federation() -> Federation:
    """20 clients with 64 random examples each; pFedGAT needs the 16 for validation."""
    rng = np.random.default_rng(0)

    def examples(count: int) -> Dataset:
        x = rng.standard_normal((CLIENTS, count, LAYERS[0]), np.float32)
        y = rng.integers(0, LAYERS[-1], (CLIENTS, count))
        mask = np.ones((CLIENTS, count), bool)
        return Dataset(jnp.asarray(x), jnp.asarray(y, jnp.int32), jnp.asarray(mask))

    return without_evaluation(examples(EXAMPLES))._replace(val=examples(16))


def compiled_round(system: str) -> tuple[Callable, float]:
    """A function that runs the next round, and seconds of compiling."""
    data = toy_federation()
    model = jaxfl.models.mlp(LAYERS[-1], hidden=LAYERS[1:-1])
    task = jaxfl.classification(model, data.train.x[0, 0], batch_size=BATCH, steps=STEPS)
    return compile_round(jaxfl.algorithms.ALGORITHMS[system](task), data)


def operations() -> float:
    """Floating-point operations of the products of local training; the server's are few."""
    weights = sum(i * o for i, o in itertools.pairwise(LAYERS))
    # The forward pass, the gradients by the weights, and those by the hidden units.
    products = 2 * weights + LAYERS[1] * LAYERS[2]
    return 2 * products * BATCH * STEPS * CLIENTS


def numpy_training() -> Callable:
    """The local training of all clients, one after another, without a server step."""
    rng = np.random.default_rng(0)
    train = jax.tree.map(np.asarray, toy_federation().train)
    start = [
        rng.standard_normal((i, o), np.float32) * np.float32(i**-0.5)
        for i, o in itertools.pairwise(LAYERS)
    ]

    def train_client(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        first, second = (w.copy() for w in start)
        first_bias, second_bias = (np.zeros(w.shape[1], np.float32) for w in start)
        params = [first, first_bias, second, second_bias]
        moments = [np.zeros_like(p) for p in params]
        order = np.concatenate(
            [rng.permutation(len(y)) for _ in range(-(-STEPS * BATCH // len(y)))]
        )
        for step in range(STEPS):
            chosen = order[step * BATCH :][:BATCH]
            hidden = np.maximum(x[chosen] @ first + first_bias, 0)
            logits = hidden @ second + second_bias
            exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
            by_logits = exponents / exponents.sum(axis=1, keepdims=True)
            by_logits[np.arange(BATCH), y[chosen]] -= 1
            by_logits /= BATCH
            by_hidden = (by_logits @ second.T) * (hidden > 0)
            grads = [
                x[chosen].T @ by_hidden,
                by_hidden.sum(0),
                hidden.T @ by_logits,
                by_logits.sum(0),
            ]
            for p, moment, grad in zip(params, moments, grads, strict=True):
                moment *= 0.9
                moment += grad + np.float32(1e-5) * p
                p -= np.float32(0.01) * moment
        return params

    return lambda: [train_client(x, y) for x, y in zip(train.x, train.y, strict=True)]
