"""pFedGraph's quadratic program with parameters that are learned, and a derivative that stays.

Not from a paper. Rows of the program of Ye et al., ICML 2023,
https://proceedings.mlr.press/v202/ye23b.html, see `kernels.simplex`, whose balance, prior and
similarity have a few parameters. At the start these are pFedGraph's own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.trainable import trainable
from jaxfl.core.types import Scalar
from jaxfl.kernels.mixing import size_weights
from jaxfl.kernels.projection import project_rows
from jaxfl.kernels.similarity import LARGEST_SQUARE, cosine, similarities

# Bounds of log_alpha where it is used: alpha is not more than 150 times as large or as small.
WIDEST = 5.0
# The most steps of Newton's method for the threshold of the smoothed projection.
NEWTON = 30


class GraphParameters(NamedTuple):
    """What is learned of a graph; none of it depends on who takes part.

    Example:
      >>> GraphParameters(*map(jnp.float32, (0, 0, 1)), jnp.ones(3)).prior.item()
      1.0
    """

    # logarithm of the factor of alpha []
    log_alpha: Float[Array, ""]
    # what is added to the similarity of a client with itself []
    own: Float[Array, ""]
    # power q of the sizes n in the prior, p_j in proportion to n_j^q []: 1 by size, 0 equal
    prior: Float[Array, ""]
    # weight of each similarity [F]
    similarity: Float[Array, "f"]


def initial_parameters(layers: int) -> GraphParameters:
    """The parameters with which the rows are pFedGraph's.

    Args:
      layers: L, the number of layers of a model; there are F = 1 + 2 L similarities.

    Example:
      >>> initial_parameters(2).similarity.tolist()
      [1.0, 0.0, 0.0, 0.0, 0.0]
    """
    similarity = jnp.zeros(1 + 2 * layers).at[0].set(1.0)
    return GraphParameters(jnp.zeros(()), jnp.zeros(()), jnp.ones(()), similarity)


@checked
def layer_similarities(
    whole: Stack, latest: Stack, snap: Scalar | None = None
) -> Float[Array, "f m m"]:
    """The similarities that a learned graph weighs: of whole models and of each layer.

    Args:
      whole: the clients' differences from the initial model [M, ...], with L leaves.
      latest: their differences from the models of this round's start [M, ...].
      snap: cosines of the whole differences above this number count as 1; None for never.

    Returns:
      [1 + 2 L, M, M]: the cosines of `whole`, which are pFedGraph's, then the cosines of each leaf
      of `whole` and of each leaf of `latest`, in the order of `jax.tree.leaves`.

    Example:
      >>> models = {"bias": jnp.eye(2), "kernel": jnp.ones((2, 1))}
      >>> layer_similarities(models, models)[:3, 0, 1].round(2).tolist()
      [0.5, 0.0, 1.0]
    """
    leaves = jax.tree.leaves((trainable(whole), trainable(latest)))
    return jnp.stack([similarities(whole, "cosine", snap), *map(cosine, leaves)])


@checked
def learned_rows(
    parameters: GraphParameters,
    measures: Float[Array, "f m m"],
    sizes: Int[Array, "m"],
    reported: Bool[Array, "m"] | None = None,
    alpha: Scalar | None = None,
    soft: Scalar = 1.0,
) -> Float[Array, "m m"]:
    """Rows of the graph: the minimum of a' |w - p|^2 - s'w on the simplex.

    Here a' = alpha exp(log_alpha), p_j is in proportion to n_j^prior, and s_ij is the weighted sum
    of the similarities, to which `own` is added where i = j.

    Args:
      parameters: what is learned.
      measures: the similarities of `layer_similarities` [F, M, M].
      sizes: n, numbers of examples [M].
      reported: whose models count [M]; the others have no weight. None: all.
      alpha: at the start, positive. None: .08 M, as in pFedGraph's code.
      soft: of the derivative, see `project_smoothly`, in units of 1 / M, as large as a weight is on
        average.

    Returns:
      Row-stochastic [M, M], with derivatives by the parameters.

    Example:
      >>> measures = jnp.eye(2)[None] * 9
      >>> three = GraphParameters(*map(jnp.float32, (0, 0, 1)), jnp.ones(1))
      >>> learned_rows(three, measures, jnp.array([5, 5])).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    M = sizes.size
    reported = jnp.ones(M, bool) if reported is None else reported
    balance = 0.08 * M if alpha is None else alpha
    balance = balance * jnp.exp(jnp.clip(parameters.log_alpha, -WIDEST, WIDEST))
    share = size_weights(sizes * reported)
    power = jnp.where(share > 0, jnp.where(share > 0, share, 1.0) ** parameters.prior, 0.0)
    prior = power / power.sum()
    similarity = jnp.tensordot(parameters.similarity, measures, axes=1, precision=Precision.HIGHEST)
    similarity = similarity + parameters.own * jnp.eye(M)
    # A shift of a row changes nothing, so the largest entry needs no derivative.
    largest = jnp.where(reported[None], similarity, -LARGEST_SQUARE).max(axis=1, keepdims=True)
    below = jnp.where(reported[None], similarity - lax.stop_gradient(largest), 0.0)
    scaled_up = jnp.maximum(below * (0.5 / balance), -LARGEST_SQUARE)
    target = jnp.where(reported[None], prior[None] + scaled_up, -LARGEST_SQUARE)
    return project_smoothly(target, soft / M)


