"""How far a client's model is from the aggregate that it was sent: pFedGraph's regularisers.

Ye et al., ICML 2023, https://proceedings.mlr.press/v202/ye23b.html, equation (3) and Table 5.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from jaxfl.core.options import checked
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Scalar

Alignment = Literal["cosine", "approx", "inner", "l2", "l1"]


@checked
def misalignment(
    model: PyTree, aggregate: PyTree, factor: Scalar, kind: Alignment
) -> Float[Array, ""]:
    """The term that a client adds to its loss.

    Running statistics of BatchNorm have no part in it. Finite for entries up to 1e15. A norm of the
    model below 1e-6 counts as 1e-6.

    Args:
      model: of one client.
      aggregate: what the server sent: for "cosine" the normalised aggregate, else the aggregate.
      factor: scales the term; 0 switches it off.
      kind: "cosine" and "approx", minus the inner product with the normalised model; "inner", minus
        the inner product; "l2", the squared distance; "l1", the sum of absolute differences.

    Example:
      >>> misalignment(jnp.array([3.0, 4.0]), jnp.array([0.0, 0.0]), 0.5, "l2").tolist()
      12.5
    """
    parts = (jax.tree.leaves(trainable(part)) for part in (model, aggregate))
    pairs = list(zip(*parts, strict=True))
    if kind in ("l2", "l1"):
        penalty = jnp.square if kind == "l2" else jnp.abs
        return jnp.asarray(factor * sum(jnp.sum(penalty(m - a)) for m, a in pairs))
    inner = sum(jnp.sum(m * a) for m, a in pairs)
    if kind != "inner":
        inner = inner / jnp.sqrt(jnp.maximum(sum(jnp.sum(m * m) for m, _ in pairs), 1e-12))
    return jnp.asarray(-factor * inner)
