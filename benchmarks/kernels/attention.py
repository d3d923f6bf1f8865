"""The forward and backward pass of graph attention as cases of the kernels' benchmark."""

import functools

import jax
import numpy as np

from benchmarks.kernels import peers
from benchmarks.kernels.inputs import HEADS, WIDTH, Kernel, Peer, attention_inputs, models
from jaxfl.kernels.attention import Attention, Score, attention_weights


def attention(score: Score, x, receiver, sender, vector) -> jax.Array:
    """Mixing weights [M, M]."""
    return attention_weights(_parameters(score, receiver, sender, vector), x, score)


def attention_grads(score: Score, x, receiver, sender, vector, cotangent) -> tuple[jax.Array, ...]:
    """The gradients by the parameters of the weights times the cotangent."""
    parameters = _parameters(score, receiver, sender, vector)
    pull_back = jax.vjp(lambda p: attention_weights(p, x, score), parameters)[1]
    return tuple(jax.tree.leaves(pull_back(cotangent)))


def _parameters(score: str, receiver, sender, vector) -> Attention:
    if score == "gat":
        return Attention(receiver, (), vector)
    return Attention(receiver, sender, vector[:, 0] if score == "gatv2" else ())


def attention_kernels(score: Score) -> dict[str, Kernel]:
    """The forward and the backward pass of one score."""
    maps = 1 if score == "gat" else 2
    k = HEADS * WIDTH

    def projections(m: int, d: int) -> float:
        return 2 * maps * m * d * k

    def argument(vector: np.ndarray) -> np.ndarray:
        return vector[:, 0] if score == "gatv2" else vector

    def forward(x, receiver, sender, vector):
        return peers.attention_weights(score, x, receiver, sender, argument(vector))

    def backward(x, receiver, sender, vector, cotangent):
        return peers.attention_grads(score, x, receiver, sender, argument(vector), cotangent)

    def with_cotangent(rng, m, d):
        return *attention_inputs(rng, m, d), *models(rng, m, m)

    return {
        f"attention_{score}": Kernel(
            functools.partial(attention, score),
            attention_inputs,
            projections,
            lambda m, d: m * d + maps * k * d + m * m,
            {"NumPy": Peer(forward)},
        ),
        f"attention_{score}_backward": Kernel(
            functools.partial(attention_grads, score),
            with_cotangent,
            lambda m, d: 2 * projections(m, d),
            lambda m, d: m * d + 2 * maps * k * d + m * m,
            {"NumPy": Peer(backward)},
        ),
    }
