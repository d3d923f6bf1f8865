"""Division of clients into coalitions that minimises a bound of their errors (FedCollab)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, Key, Shaped

from jaxfl.core.options import checked
from jaxfl.core.types import Scalar
from jaxfl.kernels.mixing import possible_sizes

# No search takes so many passes over the clients; rounding errors could let one go on for ever.
PASSES = 100
# A client moves if the sum of the bounds falls by more than this part of it.
TOLERANCE = 1e-6


class Coalitions(NamedTuple):
    """A division of clients."""

    # [M] the coalition of each client, numbered from 0 in the order of their first clients
    coalition: Int[Array, "m"]
    # the mean of the clients' bounds
    bound: Float[Array, ""]


@checked
def error_bounds(
    coalition: Int[Array, "m"],
    divergence: Float[Array, "m m"],
    sizes: Shaped[Array, "m"],
    trade: Scalar,
) -> Float[Array, "m"]:
    """The bound of each client's error if it learns with its coalition, up to a constant [M].

    trade / sqrt(m_S) + sum_j (m_j / m_S) d_ij, over the clients j of its coalition S, which have
    m_S examples together: the first term falls with the data of the coalition, and the second grows
    with the divergence of their distributions. It is the general bound
    trade * sqrt(sum_j a_ij^2 / m_j) + sum_j a_ij d_ij for the weights a_ij of FedAvg (Bao et al.,
    2023, https://arxiv.org/abs/2306.06508).

    Args:
      coalition: of each client [M].
      divergence: d, not negative [M, M] (receiver, sender).
      sizes: m, their numbers of examples [M]; a client without any counts as if it had one.
      trade: what a smaller sample costs against divergences.

    Example:
      >>> apart = jnp.array([[0.0, 0.5], [0.5, 0.0]])
      >>> error_bounds(jnp.array([0, 0]), apart, jnp.array([50, 50]), 5.0).tolist()
      [0.75, 0.75]
    """
    sizes = jnp.maximum(possible_sizes(sizes), 1.0)
    same = coalition[:, None] == coalition[None]
    total = (same * sizes[None]).sum(axis=1)
    shift = (same * sizes[None] * divergence).sum(axis=1) / total
    return trade / jnp.sqrt(total) + shift


@checked
def find_coalitions(
    key: Key[Array, ""],
    divergence: Float[Array, "m m"],
    sizes: Shaped[Array, "m"],
    trade: Scalar,
    ids: Int[Array, "m"] | None = None,
    *,
    coalitions: int,
    starts: int = 20,
) -> Coalitions:
    """The division into at most K coalitions with the smallest mean bound that a search finds.

    The search starts with every client alone, or dealt to K coalitions if there are more clients.
    It takes the clients in a random order, and moves each to the coalition, maybe an empty one,
    that makes the sum of all bounds smallest. It repeats this until nobody moves. The best of
    several such searches is returned.

    Args:
      key: of the orders.
      divergence: finite, not negative, with a zero diagonal [M, M] (receiver, sender).
      sizes: numbers of examples [M].
      trade: see `error_bounds`.
      ids: of the clients [M], all different; the orders follow them. None: their places.
      coalitions: K, their largest number.
      starts: how many searches.

    Example:
      >>> far = jnp.array([[0.0, 0.1, 0.9], [0.1, 0.0, 0.9], [0.9, 0.9, 0.0]])
      >>> sizes = jnp.array([100, 100, 100])
      >>> result = find_coalitions(jax.random.key(0), far, sizes, trade=5.0, coalitions=3)
      >>> result.coalition.tolist()
      [0, 0, 1]
    """
    clients = divergence.shape[0]
    places = jnp.arange(clients) if ids is None else ids
    slots = min(coalitions, clients)
    sizes = jnp.maximum(possible_sizes(sizes), 1.0)
    shifts = divergence * sizes[None]

    def value(count: Array, total: Array, divergences: Array) -> Array:
        """The sum of the bounds of coalitions, of their clients, examples and m_j d_ij."""
        examples = jnp.where(count > 0, total, 1.0)
        return count * trade / jnp.sqrt(examples) + divergences / examples

    def move(carry: tuple, client: Array) -> tuple[tuple, None]:
        place, change, scale = carry
        others = jax.nn.one_hot(place, slots, axis=0).at[:, client].set(0.0)  # [K, M]
        count = others.sum(axis=1)
        total = others @ sizes
        # The sum of m_j d_ij over pairs of each coalition, without and with the client.
        divergences = jnp.sum(others * (others @ shifts.T), axis=1)
        to_client = others @ (sizes * divergence[client])
        from_client = sizes[client] * (others @ divergence[:, client])
        sums = divergences + to_client + from_client
        cost = value(count + 1, total + sizes[client], sums) - value(count, total, divergences)
        best = jnp.argmin(cost).astype(place.dtype)
        better = cost[best] < cost[place[client]] - TOLERANCE * scale
        place = place.at[client].set(jnp.where(better, best, place[client]))
        return (place, change | better, scale), None

    def search(order: Int[Array, "m"]) -> tuple[Array, Array]:
        place = (
            jnp.zeros(clients, jnp.int32)
            .at[order]
            .set(jnp.arange(clients, dtype=jnp.int32) % slots)
        )
        scale = error_bounds(place, divergence, sizes, trade).sum()

        def unsettled(carry: tuple) -> Array:
            _, change, number = carry
            return change & (number < PASSES)

        def one_pass(carry: tuple) -> tuple:
            place, _, number = carry
            (place, change, _), _ = lax.scan(move, (place, jnp.zeros((), bool), scale), order)
            return place, change, number + 1

        start = (place, jnp.ones((), bool), jnp.zeros((), jnp.int32))
        place, _, _ = lax.while_loop(unsettled, one_pass, start)
        return place, error_bounds(place, divergence, sizes, trade).mean()

    def draw(key: Key[Array, ""]) -> Int[Array, "m"]:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, places)
        return jnp.argsort(jax.vmap(jax.random.bits)(keys))

    divisions, bounds = jax.vmap(search)(jax.vmap(draw)(jax.random.split(key, starts)))
    best = jnp.argmin(bounds)
    return Coalitions(in_order(divisions[best]), bounds[best])


@checked
def in_order(place: Int[Array, "m"]) -> Int[Array, "m"]:
    """The same division, numbered from 0 in the order of the first clients [M].

    Example:
      >>> in_order(jnp.array([7, 2, 7, 0])).tolist()
      [0, 1, 0, 2]
    """
    same = place[:, None] == place[None]
    first = jnp.argmax(same, axis=1)
    leads = first == jnp.arange(place.size)
    return (jnp.cumsum(leads) - 1)[first].astype(jnp.int32)


@checked
def coalition_weights(coalition: Int[Array, "m"], sizes: Shaped[Array, "m"]) -> Float[Array, "m m"]:
    """Mixing weights of FedAvg within each coalition [M, M]: a block for each, rows by size.

    Args:
      coalition: of each client [M].
      sizes: numbers of examples [M]; in a coalition without any, clients count equally.

    Example:
      >>> coalition_weights(jnp.array([0, 0, 1]), jnp.array([1, 3, 5])).tolist()
      [[0.25, 0.75, 0.0], [0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]
    """
    same = coalition[:, None] == coalition[None]
    shares = same * possible_sizes(sizes)[None]
    rows = jnp.where(shares.any(axis=1, keepdims=True), shares, same)
    return rows / rows.sum(axis=1, keepdims=True)
