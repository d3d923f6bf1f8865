"""Several servers with several clusters each: the server side of GFedMtl as matrices.

The equations are those of Gauthier et al., Asilomar 2022. S servers, Q clusters at each, P = S * Q
cells; cell s * Q + q is cluster q at server s. Every step of a server is a row-stochastic matrix
over cells, so a whole round of the servers is one matrix from uploads to what they hold.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int, Shaped

from jaxfl.core.columns import column_sum
from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.trainable import trainable
from jaxfl.core.tree import wide
from jaxfl.kernels.gossip import metropolis
from jaxfl.kernels.similarity import root

# tau: one number, or one of each pair of clusters (receiver, sender) [Q, Q]
Strength = Float[Array, "*qq"] | float | int


@checked
def collect(cells: Int[Array, "m"], count: int) -> Float[Array, "p mp"]:
    """(14): each cell's mean over the clients that report; a cell without any keeps its model.

    Args:
      cells: the cell of each client of the round [M]; -1 for a client that did not report.
      count: P.

    Returns:
      [P, M + P]: weights of the M uploads, then of the P models of the round before.

    Example:
      >>> collect(jnp.array([0, 0, -1]), 2).tolist()
      [[0.5, 0.5, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]]
    """
    member = cells[None] == jnp.arange(count)[:, None]
    reported = jnp.count_nonzero(member, axis=1)[:, None]
    return jnp.concatenate(
        [member / jnp.maximum(reported, 1), jnp.eye(count) * (reported == 0)], axis=1
    )


def couple(tau: Strength, clusters: int) -> Float[Array, "q q"]:
    """(15): each cluster's model, refined by those of the other clusters.

    Args:
      tau: strength of learning between clusters: one number, or one of each pair (receiver, sender)
        [Q, Q], whose diagonal does not count. At 0 clusters learn apart.
      clusters: Q.

    Returns:
      Row-stochastic [Q, Q].

    Example:
      >>> couple(1.0, 2).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    others = _others(tau, clusters)
    return (jnp.eye(clusters) + others) / (1 + others.sum(axis=1, keepdims=True))


