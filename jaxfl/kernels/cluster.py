"""K-means of stacked models in their [M, M] distances: a Lloyd iteration costs the same however long a model is."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from jaxfl.kernels.mixing import leave_out, mix
from jaxfl.kernels.similarity import LARGEST, gram, scaled

TRIES = 3  # candidates for each seed


class Clusters(NamedTuple):
    """A division of M models into K clusters, some of them perhaps empty."""

    assignment: Int[Array, "*m"]  # [M] cluster of each model
    averaging: Float[
        Array, "*km"
    ]  # [K, M]: `mix(averaging, stacked)` are the centres; a row of zeros where empty
    inertia: Float[Array, "*s"]  # sum of the squared distances of the models to their centres


def kmeans(
    key: Key[Array, ""],
    stacked: PyTree,
    ids: Int[Array, "m"],
    clusters: int,
    *,
    restarts: int = 40,
    iterations: int = 100,
) -> Clusters:
    """K-means from greedy k-means++ seeds (Arthur and Vassilvitskii, 2007); the best of the restarts.

    Lloyd's iterations (1982), and where they rest, moves of single models that save (Hartigan,
    1975), until nothing does. This needs squared distances alone, which come from one Gram matrix:
    an iteration costs O(K M^2), with no D.

    The result belongs to the clients, not to the order of the rows: random numbers are drawn by
    client id, and clusters are numbered by their smallest id. Of fewer distinct models than K, each
    is a cluster and the rest, the last ones, are empty; so with K = M every model is one.

    Args:
      key: of the seeds.
      stacked: models [M, ...] or a matrix [M, D].
      ids: of the clients [M], all different.
      clusters: K.
      restarts: independent seedings, side by side.
      iterations: the most of a restart.
    """
    distances, unit = _distances(stacked)

    def noise(client: Int[Array, ""]) -> Float[Array, "r k"]:
        return jax.random.gumbel(jax.random.fold_in(key, client), (restarts, clusters))

    def seeds(noise: Float[Array, "k m"]) -> Int[Array, "k"]:
        def add(nearest: Float[Array, "m"], noise: Float[Array, "m"]):
            # The largest of log p + Gumbel noise is a draw in proportion to p, the next ones are
            # further draws.
            _, candidates = lax.top_k(jnp.log(nearest) + noise, min(TRIES, ids.size))
            after = jnp.minimum(nearest[None], distances[candidates])  # [L, M]
            best = after.sum(axis=1).argmin()
            return after[best], candidates[best]

        first = noise[0].argmax()
        _, others = lax.scan(add, distances[first], noise[1:])
        return jnp.concatenate([first[None], others])

    def division(assignment: Int[Array, "m"]) -> tuple[Clusters, Float[Array, "k m"]]:
        """The clusters, and the squared distance of every model to every centre, infinite to an empty one [K, M]."""
        members = jax.nn.one_hot(assignment, clusters, axis=0)
        counts = members.sum(axis=1)
        averaging = members / jnp.maximum(counts, 1)[:, None]
        to_members = jnp.matmul(
            averaging, distances, precision=Precision.HIGHEST
        )  # means over a cluster
        spread = (
            jnp.sum(averaging * to_members, axis=1) / 2
        )  # mean squared distance of the members to their centre
        to_centres = jnp.where(counts[:, None] > 0, to_members - spread[:, None], jnp.inf)
        return Clusters(assignment, averaging, jnp.sum(counts * spread)), to_centres

    def better(assignment: Int[Array, "m"]) -> Int[Array, "m"]:
        """Lloyd's step; where that changes nothing, the move of one model that saves most, if any does."""
        (_, averaging, _), to_centres = division(assignment)
        nearest = to_centres.argmin(axis=0)
        here = averaging > 0  # [K, M]
        n = here.sum(axis=1, keepdims=True)
        # Both centres follow a model that moves: it saves n / (n - 1) times its squared distance to
        # the one it leaves, and costs n / (n + 1) times that to the one it joins, nothing if that
        # is empty.
        cost = jnp.where(here, n / jnp.maximum(n - 1, 1), n / (n + 1)) * jnp.where(
            n > 0, to_centres, 0.0
        )
        now = jnp.sum(jnp.where(here, cost, 0.0), axis=0)
        saved = now - cost.min(axis=0)
        model = saved.argmax()
        moved = assignment.at[model].set(cost[:, model].argmin())
        moved = jnp.where(saved[model] > 1e-5 * now[model], moved, assignment)
        return jnp.where((nearest != assignment).any(), nearest, moved)

    def settled(noise: Float[Array, "k m"]) -> Int[Array, "m"]:
        def step(carry):
            assignment, _, number = carry
            return better(assignment), assignment, number + 1

        def moving(carry):
            assignment, before, number = carry
            return (assignment != before).any() & (number < iterations)

        start = distances[seeds(noise)].argmin(axis=0)
        return lax.while_loop(moving, step, (start, start - 1, 0))[0]

    found = jax.vmap(settled)(jax.vmap(noise)(ids).transpose(1, 2, 0))  # [restarts, M]
    inertia = jax.vmap(lambda a: division(a)[0].inertia)(found)
    best = found[
        jnp.argmax(inertia <= (1 + 1e-5) * inertia.min())
    ]  # rounding does not decide between equals
    smallest = (
        jnp.full(clusters, jnp.iinfo(ids.dtype).max, ids.dtype).at[best].min(ids)
    )  # id of each cluster [K]
    place = jnp.sum(smallest[None] < smallest[:, None], axis=1)
    divided = division(place[best])[0]
    return divided._replace(inertia=jnp.minimum(divided.inertia * unit * unit, LARGEST))


