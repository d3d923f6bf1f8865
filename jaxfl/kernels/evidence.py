"""A graph by which clients' examples differ, and choices by few examples; nothing is to be tuned.

The weights compare kernel means of the clients' examples. For clients that choose a model by few
examples there is the shrinkage by which they learn from each other's choices, and the test whether
their targets can be predicted at all.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxfl.core.options import checked
from jaxfl.kernels.mixing import possible_sizes
from jaxfl.kernels.similarity import squared_differences
from jaxfl.kernels.simplex import fill_rows

# The smallest number that counts as a variance.
LEAST = 1e-12


@checked
def embedding_rows(
    means: Float[Array, "m d"],
    variances: Float[Array, "m"],
    reported: Bool[Array, "m"] | None = None,
) -> Float[Array, "m m"]:
    """Rows by which a mixture of the clients' samples is nearest to a client's own distribution.

    An example z has an embedding phi(z). Client i has the mean m_i of those of its n_i examples,
    with expectation mu_i, and v_i = tr(S_i) / n_i is the expected squared distance of the two. The
    mixture sum_j w_j m_j has the expected squared distance |sum_j w_j (mu_j - mu_i)|^2 +
    sum_j w_j^2 v_j from mu_i, at most sum_j w_j b_ij + w_j^2 v_j with b_ij = |mu_i - mu_j|^2. An
    unbiased estimate of b_ij is |m_i - m_j|^2 - v_i - v_j; where it is negative, 0 stands for it.
    The rows are the minimum on the simplex, a water filling (`simplex.fill_rows`). Clients of one
    distribution weigh nearly in proportion to their n; a client that is like no other one keeps its
    own; with few examples it mixes with those that differ by less than its own mean errs.

    Fermanian, Le Bars and Bellet, 2026, https://arxiv.org/abs/2603.02233, after the multi-task
    averages of Marienwald, Fermanian and Blanchard, 2021, https://arxiv.org/abs/2011.06794.

    Differs: of the papers the abstracts were at hand. The estimate of the risk and its minimum are
    derived here, as above.

    Args:
      means: m [M, D].
      variances: v [M].
      reported: whose means count [M]. None: everybody's.

    Returns:
      Row-stochastic [M, M]. A client that did not report, or tells numbers that cannot be, keeps
      its own.

    Example:
      >>> means = jnp.array([[0.0, 0.0], [0.1, 0.0], [3.0, 4.0]])
      >>> equal = jnp.full(3, 0.01)
      >>> embedding_rows(means, equal).tolist()
      [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    M = variances.size
    counted = jnp.isfinite(means).all(axis=1) & jnp.isfinite(variances) & (variances >= 0)
    if reported is not None:
        counted = counted & reported
    # What is not known has no part in any number, not even in its last bits.
    means = jnp.where(counted[:, None], means, 0.0)
    variances = jnp.where(counted, variances, 1.0)
    bias = squared_differences(means) - variances[:, None] - variances[None]
    bias = jnp.maximum(bias, 0.0)
    bias = jnp.where(counted[:, None] & counted[None], bias, jnp.inf)
    bias = jnp.where(jnp.eye(M, dtype=bool), 0.0, bias)
    return fill_rows(bias, jnp.maximum(variances, LEAST))


class ShrunkMeans(NamedTuple):
    """What is expected of the candidates of each client."""

    mean: Float[Array, "m k"]
    # of the true mean about this one
    variance: Float[Array, "m k"]
    # of a client of which nothing is known
    common: Float[Array, "k"]


@checked
def shrunk_means(
    means: Float[Array, "m k"],
    squares: Float[Array, "m k"],
    counts: Float[Array, "m"],
) -> ShrunkMeans:
    """Each client's expected scores of K candidates, given its own few examples and all others'.

    The true mean of client i is a draw with mean mu and variance t, and the mean of its n_i
    examples has the variance s / n_i. The expectation, given all of them, is (t m_i + s / n_i mu) /
    (t + s / n_i): where clients do not differ (t = 0) all have the common mean; where they differ
    much, or have many examples, each its own. Its variance, with mu, s and t known, is
    t s / n_i / (t + s / n_i). s is pooled over the clients. t is the estimate of
    DerSimonian and Laird, 1986, https://doi.org/10.1016/0197-2456(86)90046-2, from the squared
    distances of the means, Q = sum_i n_i / s (m_i - m)^2, whose expectation is M - 1 for t = 0.

    Finite for scores up to 1e15. All is relative to the largest score. Where no client has two
    examples, nothing tells s from t, and all have the common mean.

    Args:
      means: m, of the scores of each client's examples [M, K].
      squares: the mean squares of these scores [M, K].
      counts: n [M]. A client without examples, or with scores that are not finite, has the common
        mean.

    Returns:
      `ShrunkMeans`; 0 where nobody has examples.

    Example:
      >>> means = jnp.array([[0.0], [1.0]])
      >>> shrunk_means(means, means**2 + 10.0, jnp.full(2, 5.0)).mean.tolist()  # chance explains it
      [[0.5], [0.5]]
      >>> shrunk_means(means, means**2 + 1e-9, jnp.full(2, 5.0)).mean.round(3).tolist()
      [[0.0], [1.0]]
    """
    sound = jnp.isfinite(means + squares).all(axis=1)
    n = jnp.where(sound, possible_sizes(counts), 0.0)[:, None]
    has = n > 0
    means = jnp.where(has, means, 0.0)
    squares = jnp.where(has, squares, 0.0)
    largest = jnp.maximum(jnp.abs(means).max(), jnp.sqrt(jnp.maximum(squares, 0.0)).max())
    unit = jnp.where(largest > 0, largest, 1.0)
    means = means / unit
    squares = squares / unit / unit
    spread = jnp.maximum(squares - means**2, 0.0)
    freedom = jnp.maximum(jnp.sum(jnp.maximum(n - 1, 0)), 1)
    within = jnp.maximum(jnp.sum(n * spread, axis=0, keepdims=True) / freedom, LEAST)
    # The estimate of t by its moments.
    total = jnp.maximum(n.sum(), 1)
    common = jnp.sum(n * means, axis=0, keepdims=True) / total
    distance = jnp.sum(n * (means - common) ** 2, axis=0, keepdims=True) / within
    excess = distance - (jnp.sum(has) - 1)
    between = excess * within / jnp.maximum(total - jnp.sum(n**2) / total, LEAST)
    between = jnp.where(n.max() > 1, jnp.maximum(between, 0.0), 0.0)
    # The common mean, in which clients with many examples count hardly more if t is large.
    weight = n / (between * n + within)
    whole = jnp.sum(weight, axis=0, keepdims=True)
    common = jnp.sum(weight * means, axis=0, keepdims=True) / jnp.where(whole > 0, whole, 1.0)
    total = between * n + within
    return ShrunkMeans(
        unit * ((between * n * means + within * common) / total),
        unit**2 * (between * within / total),
        unit * common[0],
    )


@checked
def predictable(
    scores: Float[Array, "m 2"],
    chance: Float[Array, "m 2"],
    counts: Float[Array, "m"],
) -> Bool[Array, "m"]:
    """Which clients have targets that a model predicts, as far as their examples can tell.

    Client i scores b_i on its n_i examples, and p_i with the targets of other examples, which is
    what inputs that say nothing would give. Its model is better than chance if b_i - p_i is at
    least 3 sqrt(2 v / (n_i - 1)), with v the variance of single scores by another target. b is the
    mean of b_i over the examples of the clients whose models are, and s the variance of single
    scores there. A client has no predictable targets where its model is not, and far below the
    others': b - b_i > 3 sqrt((s + v) / (n_i - 1)). So who has one label, which chance knows too, is
    not accused, and nobody by one example. For scores up to 1e15.

    Args:
      scores: the mean of each client's scores, and the mean of their squares [M, 2].
      chance: the same with targets of other examples [M, 2].
      counts: n [M].

    Returns:
      [M]; True for a client without examples, or with scores that are not finite.

    Example:
      >>> right = jnp.array([[0.9, 0.9], [0.8, 0.8], [0.1, 0.1]])
      >>> predictable(right, jnp.full((3, 2), 0.1), jnp.full(3, 20.0)).tolist()
      [True, True, False]
      >>> predictable(right, jnp.full((3, 2), 0.1), jnp.full(3, 2.0)).tolist()
      [True, True, True]
    """
    sound = jnp.isfinite(scores + chance).all(axis=1)
    n = jnp.where(sound, possible_sizes(counts), 0.0)
    scores = jnp.where((n > 0)[:, None], scores, 0.0)
    chance = jnp.where((n > 0)[:, None], chance, 0.0)
    unit = jnp.sqrt(jnp.maximum(scores[:, 1], chance[:, 1]).max())
    unit = jnp.where(unit > 0, unit, 1.0)
    scale = jnp.stack([unit, unit**2])[None]
    scores = scores / scale
    chance = chance / scale

    def pooled(moments: Float[Array, "m 2"], of: Bool[Array, "m"]) -> tuple[Array, Array]:
        """Mean and variance of the single scores of some clients."""
        share = n * of / jnp.maximum(jnp.sum(n * of), 1)
        mean, square = jnp.sum(share[:, None] * moments, axis=0)
        return mean, jnp.maximum(square - mean**2, 0.0)

    # One example has no other one's target.
    size = jnp.maximum(n - 1, LEAST)
    _, v = pooled(chance, n > 0)
    better = scores[:, 0] - chance[:, 0] >= 3 * jnp.sqrt(2 * v / size)
    mean, s = pooled(scores, better)
    far_below = mean - scores[:, 0] > 3 * jnp.sqrt((s + v) / size)
    far_below = far_below & better.any()
    return better | ~far_below | (n == 0)
