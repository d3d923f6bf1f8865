"""Mixtures of products of two factors, such as low-rank adapters: sum_j w_ij A_j B_j.

A mixture of factors is another matrix: (A_1 + A_2)(B_1 + B_2) has the terms A_1 B_2 and A_2 B_1,
which no client has trained.
"""

import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float

from jaxfl.core.options import checked


@checked
def mix_products(
    weights: Float[Array, "r m"], a: Float[Array, "m i k"], b: Float[Array, "m k o"]
) -> tuple[Float[Array, "r i k"], Float[Array, "r k o"]]:
    """The nearest product of two factors of rank k to each mixture of products.

    Nearest in the Frobenius norm: the first k singular values and vectors of sum_j w_ij A_j B_j
    (Eckart and Young, 1936). The columns of the first factor are orthonormal, and the second one
    has the singular values. All mixtures lie in the space of the columns of all A and of the rows
    of all B, in which the values are computed, so that no matrix [i, o] is made if M k is smaller.
    Finite for entries up to 1e15.

    Source: Bai et al. 2024, Federated Fine-tuning of Large Language Models under Heterogeneous
    Tasks and Client Resources (FlexLoRA), section 3, https://arxiv.org/abs/2402.11505.

    Args:
      weights: of any sign [R, M].
      a: A of each model.
      b: B of each model.

    Returns:
      A [R, i, k] and B [R, k, o]. k is at most i and o.

    Example:
      >>> a = jnp.array([[[2.0], [0.0]], [[0.0], [1.0]]])
      >>> b = jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]])
      >>> mixed_a, mixed_b = mix_products(jnp.array([[0.5, 0.5]]), a, b)
      >>> (mixed_a @ mixed_b).tolist()
      [[[1.0, 0.0], [0.0, 0.0]]]
    """
    models, inputs, rank = a.shape
    # Bases of the spaces in which all mixtures lie: A_j = Q_a C_j, B_j = D_j Q_b'.
    columns, left = jnp.linalg.qr(jnp.moveaxis(a, 0, 1).reshape(inputs, models * rank))
    rows, right = jnp.linalg.qr(b.reshape(models * rank, -1).T)
    left = left.reshape(-1, models, rank)
    right = right.reshape(-1, models, rank)
    cores = jnp.einsum("rm,cmk,dmk->rcd", weights, left, right, precision=Precision.HIGHEST)
    # The singular values of a mixture are those of its core.
    u, values, vh = jnp.linalg.svd(cores, full_matrices=False)
    first = jnp.matmul(columns, u[:, :, :rank], precision=Precision.HIGHEST)
    second = values[:, :rank, None] * vh[:, :rank]
    return first, jnp.matmul(second, rows.T, precision=Precision.HIGHEST)


@checked
def square_norms(a: Float[Array, "*m i k"], b: Float[Array, "*m k o"]) -> Float[Array, "*m"]:
    """The squared Frobenius norm of each product A B, of which no matrix [i, o] is made.

    It is the trace of (A' A) (B B'), and 0 where rounding would make it negative. Finite for
    entries up to 1e9.

    Args:
      a: A of each product.
      b: B of each product.

    Example:
      >>> square_norms(jnp.array([[1.0], [2.0]]), jnp.array([[3.0, 0.0]])).item()
      45.0
    """
    inside = jnp.einsum("...ik,...il->...kl", a, a, precision=Precision.HIGHEST)
    outside = jnp.einsum("...ko,...lo->...kl", b, b, precision=Precision.HIGHEST)
    return jnp.maximum(jnp.sum(inside * outside, axis=(-2, -1)), 0.0)
