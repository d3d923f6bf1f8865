"""Graph attention over stacked models: learned weights of who receives from whom.

Every pair of models is scored by a small function of two projections of them; a softmax over the
senders makes rows of mixing weights. H heads project to d' numbers each, so the projections are
leaves `[H, d', *leaf]`: H d' D floats in all, twice that where receivers and senders have
projections of their own. Pairs cost `[N, N, d']` at most, never `[N, N, D]`. A matrix [N, D] is a
stack of one leaf.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Key, PyTree

from jaxfl.core.options import checked
from jaxfl.core.row_products import row_products
from jaxfl.core.shapes import Stack
from jaxfl.core.trainable import trainable
from jaxfl.core.tree import wide, zeros_like
from jaxfl.core.types import Scalar
from jaxfl.kernels.similarity import scaled

Score = Literal["gat", "gatv2", "dot"]


class Attention(NamedTuple):
    """The parameters that are learned."""

    # W of the receivers [H, d', *leaf]; with "gat" of the senders too
    receiver: PyTree
    # W of the senders [H, d', *leaf]; () with "gat"
    sender: PyTree
    # a: [H, 2, d'] with "gat", [H, d'] with "gatv2", () with "dot"
    vector: PyTree


@checked
def layer_norm(stacked: Stack, *, unit: bool = False) -> PyTree:
    """Each model less its mean, over its standard deviation, both over all D parameters.

    A constant model becomes zero; so does a model whose deviations are below a millionth of its
    largest entry, which is rounding.

    Args:
      stacked: models [N, ...] or a matrix [N, D]; worked on leaf by leaf.
      unit: scale to length 1 in place of sqrt(D).

    Example:
      >>> layer_norm(jnp.array([[0.0, 4.0], [3.0, 3.0]])).tolist()
      [[-1.0, 1.0], [0.0, 0.0]]
    """
    stacked = scaled(trainable(stacked))[0]
    leaves = [wide(x).reshape(x.shape[0], -1) for x in jax.tree.leaves(stacked)]
    size = sum(x.shape[1] for x in leaves)
    mean = jnp.asarray(sum(x.sum(axis=1) for x in leaves) / size)
    square = jnp.asarray(sum(jnp.square(x - mean[:, None]).sum(axis=1) for x in leaves))
    varies = square > 1e-12 * size
    variance = square if unit else square / size
    inverse = jnp.where(varies, jax.lax.rsqrt(jnp.where(varies, variance, 1.0)), 0.0)

    def leaf(x: Array) -> Array:
        column = (-1, *[1] * (x.ndim - 1))
        return (x - mean.reshape(column)) * inverse.reshape(column)

    return jax.tree.map(leaf, stacked)


@checked
def init_attention(
    key: Key[Array, ""], model: PyTree, score: Score, heads: int, width: int, *, unit: bool = False
) -> Attention:
    """Parameters with which all weights are 1 / N: one factor of every score is zero.

    The other factors are random. W is normal, such that projections of features have variance 1;
    the zero factor is a, with "dot" the senders' W.

    Args:
      key: of the random numbers.
      model: one model, for the shapes of its leaves.
      score: see `attention_weights`.
      heads: H.
      width: d'.
      unit: whether features have length 1 and not sqrt(D), see `layer_norm`.

    Example:
      >>> init_attention(jax.random.key(0), jnp.zeros(5), "gat", 2, 3).receiver.shape
      (2, 3, 5)
    """
    leaves, structure = jax.tree.flatten(trainable(model))
    sizes = [jnp.size(x) for x in leaves]
    # One draw for all leaves: each further one is seconds of compiling.
    values = jax.random.normal(key, (2 if score == "gatv2" else 1, heads, width, sum(sizes)))
    values = values if unit else values * sum(sizes) ** -0.5

    def unflatten(matrix: Float[Array, "h k d"]) -> PyTree:
        parts = jnp.split(matrix, [sum(sizes[:i]) for i in range(1, len(sizes))], axis=-1)
        return structure.unflatten(
            [p.reshape(heads, width, *jnp.shape(x)) for p, x in zip(parts, leaves, strict=True)]
        )

    receiver = unflatten(values[0])
    if score == "gat":
        return Attention(receiver, (), jnp.zeros((heads, 2, width)))
    if score == "gatv2":
        return Attention(receiver, unflatten(values[1]), jnp.zeros((heads, width)))
    return Attention(receiver, zeros_like(receiver), ())


@checked
def attention_weights(
    attention: Attention, features: Stack, score: Score, negative_slope: Scalar = 0.2
) -> Float[Array, "n n"]:
    """Mixing weights (receiver i, sender j): the mean over the heads of a softmax over all j.

    Args:
      attention: W and a of each head.
      features: h [N, ...], see `layer_norm`.
      score: of a pair (i, j) in one head, i = j included.
        "gat": LeakyReLU(a'[W h_i || W h_j]) (Velickovic et al., 2018, equation (3),
        https://arxiv.org/abs/1710.10903), with which all receivers of a head rank the senders in
        one order.
        "gatv2": a' LeakyReLU(W_l h_i + W_r h_j) (Brody et al., 2022, equation (7),
        https://arxiv.org/abs/2105.14491), with which their orders may differ.
        "dot": (W_l h_i)'(W_r h_j) / sqrt(d') (Vaswani et al., 2017, equation (1),
        https://arxiv.org/abs/1706.03762).
      negative_slope: of the LeakyReLU.

    Returns:
      Row-stochastic [N, N].

    Example:
      >>> start = init_attention(jax.random.key(0), jnp.zeros(5), "gat", 2, 3)
      >>> attention_weights(start, jnp.ones((2, 5)), "gat").tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    # What each head compares, with the heads first [H, N, ...].
    z = _project(attention.receiver, features)
    if score == "gat":
        each = jnp.einsum("nhk,hsk->hns", z, attention.vector, precision=Precision.HIGHEST)
        receivers, senders = each[..., 0], each[..., 1]
    else:
        receivers = jnp.moveaxis(z, 1, 0)
        senders = jnp.moveaxis(_project(attention.sender, features), 1, 0)

    def scores(receiver: Array, sender: Array, vector: PyTree) -> Float[Array, "n n"]:
        if score == "dot":
            products = jnp.matmul(receiver, sender.T, precision=Precision.HIGHEST)
            return products * receiver.shape[-1] ** -0.5
        pairs = jax.nn.leaky_relu(receiver[:, None] + sender[None], negative_slope)
        if score == "gat":
            return pairs
        return jnp.matmul(pairs, vector, precision=Precision.HIGHEST)

    # One head after another, computed again for the gradient: nothing of [N, N, H] is kept.
    @jax.checkpoint
    def add(total: Float[Array, "n n"], head: tuple[Array, Array, PyTree]):
        return total + jax.nn.softmax(scores(*head), axis=1), None

    models = z.shape[0]
    total = jnp.zeros((models, models), z.dtype)
    total, _ = jax.lax.scan(add, total, (receivers, senders, attention.vector))
    return total / len(receivers)


def _project(maps: PyTree, stacked: PyTree) -> Float[Array, "n h k"]:
    """W_m h_i for every model i and head m, summed leaf by leaf."""

    def leaf(w: Array, x: Array) -> Array:
        heads, width = w.shape[:2]
        products = row_products(x.reshape(len(x), -1), w.reshape(heads * width, -1))
        return products.reshape(len(x), heads, width)

    return jnp.asarray(sum(jax.tree.leaves(jax.tree.map(leaf, maps, trainable(stacked)))))
