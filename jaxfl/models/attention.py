"""Attention of queries to keys (Vaswani et al., 2017, https://arxiv.org/abs/1706.03762)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def attention(
    query: Float[Array, "b n heads d"],
    key: Float[Array, "b k groups d"],
    value: Float[Array, "b k groups d"],
    mask: Bool[Array, "..."] | None = None,
) -> Float[Array, "b n heads d"]:
    """The values, averaged by the softmax of the products of queries and keys over sqrt(d).

    It computes what `jax.nn.dot_product_attention` does, with heads before places in all products,
    which takes two thirds of the time on a CPU.

    Args:
      query: of each place and head.
      key: of each place and group; head h belongs to the group h // (heads / groups).
      value: likewise.
      mask: the keys that a query sees, broadcast to [b, heads, n, k]. None: all. A query that sees
        none takes the mean of all values.

    Source: equation 1.

    Example:
      >>> query, key = jnp.zeros((1, 2, 1, 3)), jnp.ones((1, 2, 1, 3))
      >>> value = jnp.arange(6.0).reshape(1, 2, 1, 3)
      >>> attention(query, key, value)[0, 0, 0].tolist()
      [1.5, 2.5, 3.5]
      >>> attention(query, key, value, jnp.tri(2, dtype=bool))[0, 0, 0].tolist()
      [0.0, 1.0, 2.0]
    """
    copies = query.shape[2] // key.shape[2]
    if copies > 1:
        key, value = (jnp.repeat(one, copies, axis=2) for one in (key, value))
    query, key, value = (one.transpose(0, 2, 1, 3) for one in (query, key, value))
    # Sums and exponentials in float32: in bfloat16 they are up to 1 % off.
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = jnp.einsum("bhnd,bhkd->bhnk", query, key, preferred_element_type=wide)
    scores *= query.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(jnp.broadcast_to(mask, scores.shape), scores, jnp.finfo(wide).min)
    weights = jax.nn.softmax(scores).astype(value.dtype)
    return jnp.einsum("bhnk,bhkd->bhnd", weights, value).transpose(0, 2, 1, 3)
