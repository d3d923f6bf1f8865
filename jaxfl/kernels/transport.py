"""Entropic optimal transport: how far clients' distributions are from each other."""

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from jaxfl.core import tree
from jaxfl.core.options import checked
from jaxfl.core.types import Scalar

# What a share of nothing counts as, so that its logarithm is finite.
TINY = 1e-30


@checked
def sinkhorn_plan(
    cost: Float[Array, "r k"],
    source: Float[Array, "r"],
    target: Float[Array, "k"],
    regularisation: Scalar,
    steps: int = 200,
) -> Float[Array, "r k"]:
    """The plan that carries one distribution into another one at the least cost less entropy.

    Cuturi, "Sinkhorn Distances: Lightspeed Computation of Optimal Transport", NeurIPS 2013,
    Algorithm 1, https://arxiv.org/abs/1306.0895, with logarithms in place of the scalings, so that
    small regularisations do not underflow.

    Finite for costs up to 1e4 times the regularisation.

    Args:
      cost: of carrying a unit from each place to each place [R, K].
      source: the distribution before [R]; sums to one.
      target: the distribution after [K]; sums to one.
      regularisation: the weight of the entropy, above 0; 1 / lambda of the paper.
      steps: how often rows and columns are fitted in turns.

    Returns:
      What goes from where to where [R, K]. Its columns sum to the target, and its rows nearly to
      the source.

    Example:
      >>> cost = jnp.array([[0.0, 1.0], [1.0, 0.0]])
      >>> half = jnp.array([0.5, 0.5])
      >>> sinkhorn_plan(cost, half, half, 0.1).round(2).tolist()
      [[0.5, 0.0], [0.0, 0.5]]
    """
    kernel = -tree.wide(cost) / regularisation
    rows = jnp.log(jnp.maximum(tree.wide(source), TINY))
    columns = jnp.log(jnp.maximum(tree.wide(target), TINY))

    def step(potential: Array, _: None) -> tuple[Array, None]:
        left = rows - logsumexp(kernel + potential[None], axis=1)
        return columns - logsumexp(kernel + left[:, None], axis=0), None

    first = jnp.zeros(columns.shape, jnp.result_type(kernel, rows, columns))
    potential, _ = lax.scan(step, first, None, length=steps)
    left = rows - logsumexp(kernel + potential[None], axis=1)
    right = columns - logsumexp(kernel + left[:, None], axis=0)
    return jnp.exp(kernel + left[:, None] + right[None])


@checked
def sinkhorn_distances(
    histograms: Float[Array, "m k"],
    cost: Float[Array, "k k"],
    regularisation: Scalar,
    steps: int = 200,
) -> Float[Array, "m m"]:
    """The cost of the plans between all pairs of distributions, such as those of clients' labels.

    Cuturi, NeurIPS 2013, (2), https://arxiv.org/abs/1306.0895: the cost of the regularised plan,
    without the entropy. A distribution is not at distance 0 from itself, unless the regularisation
    is small.

    Finite for costs up to 1e4 times the regularisation.

    Args:
      histograms: the distributions [M, K]; rows sum to one.
      cost: of carrying a unit from each place to each place [K, K].
      regularisation: see `sinkhorn_plan`, as for `steps`.
      steps: how often rows and columns are fitted in turns.

    Example:
      >>> labels = jnp.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]])
      >>> steps_apart = jnp.abs(jnp.arange(3.0)[:, None] - jnp.arange(3.0)[None])
      >>> sinkhorn_distances(labels, steps_apart, 0.05).round(2)[0].tolist()
      [0.0, 2.0, 0.5]
    """

    def between(source: Array, target: Array) -> Array:
        return jnp.sum(cost * sinkhorn_plan(cost, source, target, regularisation, steps))

    return jax.vmap(lambda one: jax.vmap(lambda other: between(one, other))(histograms))(histograms)