@checked
def neighbourhood(adjacency: Shaped[Array, "s s"]) -> Float[Array, "s s"]:
    """(17): the mean over a server and its neighbours, row-stochastic [S, S].

    Args:
      adjacency: of the servers, symmetric with a zero diagonal [S, S].

    Example:
      >>> neighbourhood(jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    closed = adjacency + jnp.eye(adjacency.shape[0])
    return closed / closed.sum(axis=1, keepdims=True)


@checked
def symmetric_neighbourhood(adjacency: Shaped[Array, "s s"]) -> Float[Array, "s s"]:
    """As `neighbourhood`, with weights that are symmetric and therefore doubly stochastic [S, S].

    They are those of Metropolis and Hastings, and equal to `neighbourhood` where all degrees are
    equal. The mean over all servers of what they hold does not change.

    Args:
      adjacency: of the servers, symmetric with a zero diagonal [S, S].

    Example:
      >>> symmetric_neighbourhood(jnp.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    graph = jnp.asarray(adjacency, float)
    return metropolis(graph)


@checked
def exchange(
    adjacency: Shaped[Array, "s s"],
    tau: Strength,
    clusters: int,
    average: Callable[[Array], Array] = neighbourhood,
) -> Float[Array, "p p"]:
    """(17) and (18): the mean with neighbours, then learning from the neighbours' other clusters.

    Args:
      adjacency: of the servers, symmetric with a zero diagonal [S, S].
      tau: see `couple`.
      clusters: Q.
      average: adjacency -> the weights of (17), `neighbourhood` or `symmetric_neighbourhood`.

    Returns:
      Row-stochastic [P, P].

    Example:
      >>> exchange(jnp.array([[0.0, 1.0], [1.0, 0.0]]), 0.0, 1).tolist()
      [[0.5, 0.5], [0.5, 0.5]]
    """
    others = _others(tau, clusters)
    # (17)
    same = jnp.kron(average(adjacency), jnp.eye(clusters))
    # (18): the models of the neighbours alone, not the server's own.
    foreign = jnp.kron(adjacency, others)
    return (same + foreign) / (1 + foreign.sum(axis=1, keepdims=True))


@checked
def server_round(
    cells: Int[Array, "m"],
    adjacency: Shaped[Array, "s s"],
    tau: Strength,
    clusters: int,
    average: Callable[[Array], Array] = neighbourhood,
) -> tuple[Float[Array, "p mp"], Float[Array, "p mp"]]:
    """(14) to (18): what the servers make of the uploads, as two matrices.

    Args:
      cells: the cell of each client of the round [M]; -1 for a client that did not report.
      adjacency: of the servers [S, S].
      tau: see `couple`.
      clusters: Q.
      average: see `exchange`.

    Returns:
      The models u after (15) and w after (18), [P, M + P] each: weights of the uploads, then of the
      models of the round before.

    Example:
      >>> u, w = server_round(jnp.array([0, 1]), jnp.array([[0.0, 1.0], [1.0, 0.0]]), 0.0, 1)
      >>> w.tolist()
      [[0.5, 0.5, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]]
    """
    servers = adjacency.shape[0]
    # (14) and (15)
    within = jnp.kron(jnp.eye(servers), couple(tau, clusters))
    sums = collect(cells, servers * clusters)
    u = jnp.matmul(within, sums, precision=Precision.HIGHEST)
    # (17) and (18)
    between = exchange(adjacency, tau, clusters, average)
    return u, jnp.matmul(between, u, precision=Precision.HIGHEST)


@checked
def disagreement_rows(adjacency: Shaped[Array, "s s"], clusters: int) -> Float[Array, "p p"]:
    """How far each cell is from the same cluster at the neighbours: a matrix over cells.

    `mix(disagreement_rows(...), models)` is the mean of `symmetric_neighbourhood` less a cell's own
    model; it is 0 where all servers of a connected graph agree, and sums to 0 over the servers.

    Args:
      adjacency: of the servers [S, S].
      clusters: Q.

    Example:
      >>> disagreement_rows(jnp.array([[0.0, 1.0], [1.0, 0.0]]), 1).tolist()
      [[-0.5, 0.5], [0.5, -0.5]]
    """
    towards = symmetric_neighbourhood(adjacency) - jnp.eye(adjacency.shape[0])
    return jnp.kron(towards, jnp.eye(clusters))


@checked
def tau_grad(
    grads: Float[Array, "m mp"],
    cells: Int[Array, "m"],
    adjacency: Shaped[Array, "s s"],
    tau: Float[Array, "*qq"],
    clusters: int,
) -> Float[Array, "*qq"]:
    """The gradient by tau of the sum of the clients' losses at u, the models of (15).

    Args:
      grads: dL_i / dweight of each client's loss by the weights of the u of its cell: inner
        products of its gradient at u with the uploads, then with the models of the round before
        [M, M + P].
      cells: see `server_round`; the loss of a client that did not report does not count.
      adjacency: see `server_round`.
      tau: a number or [Q, Q].
      clusters: Q.

    Example:
      >>> grads = jnp.array([[0.0, 4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
      >>> tau_grad(grads, jnp.array([0, 1]), jnp.zeros((1, 1)), jnp.array(1.0), 2).tolist()
      1.0
    """

    def losses(tau: Float[Array, "*qq"]) -> Float[Array, ""]:
        rows = server_round(cells, adjacency, tau, clusters)[0][cells]
        return jnp.sum(jnp.where(cells[:, None] >= 0, grads * rows, 0.0))

    return jax.grad(losses)(tau)


@checked
def upload_weights(rows: Float[Array, "m mp"]) -> Float[Array, "m m"]:
    """The weights of the uploads alone, each row scaled to sum to one.

    A part of a row is on models of the round before if a cell had no report; it is left out. A
    client whose row has no upload at all is shown with its own.

    Args:
      rows: weights of the uploads, then of the models of the round before [M, M + P].

    Returns:
      Row-stochastic [M, M].

    Example:
      >>> upload_weights(jnp.array([[0.25, 0.25, 0.5], [0.0, 0.0, 1.0]])).tolist()
      [[0.5, 0.5], [0.0, 1.0]]
    """
    uploads = rows[:, : rows.shape[0]]
    total = uploads.sum(axis=1, keepdims=True)
    return jnp.where(total > 0, uploads / jnp.where(total > 0, total, 1), jnp.eye(len(rows)))


@checked
def disagreement(models: Stack) -> Float[Array, ""]:
    """How far servers are from their mean: the root mean square of |w_sq - mean_s w_sq|.

    Finite for entries up to 1e15.

    Args:
      models: w [S, Q, ...].

    Example:
      >>> disagreement(jnp.array([[[1.0]], [[5.0]]])).tolist()
      2.0
    """
    leaves = [wide(x) for x in jax.tree.leaves(trainable(models))]
    servers = leaves[0].shape[0]
    squares = sum(jnp.sum(jnp.square(x - column_sum(x)[None] / servers)) for x in leaves)
    return root(jnp.asarray(squares) / (servers * leaves[0].shape[1]))


def _others(tau: Strength, clusters: int) -> Float[Array, "q q"]:
    """The strength of each pair of different clusters, 0 on the diagonal."""
    return jnp.broadcast_to(jnp.asarray(tau), (clusters, clusters)) * (1 - jnp.eye(clusters))
