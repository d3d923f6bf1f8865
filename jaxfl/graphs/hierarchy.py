"""Clients, edge servers and a cloud as one mixing matrix: distribution, servers, aggregation."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, Shaped

from jaxfl.core.errors import InputError, check
from jaxfl.core.npy import read_npy
from jaxfl.core.options import checked
from jaxfl.core.plain_array import plain_array
from jaxfl.graphs.topology import check_groups

__all__ = ["given_weights", "hierarchy"]

# "cloud": all servers take the mean of the servers by size; "alone": each keeps its own model.
ServerGraph = Literal["cloud", "alone"] | Shaped[ArrayLike, "s s"]
# How far the sum of a row of given weights may be from 1.
ROUNDING = 1e-4


@checked
def hierarchy(
    server_of: Int[ArrayLike, "c"],
    sizes: Shaped[ArrayLike, "c"],
    servers: int,
    graph: ServerGraph = "cloud",
) -> Float[Array, "c c"]:
    """The mixing weights of clients below edge servers: W = D G A.

    A [S, C] is the aggregation of each server, the mean over its clients weighted by size. G [S, S]
    is what servers mix among themselves. D [C, S] gives each client the model of its server. With
    "cloud" every row of G has the servers' shares of all examples, and W is FedAvg.

    A server whose clients have size 0, or that has none, counts in no mean, and the rows of G are
    rescaled. A client for which no server counts keeps its own model.

    Args:
      server_of: the server of each client, from 0 to S - 1 [C].
      sizes: numbers of examples, or other weights, not negative [C].
      servers: S.
      graph: G, "cloud", "alone" or row-stochastic [S, S] (receiver, sender).

    Raises:
      InputError: the graph has another shape, is negative or has rows that do not sum to 1, or
        there is no such server.

    Example:
      >>> server_of, sizes = np.array([0, 0, 1]), np.array([1, 3, 4])
      >>> hierarchy(server_of, sizes, 2, "alone").tolist()
      [[0.25, 0.75, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
      >>> hierarchy(server_of, sizes, 2, jnp.array([[0.5, 0.5], [0.0, 1.0]]))[0].tolist()
      [0.125, 0.375, 0.5]
    """
    check_groups(np.size(sizes), server_of=(server_of, servers))
    between = None if isinstance(graph, str) else _check_rows(graph, (servers, servers))
    server_of = jnp.asarray(server_of)
    sizes = jnp.asarray(sizes, float)
    belongs = jax.nn.one_hot(server_of, servers)  # D [C, S]
    of_servers = sizes @ belongs
    counts = of_servers > 0
    aggregation = (belongs * sizes[:, None]).T / jnp.where(counts, of_servers, 1.0)[:, None]
    if between is None:
        same = jnp.eye(servers)
        between = same if graph == "alone" else jnp.broadcast_to(of_servers[None], same.shape)
    between = jnp.where(counts[None], between, 0.0)
    total = between.sum(axis=1, keepdims=True)
    between = between / jnp.where(total > 0, total, 1.0)
    exact = lax.Precision.HIGHEST
    weights = jnp.matmul(
        belongs, jnp.matmul(between, aggregation, precision=exact), precision=exact
    )
    receives = (total[:, 0] > 0)[server_of]
    return jnp.where(receives[:, None], weights, jnp.eye(sizes.size))


def given_weights(weights: str | ArrayLike) -> np.ndarray:
    """Mixing weights of all clients, from an array or from the NumPy file of that name [P, C, C].

    Args:
      weights: row-stochastic [C, C] (receiver, sender), or [P, C, C], a matrix for each round in
        turn; or the path of a file (.npy) with it.

    Raises:
      InputError: there is no such file, or these are no such matrices.

    Example:
      >>> given_weights(np.eye(3)).shape
      (1, 3, 3)
    """
    if isinstance(weights, str):
        weights = read_npy(weights, "the mixing weights")
    array = plain_array(weights, "weights")
    array = array[None] if array.ndim == 2 else array
    square = array.ndim == 3 and array.shape[1] == array.shape[2] and array.size > 0
    check(
        square,
        f"mixing weights have shape {np.shape(weights)}: expected a square matrix, or several, "
        "with a row and a column for each client",
    )
    return np.asarray(_check_rows(array, array.shape), np.float32)


def _check_rows(weights: ArrayLike, shape: tuple[int, ...]) -> Array | np.ndarray:
    """Raises an `InputError` unless the weights have that shape and rows that sum to 1."""
    if isinstance(weights, Tracer):
        return weights
    array = plain_array(weights, "weights")
    numbers = array.shape == shape and array.dtype.kind in "biuf" and np.isfinite(array).all()
    if not numbers or array.min() < 0 or np.abs(array.sum(axis=-1) - 1).max() > ROUNDING:
        raise InputError(
            f"mixing weights of shape {array.shape}: expected {shape}, finite numbers that are not "
            "negative, with rows that sum to 1"
        )
    return array
