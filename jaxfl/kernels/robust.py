"""Aggregation that withstands some malicious clients: order statistics, Krum, clipped updates."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.types import Scalar
from jaxfl.kernels.similarity import inverse_norms, squared_differences

# Cosines of float32 models that differ by less than this are equal.
ROUNDING = 1e-5


@checked
def trimmed_mean(stacked: Stack, trim: Scalar, reported: Bool[Array, "m"]) -> PyTree:
    """The mean of each coordinate without its floor(trim R) smallest and largest values.

    Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, Definition 2,
    https://arxiv.org/abs/1803.01498. A `trim` of one half leaves the median.

    Args:
      stacked: models [M, ...].
      trim: fraction of values to leave out at each end, at most .5.
      reported: whose models count [M], R of them; all if nobody reported.

    Example:
      >>> x = jnp.array([[1.0], [2.0], [4.0], [90.0]])
      >>> trimmed_mean(x, 0.25, jnp.ones(4, bool)).tolist()
      [3.0]
    """
    reported = reported | ~reported.any()
    count = reported.sum()
    cut = jnp.minimum(jnp.floor(trim * count + 1e-4), (count - 1) // 2)
    rank = jnp.arange(reported.size)
    middle = (rank >= cut) & (rank < count - cut)

    def leaf(x: Array) -> Array:
        column = (-1, *[1] * (x.ndim - 1))
        # Values that do not count are sorted behind all others.
        values = jnp.sort(jnp.where(reported.reshape(column), x, jnp.inf), axis=0)
        return jnp.sum(jnp.where(middle.reshape(column), values, 0.0), axis=0) / middle.sum()

    return jax.tree.map(leaf, stacked)


@checked
def median(stacked: Stack, reported: Bool[Array, "m"]) -> PyTree:
    """The median of each coordinate; of an even number of values, the mean of the middle two.

    Yin et al., ICML 2018, Definition 1, https://arxiv.org/abs/1803.01498.

    Args:
      stacked: models [M, ...].
      reported: whose models count [M]; all if nobody reported.

    Example:
      >>> median(jnp.array([[1.0], [2.0], [90.0]]), jnp.ones(3, bool)).tolist()
      [2.0]
    """
    return trimmed_mean(stacked, 0.5, reported)


@checked
def krum(
    stacked: Stack,
    ids: Int[Array, "m"],
    reported: Bool[Array, "m"],
    byzantine: int | None,
    chosen: int | None,
) -> Float[Array, "m"]:
    """Equal weights of the models nearest to their neighbours, 0 of the others [M].

    Blanchard et al., NeurIPS 2017, section 4, https://arxiv.org/abs/1703.02757. The score of a
    model is the sum of its squared distances to the R - f - 2 models nearest to it; the models with
    the smallest scores are chosen.

    Args:
      stacked: models [M, ...].
      ids: of the clients [M]; of scores that are equal up to rounding the smaller id goes first.
      reported: whose models count [M], R of them; all if nobody reported.
      byzantine: f, how many clients may be malicious. None: the most that the rule allows,
        floor((R - 3) / 2).
      chosen: m, how many models to choose. None: R - f.

    Example:
      >>> models = jnp.array([[0.0], [1.0], [1.5], [90.0]])
      >>> krum(models, jnp.arange(4), jnp.ones(4, bool), 1, 2).tolist()
      [0.0, 0.5, 0.5, 0.0]
    """
    reported = reported | ~reported.any()
    count = reported.sum()
    most = jnp.maximum((count - 3) // 2, 0)
    malicious = most if byzantine is None else jnp.minimum(byzantine, count - 1)
    # The score: the sum over the R - f - 2 nearest other models.
    others = ~jnp.eye(reported.size, dtype=bool) & reported[None]
    distances = jnp.sort(jnp.where(others, squared_differences(stacked), jnp.inf), axis=1)
    neighbours = jnp.arange(reported.size) < jnp.clip(count - malicious - 2, 1, count - 1)
    score = jnp.sum(jnp.where(neighbours[None], distances, 0.0), axis=1)
    score = jnp.where(reported, score, jnp.inf)
    # The choice: a model is taken if fewer than m others go before it; [i, j]: j goes before i.
    ties = jnp.isclose(score[:, None], score[None], rtol=1e-5, atol=0)
    before = jnp.where(ties, ids[None] < ids[:, None], score[None] < score[:, None])
    number = count - malicious if chosen is None else jnp.minimum(chosen, count)
    winners = before.sum(axis=1) < number
    return (winners & reported) / (winners & reported).sum()


@checked
def clip_updates(
    before: Stack, after: Stack, bound: Scalar | None, reported: Bool[Array, "m"]
) -> PyTree:
    """The models after updates whose norms are cut to the bound.

    Sun et al., "Can You Really Backdoor Federated Learning?", 2019, section 4,
    https://arxiv.org/abs/1911.07963.

    Args:
      before: models before the updates [M, ...].
      after: models after them [M, ...].
      bound: the largest Euclidean norm of an update; None: the median norm of the updates that
        count.
      reported: whose updates count for the median [M].

    Example:
      >>> after = jnp.array([[8.0], [1.0]])
      >>> clip_updates(jnp.zeros((2, 1)), after, 2.0, jnp.ones(2, bool)).tolist()
      [[2.0], [1.0]]
    """
    updates = jax.tree.map(jnp.subtract, after, before)
    # 0 for an update of nothing.
    inverse = inverse_norms(updates)
    norms = jnp.where(inverse > 0, 1 / jnp.where(inverse > 0, inverse, 1.0), 0.0)
    median_norm = median(norms, reported)
    factors = jnp.minimum(1.0, inverse * (median_norm if bound is None else bound))
    return jax.tree.map(
        lambda b, u: b + u * factors.reshape(-1, *[1] * (u.ndim - 1)), before, updates
    )


@checked
def foolsgold(cosines: Float[Array, "m m"], reported: Bool[Array, "m"]) -> Float[Array, "m"]:
    """How much of each update counts, from 1 to 0 where updates are more alike than all others.

    Fung, Yoon and Beschastnikh, "The Limitations of Federated Learning in Sybil Settings", RAID
    2020, Algorithm 1, https://arxiv.org/abs/1808.04866, with kappa = 1. As in the authors' code, no
    update counts as less alike than 0 to the one nearest to it.

    Where all updates are alike up to rounding, all count as nothing, for nobody differs.

    Args:
      cosines: of the updates [M, M]; the diagonal does not matter.
      reported: the others count as unlike anybody [M].

    Example:
      >>> cosines = jnp.array([[1.0, 0.1, 0.2], [0.1, 1.0, 0.9], [0.2, 0.9, 1.0]])
      >>> foolsgold(cosines, jnp.ones(3, bool)).round(2).tolist()
      [1.0, 0.0, 0.0]
    """
    pairs = reported[:, None] & reported[None] & ~jnp.eye(reported.size, dtype=bool)
    cosines = jnp.where(pairs, cosines, 0.0)
    nearest = cosines.max(axis=1, initial=0.0)
    # Pardoning: a client is less like one that is more like somebody else.
    larger = nearest[None] > nearest[:, None]
    ratio = nearest[:, None] / jnp.where(nearest == 0, 1.0, nearest)[None]
    pardoned = jnp.where(larger, cosines * ratio, cosines)
    unlike = jnp.clip(1 - jnp.where(pairs, pardoned, -1.0).max(axis=1, initial=-1.0), 0.0, 1.0)
    unlike = jnp.where(unlike > ROUNDING, unlike, 0.0)
    largest = jnp.max(unlike, where=reported, initial=0.0)
    factors = jnp.minimum(unlike / jnp.where(largest > 0, largest, 1.0), 0.99)
    # The logit, which is -inf at 0 and has no derivative there.
    positive = factors > 0
    inside = jnp.where(positive, factors, 0.5)
    logits = jnp.log(inside) - jnp.log1p(-inside)
    return jnp.where(positive, jnp.clip(logits + 0.5, 0.0, 1.0), 0.0)
