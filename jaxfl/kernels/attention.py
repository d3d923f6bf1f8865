"""Graph attention over stacked models: who should listen to whom, learned. A matrix [N, D] is a stack of one leaf.

Every pair of models is scored by a small function of two projections of them; a softmax over the
senders makes rows of mixing weights. H heads project to d' numbers each, so the projections are
leaves `[H, d', *leaf]`: H d' D floats in all, twice that where receivers and senders are projected
apart. Pairs cost `[N, N, H d']` at most, never `[N, N, D]`.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Key, PyTree

from jaxfl.kernels.similarity import scaled

Score = Literal["gat", "gatv2", "dot"]


class Attention(NamedTuple):
    """What is learned."""

    receiver: PyTree  # W [H, d', *leaf]; with "gat" of receivers and senders alike
    sender: PyTree  # W of the senders [H, d', *leaf]; () with "gat"
    vector: PyTree  # a: [H, 2, d'] with "gat", [H, d'] with "gatv2", () with "dot"


def layer_norm(stacked: PyTree, *, unit: bool = False) -> PyTree:
    """Each model less its mean, over its standard deviation, both over all D parameters; a constant model becomes zero.

    So does one that a millionth of its largest entry keeps from being constant: that is rounding.

    Args:
      stacked: models [N, ...] or a matrix [N, D]; worked on leaf by leaf.
      unit: scale to length 1 in place of sqrt(D).
    """
    stacked = scaled(stacked)[0]
    leaves = [x.reshape(x.shape[0], -1) for x in jax.tree.leaves(stacked)]
    size = sum(x.shape[1] for x in leaves)
    mean = sum(x.sum(axis=1) for x in leaves) / size
    square = sum(jnp.square(x - mean[:, None]).sum(axis=1) for x in leaves)
    varies = square > 1e-12 * size
    inverse = jnp.where(
        varies, jax.lax.rsqrt(jnp.where(varies, square if unit else square / size, 1.0)), 0.0
    )

    def leaf(x: Array) -> Array:
        one = (-1, *[1] * (x.ndim - 1))
        return (x - mean.reshape(one)) * inverse.reshape(one)

    return jax.tree.map(leaf, stacked)


def init_attention(
    key: Key[Array, ""], model: PyTree, score: Score, heads: int, width: int, *, unit: bool = False
) -> Attention:
    """Where learning starts: all weights are 1 / N, since the last factor of every score is zero and the rest random.

    W is normal, such that projections of features have variance 1; a is zero, with "dot" the
    senders' W.

    Args:
      key: of the random numbers.
      model: one model, for the shapes of its leaves.
      score: see `attention_weights`.
      heads: H.
      width: d'.
      unit: of features of length 1 and not sqrt(D), see `layer_norm`.
    """
    leaves, structure = jax.tree.flatten(model)
    sizes = [jnp.size(x) for x in leaves]
    # One draw for all leaves: each further one is seconds of compiling.
    drawn = jax.random.normal(key, (2 if score == "gatv2" else 1, heads, width, sum(sizes)))
    drawn = drawn if unit else drawn * sum(sizes) ** -0.5

    def project(matrix: Array) -> PyTree:  # [H, d', D]
        parts = jnp.split(matrix, [sum(sizes[:i]) for i in range(1, len(sizes))], axis=-1)
        return structure.unflatten(
            [p.reshape(heads, width, *jnp.shape(x)) for p, x in zip(parts, leaves, strict=True)]
        )

    receiver = project(drawn[0])
    if score == "gat":
        return Attention(receiver, (), jnp.zeros((heads, 2, width)))
    if score == "gatv2":
        return Attention(receiver, project(drawn[1]), jnp.zeros((heads, width)))
    return Attention(receiver, jax.tree.map(jnp.zeros_like, receiver), ())


def attention_weights(
    attention: Attention, features: PyTree, score: Score, slope: float | Array = 0.2
) -> Float[Array, "n n"]:
    """Mixing weights (receiver i, sender j): the mean over the heads of a softmax over all j, i included.

    Args:
      attention: W and a of each head.
      features: h [N, ...], see `layer_norm`.
      score: of a pair in a head. "gat": LeakyReLU(a'[W h_i || W h_j]) (Velickovic et al., 2018,
        (3)), by which all receivers rank the senders nearly alike; "gatv2": a' LeakyReLU(W_l h_i +
        W_r h_j) (Brody et al., 2022, (7)), by which they need not; "dot": (W_l h_i)'(W_r h_j) /
        sqrt(d') (Vaswani et al., 2017, (1)).
      slope: of the LeakyReLU below zero.
    """
    z = _project(attention.receiver, features)
    if score == "gat":
        own, other = jnp.einsum("nhk,hsk->snh", z, attention.vector, precision=Precision.HIGHEST)
        scores = jax.nn.leaky_relu(own[:, None] + other[None], slope)  # [N, N, H]
    elif score == "gatv2":
        pairs = jax.nn.leaky_relu(
            z[:, None] + _project(attention.sender, features)[None], slope
        )  # [N, N, H, d']
        scores = jnp.einsum("ijhk,hk->ijh", pairs, attention.vector, precision=Precision.HIGHEST)
    else:
        y = _project(attention.sender, features)
        scores = jnp.einsum("ihk,jhk->ijh", z, y, precision=Precision.HIGHEST) * z.shape[-1] ** -0.5
    return jax.nn.softmax(scores, axis=1).mean(axis=2)


def _project(maps: PyTree, stacked: PyTree) -> Float[Array, "n h k"]:
    """W_m h_i for every model i and head m, summed leaf by leaf."""

    def leaf(w: Array, x: Array) -> Array:
        axes = (tuple(range(1, x.ndim)), tuple(range(2, w.ndim)))
        return jnp.tensordot(x, w, axes, precision=Precision.HIGHEST)

    return sum(jax.tree.leaves(jax.tree.map(leaf, maps, stacked)))
