"""Aggregation that a few liars cannot lead astray: order statistics of coordinates, Krum's choice, clipped updates."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxfl.kernels.similarity import LARGEST, inverse_norms


def trimmed_mean(
    stacked: PyTree, trim: Float[Array, ""] | float, heard: Bool[Array, "m"]
) -> PyTree:
    """The mean of each coordinate without its floor(trim H) smallest and largest of the H values that are heard.

    Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, Definition 2. Half, and the
    median is what stays.

    Args:
      stacked: models [M, ...].
      trim: fraction to leave out at each end, below .5.
      heard: whose model counts [M]; if nobody's does, all do.
    """
    heard = heard | ~heard.any()
    count = heard.sum()
    cut = jnp.minimum(jnp.floor(trim * count + 1e-4), (count - 1) // 2)
    place = jnp.arange(heard.size)
    kept = (place >= cut) & (place < count - cut)

    def leaf(x: Array) -> Array:
        column = (-1, *[1] * (x.ndim - 1))
        ordered = jnp.sort(jnp.where(heard.reshape(column), x, jnp.inf), axis=0)
        return jnp.sum(jnp.where(kept.reshape(column), ordered, 0.0), axis=0) / kept.sum()

    return jax.tree.map(leaf, stacked)


def median(stacked: PyTree, heard: Bool[Array, "m"]) -> PyTree:
    """The median of each coordinate, of an even number of values the mean of the two in the middle (Definition 1)."""
    return trimmed_mean(stacked, 0.5, heard)


def krum(
    stacked: PyTree,
    ids: Int[Array, "m"],
    heard: Bool[Array, "m"],
    byzantine: int | None,
    chosen: int | None,
) -> Float[Array, "m"]:
    """Equal weights of the models that lie nearest to their neighbours (Blanchard et al., NeurIPS 2017, section 4) [M].

    The score of a model is the sum of its squared distances to the H - f - 2 others nearest to it.

    Args:
      stacked: models [M, ...].
      ids: of the clients [M]; the smaller one goes first where scores are equal up to rounding.
      heard: whose model counts [M], H of them; if nobody's does, all do.
      byzantine: f, how many may lie. None: the most that the rule can bear, floor((H - 3) / 2).
      chosen: m, how many models to take. None: H - f, those left without as many as may lie.
    """
    heard = heard | ~heard.any()
    count = heard.sum()
    most = jnp.maximum((count - 3) // 2, 0)
    liars = most if byzantine is None else jnp.minimum(byzantine, count - 1)
    others = ~jnp.eye(heard.size, dtype=bool) & heard[None]
    distances = jnp.sort(jnp.where(others, _squared_distances(stacked), jnp.inf), axis=1)
    near = jnp.arange(heard.size) < jnp.clip(count - liars - 2, 1, count - 1)
    score = jnp.sum(jnp.where(near[None], distances, 0.0), axis=1)
    score = jnp.where(heard, score, jnp.inf)
    alike = jnp.isclose(score[:, None], score[None], rtol=1e-5, atol=0)
    before = jnp.where(
        alike, ids[None] < ids[:, None], score[None] < score[:, None]
    )  # [i, j]: j goes first
    taken = before.sum(axis=1) < (count - liars if chosen is None else jnp.minimum(chosen, count))
    return (taken & heard) / (taken & heard).sum()


def _squared_distances(stacked: PyTree) -> Float[Array, "m m"]:
    """Of all pairs, at most 1e30, a row at a time from differences: an enormous model hides nobody else's distances."""
    matrix = jnp.concatenate([x.reshape(x.shape[0], -1) for x in jax.tree.leaves(stacked)], axis=1)
    return lax.map(
        lambda one: jnp.minimum(jnp.sum((matrix - one[None]) ** 2, axis=1), LARGEST), matrix
    )


def clip_updates(
    before: PyTree, after: PyTree, bound: Float[Array, ""] | float | None, heard: Bool[Array, "m"]
) -> PyTree:
    """The models after updates no longer than the bound (Sun et al., "Can You Really Backdoor", 2019, section 4).

    Args:
      before: models [M, ...].
      after: models [M, ...].
      bound: Euclidean length; None: the median length of those that are heard.
      heard: whose model counts [M].
    """
    updates = jax.tree.map(jnp.subtract, after, before)
    inverse = inverse_norms(updates)  # 0 of no update
    longest = median(jnp.where(inverse > 0, 1 / jnp.where(inverse > 0, inverse, 1.0), 0.0), heard)
    factors = jnp.minimum(1.0, inverse * (longest if bound is None else bound))
    return jax.tree.map(
        lambda b, u: b + u * factors.reshape(-1, *[1] * (u.ndim - 1)), before, updates
    )
