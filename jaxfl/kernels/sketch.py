"""Sketches of models: random projections to few numbers, from which similarities are estimated.

M models of D parameters cost 2 M^2 D operations to compare, and their sketches of d numbers only
2 M^2 d. The projection is a CountSketch (Charikar, Chen, and Farach-Colton, 2002,
https://doi.org/10.1007/3-540-45465-9_59; as a linear map of vectors: Weinberger et al., 2009,
https://arxiv.org/abs/0902.2206): each parameter is added with a random sign to one of the d
numbers.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Key

from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.trainable import trainable
from jaxfl.core.tree import wide
from jaxfl.kernels.similarity import scaled


@checked
def sketches(key: Key[Array, ""], stacked: Stack, size: int) -> Float[Array, "m d"]:
    """Sketches S x of stacked models x, whose inner products estimate those of the models.

    The parameters of a leaf are taken in blocks of d. Each block gets random signs, is turned
    around by a random number of places, and is added to the sketch. So parameters of one block
    never meet, and two of different blocks meet with probability 1 / d. The estimate
    <S x, S y> is unbiased, with a variance of at most (|x|^2 |y|^2 + <x, y>^2) / d over the keys;
    a cosine c of two models has an error of about (1 - c^2) / sqrt(d). A model of up to d
    parameters in one leaf keeps its inner products up to rounding.

    The signs are drawn block by block: the matrix [D, d] of the projection does not exist. Models
    of any finite size have finite sketches.

    Args:
      key: of the signs and of the turns; the same for all models.
      stacked: models [M, ...] or a matrix [M, D].
      size: d.

    Returns:
      [M, d].

    Example:
      >>> models = jnp.array([[3.0, 4.0], [0.0, 2.0]])
      >>> rows = sketches(jax.random.key(0), models, 8)
      >>> (rows @ rows.T).tolist()
      [[25.0, 8.0], [8.0, 4.0]]
    """
    power = wide(scaled(stacked)[1])
    clients = power.shape[0]

    def add(
        total: Float[Array, "m d"], block: Float[Array, "m b"], block_key: Key[Array, ""]
    ) -> Float[Array, "m d"]:
        sign_key, turn_key = jax.random.split(block_key)
        signs = jax.random.rademacher(sign_key, (1, size), block.dtype)[:, : block.shape[1]]
        products = block / power[:, None] * signs
        padded = jnp.pad(products, ((0, 0), (0, size - block.shape[1])))
        return total + jnp.roll(padded, jax.random.randint(turn_key, (), 0, size), axis=1)

    def add_leaf(
        total: Float[Array, "m d"], rows: Float[Array, "m p"], leaf_key: Key[Array, ""]
    ) -> Float[Array, "m d"]:
        whole = rows.shape[1] // size

        def add_block(place: Array | int, total: Float[Array, "m d"]) -> Float[Array, "m d"]:
            block = lax.dynamic_slice_in_dim(rows, place * size, size, axis=1)
            return add(total, block, jax.random.fold_in(leaf_key, place))

        if whole:
            total = lax.fori_loop(0, whole, add_block, total)
        rest = rows[:, whole * size :]
        return add(total, rest, jax.random.fold_in(leaf_key, whole)) if rest.shape[1] else total

    total = jnp.zeros((clients, size), power.dtype)
    for number, leaf in enumerate(jax.tree.leaves(trainable(stacked))):
        total = add_leaf(total, leaf.reshape(clients, -1), jax.random.fold_in(key, number))
    # Sums of many of the largest floats are the largest float.
    limit = jnp.finfo(power.dtype).max
    return jnp.clip(total * power[:, None], -limit, limit)
