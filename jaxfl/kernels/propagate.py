"""A graph over models from their cosines, and what mixing along it does in some hops.

The equations are those of FedCedar.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.core.errors import check
from jaxfl.core.options import checked
from jaxfl.core.types import Scalar


@checked
def graph_rows(
    cosines: Float[Array, "k k"],
    form: Literal["sum", "softmax"] = "sum",
    temperature: Scalar | None = None,
) -> Float[Array, "k k"]:
    """Row-stochastic edge weights R of the graph over K models, each with an edge to itself.

    "sum" is R_ij = C_ij / sum_j C_ij, where negative cosines count as 0 (FedCedar, section 3.3);
    "softmax" is R_ij = exp(C_ij / temperature) / sum_j exp(C_ij / temperature). A row that sums to
    zero becomes that of the identity. A zero model, whose cosine with itself is 0, has no edges:
    its row is that of the identity, and it has no weight in the others.

    Args:
      cosines: C [K, K], as `similarity.cosine` makes them.
      form: how cosines become weights.
      temperature: of the softmax, positive; .1 if None.

    Raises:
      InputError: a temperature is given and the form is not that of the softmax.

    Example:
      >>> graph_rows(jnp.array([[1.0, -0.5], [-0.5, 1.0]])).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    check(
        temperature is None or form == "softmax",
        "temperature is of the softmax: choose form=softmax, or leave it",
    )
    if form == "sum":
        edges = jnp.maximum(cosines, 0.0)
    else:
        exists = jnp.diagonal(cosines) > 0
        exponent = (cosines - 1) / (0.1 if temperature is None else temperature)
        edges = jnp.where(exists[:, None] & exists[None], jnp.exp(exponent), 0.0)
    total = edges.sum(axis=1, keepdims=True)
    return jnp.where(total > 1e-8, edges / jnp.maximum(total, 1e-8), jnp.eye(len(cosines)))


@checked
def propagate(
    rows: Float[Array, "k k"], hops: int, exists: Bool[Array, "k"] | None = None
) -> Float[Array, "k k"]:
    """The mixing matrix [receiver, sender] of P hops over the graph: R^P (FedCedar, equation 2).

    Args:
      rows: R, row-stochastic [K, K].
      hops: P; 0 gives the identity.
      exists: which nodes exist [K], at least one; None: all. The row of a node that does not exist
        is the mean of the rows of those that do, so that the mean over all K results is the mean
        over the nodes that exist.

    Example:
      >>> propagate(jnp.array([[0.5, 0.5], [0.0, 1.0]]), 2).tolist()
      [[0.25, 0.75], [0.0, 1.0]]
    """
    power = _power(rows, hops)
    if exists is None:
        return power
    mean = jnp.where(exists[:, None], power, 0.0).sum(axis=0) / exists.sum()
    return jnp.where(exists[:, None], power, mean[None])


@checked
def contraction(
    rows: Float[Array, "k k"], hops: int = 1, exists: Bool[Array, "k"] | None = None
) -> Float[Array, ""]:
    """Dobrushin's coefficient of R^P: by how much P hops bring the models nearer to each other.

    Half the largest L1 distance of two rows, in [0, 1], is the smallest factor such that in every
    norm and for all models max_ij |mixed_i - mixed_j| <= factor * max_ij |model_i - model_j|. At 1
    some receivers share no sender; at 0 all receive the same. If all cosines off the diagonal are
    c, it is ((1 - c) / (1 + (K - 1) c))^P, and every difference of two models shrinks by it.

    Args:
      rows: R, row-stochastic [K, K].
      hops: P.
      exists: which nodes exist [K]; the others do not count. None: all.

    Example:
      >>> contraction(jnp.array([[0.75, 0.25], [0.25, 0.75]]), 2).item()
      0.25
    """
    exists = jnp.ones(len(rows), bool) if exists is None else exists
    mean = jnp.where(exists[:, None], rows, 0.0).sum(axis=0) / exists.sum()
    # R^P and (R - 1 mean)^P have the same differences of rows; in the former they are lost in the
    # rounding of their mean.
    power = _power(jnp.where(exists[:, None], rows - mean[None], 0.0), hops)
    distances = jnp.abs(power[:, None] - power[None]).sum(axis=-1)
    return jnp.max(distances, where=exists[:, None] & exists[None], initial=0.0) / 2


def _power(matrix: Float[Array, "k k"], exponent: int) -> Float[Array, "k k"]:
    """The matrix to a whole power, at full precision on every backend."""
    with jax.default_matmul_precision("highest"):
        return jnp.linalg.matrix_power(matrix, exponent)
