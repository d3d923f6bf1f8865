"""How far a client's model is from the aggregate it was sent: pFedGraph's regularisers (equation 3 and Table 5)."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

Alignment = Literal["cosine", "approx", "inner", "l2", "l1"]


def misalignment(
    model: PyTree, aggregate: PyTree, factor: Array | float, kind: Alignment
) -> Float[Array, ""]:
    """What a client adds to its loss. Finite for entries up to 1e15; a length below 1e-6 counts as that.

    Args:
      model: of one client.
      aggregate: what the server sent: for "cosine" the normalised aggregate, else the aggregate.
      factor: scales the whole; 0 switches it off.
      kind: "cosine" and "approx", minus the inner product with the normalised model; "inner", minus
        the inner product; "l2", the squared distance; "l1", the sum of absolute differences.
    """
    pairs = list(zip(jax.tree.leaves(model), jax.tree.leaves(aggregate), strict=True))
    if kind in ("l2", "l1"):
        of = jnp.square if kind == "l2" else jnp.abs
        return factor * sum(jnp.sum(of(m - a)) for m, a in pairs)
    inner = sum(jnp.sum(m * a) for m, a in pairs)
    if kind != "inner":
        inner = inner / jnp.sqrt(jnp.maximum(sum(jnp.sum(m * m) for m, _ in pairs), 1e-12))
    return -factor * inner