@checked
def project_smoothly(rows: Float[Array, "r m"], width: Scalar) -> Float[Array, "r m"]:
    """The projection of rows onto the simplex, with the derivative of a smooth form of it.

    The projection is max(row - t, 0), with t so that the sum is 1. Where a row of the result is at
    a vertex, no small change of the entries moves it, and where a weight is 0 its entry has no
    derivative. Then nothing shows whether the edge should be there. The smooth form has h softplus
    in place of max, w_j = h log(1 + exp((v_j - t) / h)), and its derivative is
    k_j (dv_j - sum_l k_l dv_l / sum_l k_l) with k_j = 1 / (1 + exp(-(v_j - t) / h)). As h falls, it
    becomes that of the projection: k is 1 for the positive weights and 0 for the others.

    Args:
      rows: v [R, M].
      width: h, positive.

    Returns:
      Row-stochastic [R, M]: the exact projection.

    Example:
      >>> rows = jnp.array([[1.0, 0.5, -4.0]])
      >>> project_smoothly(rows, 0.1).tolist()
      [[0.75, 0.25, 0.0]]
      >>> jacobian = jax.jacobian(lambda v: project_smoothly(v, 0.1)[0])(rows)
      >>> [round(x, 2) for x in jacobian[0, 0].tolist()]
      [0.48, -0.48, -0.0]
    """
    return _projection(rows, width)


@jax.custom_jvp
def _projection(rows: Float[Array, "r m"], width: Scalar) -> Float[Array, "r m"]:
    return project_rows(rows)


@_projection.defjvp
def _smooth_derivative(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """The derivative at the threshold of the smooth form, by the rows; the width has none."""
    rows, width = primals
    weights = project_rows(rows)
    below = rows - rows.max(axis=1, keepdims=True)

    def newton(threshold: Array, below: Array, width: Scalar) -> Array:
        heights = (below - threshold) / width
        total = width * jax.nn.softplus(heights).sum(axis=1, keepdims=True)
        return threshold + (total - 1) / jax.nn.sigmoid(heights).sum(axis=1, keepdims=True)

    def step(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        threshold, _, number = carry
        return newton(threshold, *lax.stop_gradient((below, width))), threshold, number + 1

    def unsettled(carry: tuple[Array, ...]) -> Array:
        threshold, before, number = carry
        change = jnp.abs(threshold - before)
        return (change > 1e-6 * jnp.abs(threshold)).any() & (number < NEWTON)

    # The sum is convex and falls with the threshold. At the threshold of the projection it is above
    # 1, so Newton's method comes from one side.
    start = lax.stop_gradient(-weights.max(axis=1, keepdims=True))
    first = (start, start - 1, jnp.zeros((), int))
    threshold, *_ = lax.while_loop(unsettled, step, first)
    # A last step has the threshold's derivative, which the loop has not.
    threshold = newton(threshold, below, width)
    counts = jax.nn.sigmoid((below - threshold) / width)
    mean = jnp.sum(counts * tangents[0], axis=1, keepdims=True) / counts.sum(axis=1, keepdims=True)
    return weights, counts * (tangents[0] - mean)
