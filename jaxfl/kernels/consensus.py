"""Several servers with several clusters each: the server side of GFedMtl (Gauthier et al., Asilomar 2022) as matrices.

S servers, Q clusters at each, P = S * Q cells; cell s * Q + q is cluster q at server s. Every step
of a server is a row-stochastic matrix over cells, so a whole round of the servers is one matrix
from uploads to what they hold.
"""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, ArrayLike, Float, Int, PyTree, Shaped


def adjacency(graph: str | Shaped[ArrayLike, "s s"], servers: int) -> Shaped[Array, "s s"]:
    """The graph "ring" (each server between two others) or "alone" (no edges), or the given one."""
    if not isinstance(graph, str):
        return jnp.asarray(graph)
    after = jnp.roll(jnp.eye(servers), 1, axis=1)
    both = jnp.maximum(after, after.T) * (
        1 - jnp.eye(servers)
    )  # one edge between two servers, none at a single one
    return {"ring": both, "alone": jnp.zeros_like(both)}[graph]


def collect(cells: Int[Array, "m"], count: int) -> Float[Array, "p mp"]:
    """(14): each cell's mean over the clients that report; a cell without any keeps the model it has.

    Args:
      cells: the cell of each client of the round [M]; -1 for one whose upload is not heard.
      count: P.

    Returns:
      [P, M + P]: weights of the M uploads, then of the P models of the round before.
    """
    member = cells[None] == jnp.arange(count)[:, None]  # [P, M]
    reported = jnp.count_nonzero(member, axis=1)[:, None]
    return jnp.concatenate(
        [member / jnp.maximum(reported, 1), jnp.eye(count) * (reported == 0)], axis=1
    )


def couple(tau: Float[Array, "*qq"] | float | int, clusters: int) -> Float[Array, "q q"]:
    """(15): each cluster's model, refined by those of the other clusters.

    Args:
      tau: strength of inter-cluster learning: one number, or that of each pair (receiver, sender)
        [Q, Q], whose diagonal is not looked at. At 0 clusters are apart.
      clusters: Q.

    Returns:
      Row-stochastic [Q, Q].
    """
    others = _others(tau, clusters)
    return (jnp.eye(clusters) + others) / (1 + others.sum(axis=1, keepdims=True))


def neighbourhood(adjacency: Shaped[Array, "s s"]) -> Float[Array, "s s"]:
    """(17): the mean over a server and its neighbours, row-stochastic [S, S]."""
    closed = adjacency + jnp.eye(adjacency.shape[0])
    return closed / closed.sum(axis=1, keepdims=True)


def exchange(
    adjacency: Shaped[Array, "s s"], tau: Float[Array, "*qq"] | float | int, clusters: int
) -> Float[Array, "p p"]:
    """(17) and (18): servers average with their neighbours, then learn from the other clusters of their neighbours.

    Row-stochastic [P, P]; `adjacency` is symmetric with a zero diagonal, for `tau` see `couple`.
    """
    others = _others(tau, clusters)
    same = jnp.kron(neighbourhood(adjacency), jnp.eye(clusters))
    foreign = jnp.kron(adjacency, others)  # the neighbours' models alone, not the server's own
    return (same + foreign) / (1 + foreign.sum(axis=1, keepdims=True))


def server_round(
    cells: Int[Array, "m"],
    adjacency: Shaped[Array, "s s"],
    tau: Float[Array, "*qq"] | float | int,
    clusters: int,
) -> tuple[Float[Array, "p mp"], Float[Array, "p mp"]]:
    """(14) to (18): what the servers make of the uploads, as two matrices.

    Args:
      cells: the cell of each client of the round [M]; -1 for one whose upload is not heard.
      adjacency: of the servers [S, S].
      tau: see `couple`.
      clusters: Q.

    Returns:
      The models u after (15) and w after (18), [P, M + P] each: weights of the uploads, then of the
      models before.
    """
    servers = adjacency.shape[0]
    within = jnp.kron(jnp.eye(servers), couple(tau, clusters))
    coupled = jnp.matmul(within, collect(cells, servers * clusters), precision=Precision.HIGHEST)
    return coupled, jnp.matmul(
        exchange(adjacency, tau, clusters), coupled, precision=Precision.HIGHEST
    )


def tau_slope(
    slopes: Float[Array, "m mp"],
    cells: Int[Array, "m"],
    adjacency: Shaped[Array, "s s"],
    tau: Float[Array, "*qq"],
    clusters: int,
) -> Float[Array, "*qq"]:
    """How the sum over clients of their losses at u, the model of their cell after (15), changes with tau.

    Args:
      slopes: dL_i / dweight of each client's loss by the weights of its u: inner products of its
        gradient at u with the uploads, then with the models before [M, M + P].
      cells: see `server_round`; the loss of a client that is not heard does not count.
      adjacency: see `server_round`.
      tau: a number or [Q, Q].
      clusters: Q.
    """

    def losses(tau: Float[Array, "*qq"]) -> Float[Array, ""]:
        rows = server_round(cells, adjacency, tau, clusters)[0][cells]
        return jnp.sum(jnp.where(cells[:, None] >= 0, slopes * rows, 0.0))

    return jax.grad(losses)(tau)


def upload_weights(rows: Float[Array, "m mp"]) -> Float[Array, "m m"]:
    """The weights of the uploads alone, each row scaled to sum to one: [M, M + P] -> [M, M].

    Where a cell had no report, a part of a row falls on a model of the round before: it is left
    out. Who gets nothing of any upload is shown with its own.
    """
    uploads = rows[:, : rows.shape[0]]
    total = uploads.sum(axis=1, keepdims=True)
    return jnp.where(total > 0, uploads / jnp.where(total > 0, total, 1), jnp.eye(len(rows)))


def disagreement(models: PyTree) -> Float[Array, ""]:
    """How far servers are from each other: root mean square over servers and clusters of |w_qs - mean_s w_qs|.

    Finite for entries up to 1e15.

    Args:
      models: [S, Q, ...].
    """
    leaves = jax.tree.leaves(models)
    squares = sum(jnp.sum(jnp.square(x - x.mean(axis=0, keepdims=True))) for x in leaves)
    return jnp.sqrt(squares / (leaves[0].shape[0] * leaves[0].shape[1]))


def _others(tau: Float[Array, "*qq"] | float | int, clusters: int) -> Float[Array, "q q"]:
    return jnp.broadcast_to(jnp.asarray(tau), (clusters, clusters)) * (1 - jnp.eye(clusters))
