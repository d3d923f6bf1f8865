"""Aggregation that withstands some malicious clients: medians, Krum, clipped updates."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from jaxfl.core import tree
from jaxfl.core.columns import order_statistics, over_rows
from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.trainable import of_statistics, trainable
from jaxfl.core.types import Scalar
from jaxfl.kernels.mixing import everybody_if_nobody, mix, possible_sizes
from jaxfl.kernels.similarity import inverse_norms, root, squared_differences

# Cosines of float32 models that differ by less than this are equal.
ROUNDING = 1e-5


@checked
def trimmed_mean(stacked: Stack, trim: Scalar, reported: Bool[Array, "m"] | None = None) -> PyTree:
    """The mean of each coordinate without its floor(trim R) smallest and largest values.

    Yin et al., "Byzantine-Robust Distributed Learning", ICML 2018, Definition 2,
    https://arxiv.org/abs/1803.01498. A `trim` of one half leaves the median. Where a model that
    counts has NaN, the result is NaN.

    Args:
      stacked: models [M, ...].
      trim: fraction of values to leave out at each end, at most .5.
      reported: whose models count [M], R of them; None, or nobody: all.

    Example:
      >>> x = jnp.array([[1.0], [2.0], [4.0], [90.0]])
      >>> trimmed_mean(x, 0.25).tolist()
      [3.0]
    """
    reported = everybody_if_nobody(jax.tree.leaves(stacked)[0].shape[0], reported)
    count = reported.sum()
    cut = jnp.minimum(jnp.floor(trim * count + 1e-4), (count - 1) // 2)
    ends = jnp.stack([cut, count - cut - 1]).astype(int)

    def leaf(x: Array) -> Array:
        # Values that do not count are behind all others.
        rows = jnp.where(reported.reshape(-1, *[1] * (x.ndim - 1)), x, jnp.inf)
        low, high = order_statistics(jax.lax.stop_gradient(rows), ends)
        none = jnp.zeros(low.shape, int)

        def count_values(counts: list[Array], row: Array) -> list[Array]:
            tests = (row < low, row == low, row < high, row == high, jnp.isnan(row))
            return [number + test for number, test in zip(counts, tests, strict=True)]

        below_low, at_low, below_high, at_high, nan = over_rows(count_values, [none] * 5, rows)
        # Of values that equal an end some may be left out, so each counts in part.
        part_low = (jnp.minimum(below_low + at_low, count - cut) - cut) / at_low
        part_high = (count - cut - jnp.maximum(below_high, cut)) / at_high

        def add(total: Array, row: Array) -> Array:
            between = jnp.where((low < row) & (row < high), row, 0.0)
            high_part = jnp.where(row == high, row * part_high, 0.0)
            return total + between + jnp.where(row == low, row * part_low, high_part)

        mean = over_rows(add, jnp.zeros(low.shape), rows) / (count - 2 * cut)
        # Of equal values to the last digit, with the gradient of the mean
        equal = (low == high) & jnp.isfinite(low)
        mean = jnp.where(equal, low + (mean - jax.lax.stop_gradient(mean)), mean)
        return jnp.where(nan > 0, jnp.nan, mean).astype(rows.dtype)

    return jax.tree.map(leaf, stacked)


@checked
def median(stacked: Stack, reported: Bool[Array, "m"] | None = None) -> PyTree:
    """The median of each coordinate; of an even number of values, the mean of the middle two.

    Yin et al., ICML 2018, Definition 1, https://arxiv.org/abs/1803.01498.

    Args:
      stacked: models [M, ...].
      reported: whose models count [M]; None, or nobody: all.

    Example:
      >>> median(jnp.array([[1.0], [2.0], [90.0]])).tolist()
      [2.0]
    """
    return trimmed_mean(stacked, 0.5, reported)


@checked
def krum(
    stacked: Stack,
    ids: Int[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
    byzantine: int | None = None,
    chosen: int | None = None,
) -> Float[Array, "m"]:
    """Equal weights of the models nearest to their neighbours, 0 of the others [M].

    Blanchard et al., NeurIPS 2017, section 4, https://arxiv.org/abs/1703.02757. The score of a
    model is the sum of its squared distances to the R - f - 2 models nearest to it; the models with
    the smallest scores are chosen.

    Args:
      stacked: models [M, ...].
      ids: of the clients [M]; of scores that are equal up to rounding the smaller id goes first.
        None: their places.
      reported: whose models count [M], R of them; None, or nobody: all.
      byzantine: f, how many clients may be malicious. None: the most that the rule allows,
        floor((R - 3) / 2).
      chosen: m, how many models to choose. None: R - f.

    Example:
      >>> models = jnp.array([[0.0], [1.0], [1.5], [90.0]])
      >>> krum(models, byzantine=1, chosen=2).tolist()
      [0.0, 0.5, 0.5, 0.0]
    """
    distances = squared_differences(stacked)
    reported = everybody_if_nobody(len(distances), reported)
    places = jnp.arange(len(distances)) if ids is None else ids
    count = reported.sum()
    most = jnp.maximum((count - 3) // 2, 0)
    malicious = most if byzantine is None else jnp.minimum(byzantine, count - 1)
    score = _krum_scores(distances, reported, malicious)
    number = count - malicious if chosen is None else jnp.minimum(chosen, count)
    winners = ranks(score, places) < number
    return (winners & reported) / (winners & reported).sum()


def _krum_scores(
    distances: Float[Array, "m m"], reported: Bool[Array, "m"], malicious: Array | int
) -> Float[Array, "m"]:
    """The sum over the R - f - 2 nearest other models; infinite for models that do not count."""
    count = reported.sum()
    others = ~jnp.eye(reported.size, dtype=bool) & reported[None]
    nearest = jnp.sort(jnp.where(others, distances, jnp.inf), axis=1)
    neighbours = jnp.arange(reported.size) < jnp.clip(count - malicious - 2, 1, count - 1)
    score = jnp.sum(jnp.where(neighbours[None], nearest, 0.0), axis=1)
    return jnp.where(reported, score, jnp.inf)


@checked
def ranks(score: Float[Array, "m"], ids: Int[Array, "m"] | None = None) -> Int[Array, "m"]:
    """How many models go before each [M]: those with a smaller score.

    Args:
      score: [M].
      ids: [M]; of scores that are equal up to rounding the smaller id goes first. None: their
        places.

    Example:
      >>> ranks(jnp.array([0.5, 0.1, 0.5]), jnp.array([7, 5, 3])).tolist()
      [2, 0, 1]
    """
    ids = jnp.arange(len(score)) if ids is None else ids
    # [i, j]: j goes before i.
    ties = jnp.isclose(score[:, None], score[None], rtol=1e-5, atol=0)
    before = jnp.where(ties, ids[None] < ids[:, None], score[None] < score[:, None])
    return before.sum(axis=1)


@checked
def geometric_median(
    stacked: Stack,
    weights: Float[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
    *,
    steps: int = 20,
    smoothing: Scalar = 1e-6,
) -> PyTree:
    """The model with the least mean distance to all models, by Weiszfeld's algorithm.

    Pillutla, Kakade and Harchaoui, "Robust Aggregation for Federated Learning", IEEE Transactions
    on Signal Processing, 2022, Algorithm 2 (RFA), https://arxiv.org/abs/1912.13445. A step is a
    mean in which a model counts by one over its distance.

    Finite for entries up to 1e15.

    Args:
      stacked: models [M, ...].
      weights: of the models, such as their numbers of examples [M]; None: all 1.
      reported: whose models count [M]; None, or nobody: all.
      steps: how many; the paper takes 3.
      smoothing: the smallest distance that counts, so that a model on the median does not count
        infinitely.

    Returns:
      One model [...].

    Example:
      >>> geometric_median(jnp.array([[0.0], [2.0], [90.0]]), steps=100).round(2).tolist()
      [2.0]
    """
    return mix(
        geometric_median_weights(stacked, weights, reported, steps=steps, smoothing=smoothing),
        stacked,
    )


@checked
def geometric_median_weights(
    stacked: Stack,
    weights: Float[Array, "m"] | None = None,
    reported: Bool[Array, "m"] | None = None,
    *,
    steps: int = 20,
    smoothing: Scalar = 1e-6,
) -> Float[Array, "m"]:
    """By which share each model counts in the `geometric_median` [M]; they sum to one.

    Finite for entries up to 1e15.

    Args:
      stacked: models [M, ...].
      weights: see `geometric_median`, as for all others.
      reported: whose models count.
      steps: how many.
      smoothing: the smallest distance that counts.

    Example:
      >>> models = jnp.array([[0.0], [0.0], [90.0]])
      >>> geometric_median_weights(models).round(2).tolist()
      [0.5, 0.5, 0.0]
    """
    counts = everybody_if_nobody(jax.tree.leaves(stacked)[0].shape[0], reported).astype(float)
    by_model = counts if weights is None else counts * possible_sizes(weights)
    by_model = jnp.where(by_model.sum() > 0, by_model, counts)

    def step(shares: Float[Array, "m"], _: None) -> tuple[Float[Array, "m"], None]:
        gaps = tree.subtract(stacked, mix(shares, stacked))
        squares = sum(
            jnp.sum(jnp.square(tree.wide(x).reshape(x.shape[0], -1)), axis=1)
            for x in jax.tree.leaves(trainable(gaps))
        )
        distances = jnp.maximum(root(jnp.asarray(squares)), smoothing)
        # Relative to the nearest, so that the shares do not vanish.
        nearness = by_model * distances.min() / distances
        return (nearness / nearness.sum()).astype(shares.dtype), None

    first = by_model / by_model.sum()
    return jax.lax.scan(step, first, None, length=steps)[0]


@checked
def clip_updates(
    before: Stack,
    after: Stack,
    bound: Scalar | None = None,
    reported: Bool[Array, "m"] | None = None,
) -> PyTree:
    """The models after updates whose norms are cut to the bound.

    Sun et al., "Can You Really Backdoor Federated Learning?", 2019, section 4,
    https://arxiv.org/abs/1911.07963.

    Args:
      before: models before the updates [M, ...].
      after: models after them [M, ...].
      bound: the largest Euclidean norm of an update's parameters; None: the median norm of the
        updates that count. The changes of running statistics of BatchNorm, which are no
        parameters, are cut to the median of their own norms.
      reported: whose updates count for the median [M]; None: all.

    Example:
      >>> after = jnp.array([[8.0], [1.0]])
      >>> clip_updates(jnp.zeros((2, 1)), after, 2.0).tolist()
      [[2.0], [1.0]]
    """
    updates = jax.tree.map(jnp.subtract, after, before)
    changes, parameters = tree.split(updates, of_statistics)
    clipped = tree.join(_cut(changes, None, reported), _cut(parameters, bound, reported))
    return tree.cast_like(jax.tree.map(jnp.add, before, clipped), after)


def _cut(updates: Stack, bound: Scalar | None, reported: Bool[Array, "m"] | None) -> PyTree:
    """The updates whose norms are cut to the bound, or to the median of those that count."""
    leaves, structure = jax.tree.flatten(updates)
    if not leaves:
        return updates
    # 0 for an update of nothing.
    inverse = inverse_norms(tuple(leaves))
    norms = jnp.where(inverse > 0, 1 / jnp.where(inverse > 0, inverse, 1.0), 0.0)
    median_norm = median(norms, reported)
    factors = jnp.minimum(1.0, inverse * (median_norm if bound is None else bound))
    return structure.unflatten(tree.scale(leaves, factors))


@checked
def foolsgold(
    cosines: Float[Array, "m m"], reported: Bool[Array, "m"] | None = None
) -> Float[Array, "m"]:
    """How much of each update counts, from 1 to 0 where updates are more alike than all others.

    Fung, Yoon and Beschastnikh, "The Limitations of Federated Learning in Sybil Settings", RAID
    2020, Algorithm 1, https://arxiv.org/abs/1808.04866, with kappa = 1. As in the authors' code, no
    update counts as less alike than 0 to the one nearest to it.

    Where all updates are alike up to rounding, all count as nothing, for nobody differs.

    Args:
      cosines: of the updates [M, M]; the diagonal does not matter.
      reported: the others count as unlike anybody [M]; None: all count.

    Example:
      >>> cosines = jnp.array([[1.0, 0.1, 0.2], [0.1, 1.0, 0.9], [0.2, 0.9, 1.0]])
      >>> foolsgold(cosines).round(2).tolist()
      [1.0, 0.0, 0.0]
    """
    if reported is None:
        reported = jnp.ones(len(cosines), bool)
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
