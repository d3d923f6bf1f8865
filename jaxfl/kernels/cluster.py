"""K-means of stacked models by their distances [M, M]: an iteration costs the same for any D."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.kernels.mixing import leave_out, mix
from jaxfl.kernels.similarity import (
    LARGEST_SQUARE,
    distances_between,
    squared_distances_in_unit,
)

# Candidates for each seed of k-means++.
CANDIDATES = 3


class Clusters(NamedTuple):
    """A division of M models into K clusters, some of which may be empty."""

    # [M] cluster of each model
    assignment: Int[Array, "*m"]
    # [K, M]: `mix(averaging, stacked)` are the centres; a row of zeros for an empty cluster
    averaging: Float[Array, "*km"]
    # sum of the squared distances of the models to their centres
    inertia: Float[Array, "*s"]


@checked
def kmeans(
    key: Key[Array, ""],
    stacked: Stack,
    clusters: int,
    ids: Int[Array, "m"] | None = None,
    counted: Bool[Array, "m"] | None = None,
    *,
    restarts: int = 10,
    iterations: int = 100,
) -> Clusters:
    """K-means from greedy k-means++ seeds (Arthur and Vassilvitskii, 2007); the best of restarts.

    Lloyd's iterations (1982, https://doi.org/10.1109/TIT.1982.1056489) until they change nothing,
    then moves of single models that lower the inertia (Hartigan, 1975), until no move does. Both
    need squared distances alone, which come from one Gram matrix: an iteration costs O(K M^2) and a
    move O(K M), with no D.

    The result belongs to the clients, not to the order of the rows: random numbers are drawn by
    client id, and clusters are numbered by their smallest id. If there are fewer distinct models
    than K, each of them is a cluster and the last clusters are empty; so with K = M every model is
    a cluster of its own.

    Args:
      key: of the seeds.
      stacked: models [M, ...] or a matrix [M, D].
      clusters: K.
      ids: of the clients [M], all different. None: their places.
      counted: whose models count [M], at least one; the others move no centre, and join the nearest
        one. None: all.
      restarts: independent seedings, computed side by side.
      iterations: the most in one restart, and the most moves.

    Example:
      >>> models = jnp.array([[0.0], [9.0], [1.0], [8.0]])
      >>> kmeans(jax.random.key(0), models, 2).assignment.tolist()
      [0, 1, 0, 1]
    """
    distances, unit = squared_distances_in_unit(stacked)
    ids = jnp.arange(len(distances)) if ids is None else ids
    counted = jnp.ones(ids.size, bool) if counted is None else counted

    def noise(client: Int[Array, ""]) -> Float[Array, "r k"]:
        return jax.random.gumbel(jax.random.fold_in(key, client), (restarts, clusters))

    def seeds(noise: Float[Array, "k m"]) -> Int[Array, "k"]:
        def add(nearest: Float[Array, "m"], noise: Float[Array, "m"]):
            # The largest of log p + Gumbel noise is a draw in proportion to p, and the next ones
            # are further draws.
            scores = jnp.where(counted, jnp.log(nearest) + noise, -jnp.inf)
            _, candidates = lax.top_k(scores, min(CANDIDATES, ids.size))
            # The candidate that leaves the smallest sum of squared distances [candidates, M].
            after = jnp.minimum(nearest[None], distances[candidates])
            left = jnp.sum(jnp.where(counted[None], after, 0.0), axis=1)
            best = jnp.where(counted[candidates], left, jnp.inf).argmin()
            return after[best], candidates[best]

        first = jnp.where(counted, noise[0], -jnp.inf).argmax()
        _, others = lax.scan(add, distances[first], noise[1:])
        return jnp.concatenate([first[None], others])

    def members_of(assignment: Int[Array, "m"]) -> Float[Array, "k m"]:
        return counted[None] * jax.nn.one_hot(assignment, clusters, axis=0)

    def division(assignment: Int[Array, "m"]) -> tuple[Clusters, Float[Array, "k m"]]:
        """The clusters, and squared distances of models to centres, infinite to an empty one."""
        members = members_of(assignment)
        counts = members.sum(axis=1)
        averaging = members / jnp.maximum(counts, 1)[:, None]
        # The mean squared distance of each model to the members of each cluster [K, M].
        to_members = jnp.matmul(averaging, distances, precision=Precision.HIGHEST)
        # The mean squared distance of the members to their centre is half that to each other [K].
        spread = jnp.sum(averaging * to_members, axis=1) / 2
        to_centres = jnp.where(counts[:, None] > 0, to_members - spread[:, None], jnp.inf)
        return Clusters(assignment, averaging, jnp.sum(counts * spread)), to_centres

    def settle(assignment: Int[Array, "m"]) -> Int[Array, "m"]:
        """Each model joins its nearest centre, until none changes (Lloyd)."""

        def step(carry):
            assignment, _, number = carry
            _, to_centres = division(assignment)
            return to_centres.argmin(axis=0), assignment, number + 1

        def unsettled(carry):
            assignment, before, number = carry
            return (assignment != before).any() & (number < iterations)

        return lax.while_loop(unsettled, step, (assignment, assignment - 1, 0))[0]

    def transfer(assignment: Int[Array, "m"]) -> Int[Array, "m"]:
        """The model whose move saves most moves, until no move saves anything (Hartigan)."""
        members = members_of(assignment)
        # Sums of squared distances: of each model to the members of each cluster [K, M], and of all
        # pairs of members [K]. A move changes both by one row of distances.
        sums = jnp.matmul(members, distances, precision=Precision.HIGHEST)
        within = jnp.sum(members * sums, axis=1) / 2

        def step(carry):
            assignment, counts, sums, within, _, moves = carry
            n = counts[:, None]
            own = members_of(assignment) > 0
            # n times the squared distance of each model to each centre. Both centres follow a model
            # that moves: it saves this over n - 1, and costs this over n + 1, nothing if that
            # cluster is empty.
            times_n = sums - within[:, None] / jnp.maximum(n, 1)
            cost = times_n / jnp.where(own, jnp.maximum(n - 1, 1), n + 1)
            now = jnp.sum(jnp.where(own, cost, 0.0), axis=0)
            gains = now - cost.min(axis=0)
            model = gains.argmax()
            moves_now = gains[model] > 1e-5 * now[model]
            target = jnp.where(moves_now, cost[:, model].argmin(), assignment[model])
            change = jax.nn.one_hot(target, clusters) - jax.nn.one_hot(assignment[model], clusters)
            within = within + change * sums[:, model]
            sums = sums + change[:, None] * distances[model][None]
            assignment = assignment.at[model].set(target)
            return assignment, counts + change, sums, within, moves_now, moves + 1

        def unsettled(carry):
            *_, moved, moves = carry
            return moved & (moves < iterations)

        start = (assignment, members.sum(axis=1), sums, within, True, 0)
        return lax.while_loop(unsettled, step, start)[0]

    def converge(noise: Float[Array, "k m"]) -> Int[Array, "m"]:
        return transfer(settle(distances[seeds(noise)].argmin(axis=0)))

    # All restarts [restarts, M], and the first of the best: rounding does not decide between them.
    assignments = jax.vmap(converge)(jax.vmap(noise)(ids).transpose(1, 2, 0))
    inertia = jax.vmap(lambda assignment: division(assignment)[0].inertia)(assignments)
    best = assignments[jnp.argmax(inertia <= (1 + 1e-5) * inertia.min())]
    # Clusters are numbered by their smallest id [K].
    largest_id = jnp.iinfo(ids.dtype).max
    counted_ids = jnp.where(counted, ids, largest_id)
    smallest = jnp.full(clusters, largest_id, ids.dtype).at[best].min(counted_ids)
    number = jnp.sum(smallest[None] < smallest[:, None], axis=1)
    result, to_centres = division(number[best].astype(jnp.int32))
    # Models that do not count join the nearest centre of those that do.
    nearest = to_centres.argmin(axis=0).astype(jnp.int32)
    return result._replace(
        assignment=jnp.where(counted, result.assignment, nearest),
        inertia=jnp.minimum(result.inertia * unit * unit, LARGEST_SQUARE),
    )


@checked
def nearest(stacked: Stack, centres: Stack) -> Int[Array, "m"]:
    """The centre nearest to each model [M], the first if several are.

    Args:
      stacked: models [M, ...].
      centres: [K, ...].

    Example:
      >>> nearest(jnp.array([[1.0], [7.0]]), jnp.array([[0.0], [8.0]])).tolist()
      [0, 1]
    """
    return distances_between(stacked, centres).argmin(axis=1).astype(jnp.int32)


@checked
def centres(
    stacked: Stack,
    assignment: Int[Array, "m"],
    before: Stack,
    reported: Bool[Array, "m"] | None = None,
) -> PyTree:
    """The mean of each cluster's models; a cluster without a member that reported keeps its centre.

    Args:
      stacked: models [M, ...].
      assignment: the cluster of each model [M].
      before: centres so far [K, ...].
      reported: whose models count [M]; None: all.

    Returns:
      Centres [K, ...].

    Example:
      >>> models = jnp.array([[2.0], [4.0]])
      >>> centres(models, jnp.array([0, 0]), jnp.array([[9.0], [8.0]])).tolist()
      [[3.0], [8.0]]
    """
    clusters = jax.tree.leaves(before)[0].shape[0]
    members = jax.nn.one_hot(assignment, clusters, axis=0)
    members = members if reported is None else reported[None] * members
    count = members.sum(axis=1)
    means = mix(members / jnp.maximum(count, 1)[:, None], stacked)
    return jax.tree.map(
        lambda m, b: jnp.where((count > 0).reshape(-1, *[1] * (m.ndim - 1)), m, b), means, before
    )


@checked
def predecessors(
    votes: Float[Array, "k k"] | Int[Array, "k k"],
    distances: Float[Array, "k k"],
    occupied: Bool[Array, "k"],
    exists: Bool[Array, "k"],
) -> Int[Array, "k"]:
    """The old cluster that each new one continues [K]; several may continue one.

    It is the one from which most of its members come, the nearest one of several. A new cluster of
    clients that were in no cluster continues one that nobody was ever in, as long as there are any,
    each another one; and then the nearest one.

    Args:
      votes: how many members of a new cluster were in an old one [K, K] (new, old).
      distances: of their centres, finite and not negative [K, K] (new, old).
      occupied: whether anybody was ever in an old cluster [K].
      exists: whether anybody is in a new cluster [K].

    Example:
      >>> votes = jnp.array([[0, 2, 0], [0, 1, 0], [0, 0, 0]])
      >>> occupied = jnp.array([False, True, True])
      >>> predecessors(votes, jnp.ones((3, 3)), occupied, jnp.ones(3, bool)).tolist()
      [1, 1, 0]
    """
    # All distances together weigh less than one vote.
    distance = distances / (jnp.maximum(distances.max(), 1e-30) * (distances.shape[0] + 1))
    has_votes = votes.any(axis=1)
    # Free clusters go one by one to the new ones without votes that exist.
    free = jnp.cumsum(~occupied)
    turn = jnp.cumsum(~has_votes & exists)
    place = jnp.searchsorted(free, turn)
    fits = ~has_votes & exists & (place < occupied.size)
    nearest_one = jnp.argmin(jnp.where(occupied[None], distance, jnp.inf), axis=1)
    predecessor = jnp.where(has_votes, jnp.argmax(votes - distance, axis=1), nearest_one)
    return jnp.where(fits, place, predecessor).astype(jnp.int32)


@checked
def together(
    assignment: Int[Array, "m"], reported: Bool[Array, "m"] | None = None
) -> Float[Array, "m m"]:
    """Mixing weights of the mean over those who reported in a client's cluster [M, M].

    Args:
      assignment: the cluster of each client [M].
      reported: whose models count [M]; None: all.

    Example:
      >>> together(jnp.array([0, 0, 1])).tolist()
      [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    same = assignment[:, None] == assignment[None]
    return leave_out(same / same.sum(axis=1, keepdims=True), reported)