def squared_distances(stacked: PyTree) -> Float[Array, "m m"]:
    """Squared Euclidean distances of all pairs of models.

    From inner products of the models less their mean, so that models near each other and far from
    zero keep their digits. What is below 1e-6 of the two squared distances to the mean is rounding,
    and 0; what is beyond 1e30 is 1e30.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
    """
    distances, unit = _distances(stacked)
    return jnp.minimum(distances * unit * unit, LARGEST)


def _distances(stacked: PyTree) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
    """Squared distances in a unit in which none overflows, a power of two, and that unit."""
    small, power = scaled(jax.tree.map(lambda x: x - x.mean(axis=0, keepdims=True), stacked))
    unit = power.max()
    products = gram(small) * (power / unit)[:, None] * (power / unit)[None]
    squares = jnp.diagonal(products)
    both = squares[:, None] + squares[None]
    distances = both - 2 * products
    return jnp.where(distances > 1e-6 * both, distances, 0.0), unit


def nearest(stacked: PyTree, centres: PyTree) -> Int[Array, "m"]:
    """The centre nearest to each model, the first of equals [M].

    Args:
      stacked: models [M, ...].
      centres: [K, ...].
    """
    both = jax.tree.map(lambda m, c: jnp.concatenate([m, c]), stacked, centres)
    models = jax.tree.leaves(stacked)[0].shape[0]
    return _distances(both)[0][:models, models:].argmin(axis=1).astype(jnp.int32)


def centres(
    stacked: PyTree, assignment: Int[Array, "m"], before: PyTree, heard: Bool[Array, "m"]
) -> PyTree:
    """The mean of each cluster's models; one of which none is heard keeps its centre.

    Args:
      stacked: models [M, ...].
      assignment: the cluster of each [M].
      before: centres so far [K, ...].
      heard: whose model counts [M].
    """
    members = heard[None] * jax.nn.one_hot(
        assignment, jax.tree.leaves(before)[0].shape[0], axis=0
    )  # [K, M]
    count = members.sum(axis=1)
    means = mix(members / jnp.maximum(count, 1)[:, None], stacked)
    return jax.tree.map(
        lambda m, b: jnp.where((count > 0).reshape(-1, *[1] * (m.ndim - 1)), m, b), means, before
    )


def together(assignment: Int[Array, "m"], heard: Bool[Array, "m"]) -> Float[Array, "m m"]:
    """The mean over who is heard in a client's cluster as mixing weights [M, M]: blocks of 1 / their number."""
    same = assignment[:, None] == assignment[None]
    return leave_out(same / same.sum(axis=1, keepdims=True), heard)
