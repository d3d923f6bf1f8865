"""Attacks of malicious clients that know all models: `(before, after, malicious) -> sent`.

Each is a function of a whole cohort: models before and after local training [M, ...] and which
clients are malicious [M] become the models that clients send if they are malicious [M, ...]. An
attack that has a strength takes it as `scale`.

An update is the difference after - before. A benign update counts if it is finite and has no entry
beyond 1e15. If no client of the cohort is benign, malicious clients send the models from before.
"""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float

from jaxfl.core import tree
from jaxfl.core.columns import column_sum
from jaxfl.core.trainable import of_statistics
from jaxfl.core.types import Params, Scalar
from jaxfl.kernels.similarity import root, scaled, squared_distances


def little(
    before: Params, after: Params, malicious: Bool[Array, "m"], scale: Scalar | None = None
) -> Params:
    """A little is enough: all send the mean of the malicious models less z standard deviations.

    Baruch et al., NeurIPS 2019, Algorithm 3, https://arxiv.org/abs/1902.06156. The default z is the
    largest with which a majority, the malicious clients included, still lies further out: the
    quantile of the normal distribution at (benign - s) / benign, where s = floor(M / 2 + 1) -
    malicious is how many benign clients the majority needs. `scale` is another z.

    Example:
      >>> after = jnp.array([[0.0], [2.0], [4.0], [90.0]])
      >>> malicious = jnp.array([True, True, True, False])  # mean 2, deviation 1.633
      >>> round(little(jnp.zeros((4, 1)), after, malicious, scale=1.0)[0].item(), 3)
      0.367
    """
    clients = malicious.size
    count = malicious.sum()
    # The quantile z
    benign = jnp.maximum(clients - count, 1)
    fraction = (benign - jnp.maximum(clients // 2 + 1 - count, 0)) / benign
    quantile = jax.scipy.special.ndtri(jnp.clip(fraction, 0.5, 0.999))
    z = quantile if scale is None else scale

    def leaf(x: Array) -> Array:
        mask = malicious.reshape(-1, *[1] * (x.ndim - 1))
        divisor = jnp.maximum(count, 1)
        mean = column_sum(jnp.where(mask, x, 0.0)) / divisor
        variance = column_sum(jnp.where(mask, (x - mean[None]) ** 2, 0.0)) / divisor
        return jnp.broadcast_to((mean - z * root(variance))[None], x.shape)

    return jax.tree.map(leaf, after)


def replacement(
    before: Params, after: Params, malicious: Bool[Array, "m"], scale: Scalar | None = None
) -> Params:
    """Model replacement: updates trained on flipped labels, times M / number of malicious clients.

    Bagdasaryan et al., AISTATS 2020, equation (3), https://arxiv.org/abs/1807.00459. `scale` is
    another factor.

    Example:
      >>> after = jnp.array([[1.0], [9.0], [9.0]])
      >>> replacement(jnp.zeros((3, 1)), after, jnp.array([True, False, False]))[0].tolist()
      [3.0]
    """
    factor = malicious.size / jnp.maximum(malicious.sum(), 1) if scale is None else scale
    return jax.tree.map(lambda b, a: b + factor * (a - b), before, after)


def collude(
    before: Params, after: Params, malicious: Bool[Array, "m"], scale: Scalar = 1.0
) -> Params:
    """Copies of one direction: all send the mean of their updates trained on flipped labels.

    `scale` is a factor on that mean. The copies are more similar to each other than any two benign
    updates.

    Example:
      >>> after = jnp.array([[1.0], [3.0], [90.0]])
      >>> collude(jnp.zeros((3, 1)), after, jnp.array([True, True, False])).tolist()
      [[2.0], [2.0], [2.0]]
    """
    updates, mask = _updates(before, after, malicious)
    return _after(before, scale * _mean(updates, mask))


def boost(
    before: Params, after: Params, malicious: Bool[Array, "m"], scale: Scalar = 10.0
) -> Params:
    """The benign direction, too far: all send `scale` times the mean of the benign updates.

    A similarity of directions alone cannot tell these updates from benign ones.

    Example:
      >>> after = jnp.array([[90.0], [1.0], [3.0]])
      >>> boost(jnp.zeros((3, 1)), after, jnp.array([True, False, False]))[0].tolist()
      [20.0]
    """
    updates, mask = _updates(before, after, ~malicious)
    return _after(before, scale * _mean(updates, mask))


def mimic(
    before: Params, after: Params, malicious: Bool[Array, "m"], scale: Scalar = 1.0
) -> Params:
    """Mimic: all send the update of one benign client, so that it counts too often.

    Karimireddy et al., ICLR 2022, section 3, https://arxiv.org/abs/2006.09365. The
    victim is the benign client whose update has the largest component, of either sign, along the
    direction z in which the benign updates vary most. `scale` is a factor on the copied update.

    Differs: z and the victim are found again in each round from its updates. In the paper they are
    found once, from the updates of the first rounds.

    Example:
      >>> after = jnp.array([[90.0], [1.0], [5.0]])
      >>> mimic(jnp.zeros((3, 1)), after, jnp.array([True, False, False]))[0].tolist()
      [5.0]
    """
    updates, mask = _updates(before, after, ~malicious)
    measured = updates * _of_parameters(before)[None]
    centred = jnp.where(mask[:, None], measured - _mean(measured, mask)[None], 0.0)
    # z is the first right singular vector; the Gram matrix has the left one and needs less memory.
    products = jnp.matmul(centred, centred.T, precision=Precision.HIGHEST)
    vector = jnp.linalg.eigh(products)[1][:, -1]
    component = jnp.abs(measured @ (vector @ centred))
    victim = jnp.argmax(jnp.where(mask, component, -1.0))
    return _after(before, scale * updates[victim])


def ipm(before: Params, after: Params, malicious: Bool[Array, "m"], scale: Scalar = 1.0) -> Params:
    """Inner-product manipulation: all send the mean of the benign updates, times -epsilon.

    Xie et al., "Fall of Empires", UAI 2019, https://arxiv.org/abs/1903.03936. `scale` is
    epsilon.

    Example:
      >>> after = jnp.array([[90.0], [1.0], [3.0]])
      >>> ipm(jnp.zeros((3, 1)), after, jnp.array([True, False, False]), scale=0.5)[0].tolist()
      [-1.0]
    """
    updates, mask = _updates(before, after, ~malicious)
    return _after(before, -scale * _mean(updates, mask))


def min_max(before: Params, after: Params, malicious: Bool[Array, "m"]) -> Params:
    """Min-max: as far from the mean of the benign updates as the benign ones are from each other.

    Shejwalkar and Houmansadr, NDSS 2021, https://doi.org/10.14722/ndss.2021.24498.
    All send mean - gamma deviation, where the deviation is the standard deviation of each
    coordinate of the benign updates. gamma is the largest number for which the largest distance to
    a benign update is at most the largest distance of two benign updates.

    Differs: gamma is exact, where the paper searches for it: the squared distance to each benign
    update is a quadratic function of gamma.

    Example:
      >>> after = jnp.array([[90.0], [1.0], [3.0]])
      >>> min_max(jnp.zeros((3, 1)), after, jnp.array([True, False, False]))[0].tolist()
      [1.0]
    """
    updates, mask, unit = _in_unit(*_updates(before, after, ~malicious))
    parameters = _of_parameters(before)
    mean, deviation, bounds = _spread(updates, mask, parameters)
    measured = deviation * parameters
    gap = (mean[None] - updates) * parameters[None]
    slope = gap @ measured
    # |gap - gamma deviation|^2 = a gamma^2 - 2 slope gamma + |gap|^2 reaches the bound at the
    # larger root of the quadratic function.
    a = measured @ measured
    room = jnp.maximum(bounds.max() - jnp.sum(gap**2, axis=1), 0.0)
    roots = (slope + root(slope**2 + a * room)) / jnp.where(a > 0, a, 1.0)
    gamma = jnp.min(jnp.where(mask, roots, jnp.inf))
    return _after(before, unit * (mean - jnp.where(a > 0, gamma, 0.0) * deviation))


def min_sum(before: Params, after: Params, malicious: Bool[Array, "m"]) -> Params:
    """Min-sum: as `min_max`, by the sum of the squared distances to all benign updates.

    Shejwalkar and Houmansadr, NDSS 2021, https://doi.org/10.14722/ndss.2021.24498.
    That sum is at most the largest sum of squared distances of one benign update to the others.

    Differs: gamma is exact, as in `min_max`.

    Example:
      >>> after = jnp.array([[90.0], [1.0], [3.0]])
      >>> min_sum(jnp.zeros((3, 1)), after, jnp.array([True, False, False]))[0].tolist()
      [1.0]
    """
    updates, mask, unit = _in_unit(*_updates(before, after, ~malicious))
    parameters = _of_parameters(before)
    mean, deviation, bounds = _spread(updates, mask, parameters)
    measured = deviation * parameters
    gaps = (updates - mean[None]) * parameters[None]
    # The gaps to the mean sum to zero, so the sum of the squared distances has no linear term.
    around_mean = jnp.sum(jnp.where(mask[:, None], gaps**2, 0.0))
    room = jnp.maximum(bounds.sum(axis=1).max() - around_mean, 0.0)
    a = mask.sum() * (measured @ measured)
    gamma = root(room / jnp.where(a > 0, a, 1.0))
    return _after(before, unit * (mean - jnp.where(a > 0, gamma, 0.0) * deviation))


def _updates(
    before: Params, after: Params, clients: Bool[Array, "m"]
) -> tuple[Float[Array, "m d"], Bool[Array, "m"]]:
    """The updates of these clients, 0 for the others, and which of them count: finite ones."""
    updates = tree.ravel(after) - tree.ravel(before)
    # The server leaves out what is larger, too.
    mask = clients & tree.finite_squares(updates, clients.size)
    return jnp.where(mask[:, None], updates, 0.0), mask


def _in_unit(
    updates: Float[Array, "m d"], mask: Bool[Array, "m"]
) -> tuple[Float[Array, "m d"], Bool[Array, "m"], Float[Array, ""]]:
    """The updates in a unit in which their fourth powers are finite, a power of two, and the unit.

    No digit is lost.
    """
    rescaled, power = scaled(updates[None])
    return rescaled[0], mask, power[0]


def _mean(updates: Float[Array, "m d"], mask: Bool[Array, "m"]) -> Float[Array, "d"]:
    """The mean of the updates that count; the others are 0."""
    return column_sum(updates) / jnp.maximum(mask.sum(), 1)


def _of_parameters(models: Params) -> Float[Array, "d"]:
    """1 for each parameter of a model, by which models are compared, and 0 for each statistic."""
    one = jax.tree.map(lambda x: jnp.ones_like(x[:1], float), models)
    return tree.ravel(tree.combine(of_statistics, jax.tree.map(jnp.zeros_like, one), one))[0]


def _spread(
    updates: Float[Array, "m d"], mask: Bool[Array, "m"], parameters: Float[Array, "d"]
) -> tuple[Float[Array, "d"], Float[Array, "d"], Float[Array, "m m"]]:
    """The mean and the standard deviation of the updates that count, and their squared distances.

    A distance is that of the parameters, and to an update that does not count it is 0.
    """
    mean = _mean(updates, mask)
    centred = jnp.where(mask[:, None], updates - mean[None], 0.0)
    deviation = root(column_sum(centred**2) / jnp.maximum(mask.sum(), 1))
    both = mask[:, None] & mask[None]
    return mean, deviation, jnp.where(both, squared_distances(centred * parameters[None]), 0.0)


def _after(before: Params, update: Float[Array, "d"]) -> Params:
    """The models after one update of all of them."""
    one = jax.tree.map(lambda x: x[0], before)
    step = tree.unravel(update[None], one)
    return jax.tree.map(lambda b, s: b + s.astype(b.dtype), before, step)


TOGETHER = (little, replacement, collude, boost, mimic, ipm, min_max, min_sum)
