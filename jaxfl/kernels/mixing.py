"""Aggregation as a matrix: row-stochastic weights [receiver, sender] applied to stacked models."""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Key, PyTree, Shaped

from jaxfl.core import target
from jaxfl.core.edges import Edges, SparseRows
from jaxfl.core.errors import InputError, check
from jaxfl.core.options import checked
from jaxfl.core.over_clients import on_every_device
from jaxfl.core.shapes import Stack
from jaxfl.core.types import Scalar
from jaxfl.kernels.sparse import mix_rows

LARGEST_SIZE = 1e15


@checked
def mix(weights: PyTree, stacked: Stack) -> PyTree:
    """Weighted sums of models: model r of the result is the sum over m of `weights[r, m]` model m.

    Args:
      weights: [R, M]; R receivers, M senders. A single row [M] makes a single model. Or one such
        matrix for each part of the model, as a pytree prefix of `stacked`: {"body": W, "head":
        jnp.eye(M)} mixes the bodies of models {"body": ..., "head": ...} and leaves each client its
        head. The prefix may go down to one matrix a leaf. In place of a matrix it may have
        `core.edges.SparseRows`, see `sparse.mix_rows`, or `core.edges.Edges`.
      stacked: models [M, ...].

    Returns:
      Models [R, ...] in the types of the given ones, summed in the wider of the types of weights
      and models, at full precision on every backend.

    Raises:
      InputError: the weights are not a prefix of the models, or have not a column for each.

    Example:
      >>> mix(jnp.array([[0.5, 0.5], [0.0, 1.0]]), jnp.array([[2.0], [4.0]])).tolist()
      [[3.0], [4.0]]
    """

    def mix_part(matrix: Array | SparseRows | Edges, part: PyTree) -> PyTree:
        if isinstance(matrix, Edges):
            return mix_part(matrix.rows, part)
        if isinstance(matrix, SparseRows):
            return mix_rows(matrix, part)

        def leaf(x: Array) -> Array:
            _check_columns(matrix, x)
            if matrix.shape == (len(x), len(x)) and target.platform() == "cpu":
                # A model for each client: each device makes those of its own.
                return on_every_device(_mixture, (x,))(matrix)
            return _mixture((x,), matrix)

        return jax.tree.map(leaf, part)

    try:
        return jax.tree.map(
            mix_part, weights, stacked, is_leaf=lambda x: isinstance(x, SparseRows | Edges)
        )
    except InputError:
        raise
    except ValueError as error:
        given, models = (str(jax.tree.structure(x)) for x in (weights, stacked))
        raise InputError(
            f"weights of mix, {given:.80}, are no prefix of the models, {models:.80}: expected one "
            "matrix [R, M], or a tree with one for each part of the models"
        ) from error


def _mixture(shared: tuple[Array], rows: Array) -> Array:
    (models,) = shared
    number_type = jnp.promote_types(rows.dtype, models.dtype)
    both = rows.astype(number_type), models.astype(number_type)
    return jnp.tensordot(*both, axes=1, precision=Precision.HIGHEST).astype(models.dtype)


def _check_columns(matrix: Array, x: Array) -> None:
    """Checks that the weights are a row or matrix with a column for each model."""
    shape = getattr(matrix, "shape", None)
    check(
        shape is not None and len(shape) in (1, 2) and shape[-1] == x.shape[0],
        f"weights of mix are {f'of shape {list(shape)}' if shape else f'{matrix!r:.40}'}: expected "
        f"[R, {x.shape[0]}] or [{x.shape[0]}], a column for each of the {x.shape[0]} models",
    )


@checked
def everybody_if_nobody(clients: int, reported: Bool[Array, "m"] | None = None) -> Bool[Array, "m"]:
    """Whose models count [M], so that there is always one.

    Args:
      clients: M.
      reported: who reported [M]; None: all.

    Example:
      >>> everybody_if_nobody(2, jnp.array([False, False])).tolist()
      [True, True]
    """
    if reported is None:
        return jnp.ones(clients, bool)
    return reported | ~reported.any()


@checked
def leave_out(
    weights: Float[Array, "r m"], reported: Bool[Array, "m"] | None = None
) -> Float[Array, "r m"]:
    """The weights without the senders that did not report, each row rescaled to its former sum.

    A row whose weights are all on senders that did not report stays as it is: it mixes the models
    that stand in their places.

    Args:
      weights: [R, M].
      reported: whether the model of each sender counts [M]; None: all do.

    Example:
      >>> leave_out(jnp.array([[0.25, 0.5, 0.25]]), jnp.array([True, False, True])).tolist()
      [[0.5, 0.0, 0.5]]
    """
    if reported is None:
        return weights
    reported_weights = jnp.where(reported[None], weights, 0.0)
    total = reported_weights.sum(axis=1, keepdims=True)
    rescaled = (
        reported_weights * weights.sum(axis=1, keepdims=True) / jnp.where(total > 0, total, 1)
    )
    return jnp.where(reported.all() | (total <= 0), weights, rescaled)


@checked
def isolate(
    weights: Float[Array, "m m"], reported: Bool[Array, "m"] | None = None
) -> Float[Array, "m m"]:
    """`leave_out`, and a client that did not report receives nothing from the others.

    Its row is that of the identity: it keeps the model that stands in its place, the one that it
    started the round from.

    Args:
      weights: [M, M].
      reported: whether the model of each client counts [M]; None: all do.

    Example:
      >>> isolate(jnp.array([[0.5, 0.5], [0.5, 0.5]]), jnp.array([True, False])).tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """
    if reported is None:
        return weights
    return jnp.where(reported[:, None], leave_out(weights, reported), jnp.eye(reported.size))


@checked
def within(
    weights: Float[Array, "m m"], reported: Bool[Array, "m"] | None = None
) -> Float[Array, "m m"]:
    """The weights of some clients, a part of those of all, with rows that sum to one again.

    Senders that did not report are left out. A client that is left without senders keeps its own
    model.

    Args:
      weights: not negative [M, M].
      reported: whether the model of each client counts [M]; None: all do.

    Example:
      >>> within(jnp.array([[0.2, 0.6], [0.0, 0.0]])).tolist()
      [[0.25, 0.75], [0.0, 1.0]]
    """
    M = len(weights)
    reported = jnp.ones(M, bool) if reported is None else reported
    reported_weights = jnp.where(reported[None], weights, 0.0)
    total = reported_weights.sum(axis=1, keepdims=True)
    rows = reported_weights / jnp.where(total > 0, total, 1.0)
    return jnp.where(total > 0, rows, jnp.eye(M))


@checked
def keep_own(
    weights: Float[Array, "m m"] | SparseRows, accepted: Bool[Array, "m"]
) -> Float[Array, "m m"] | SparseRows:
    """The weights, with a row of the identity for each client that keeps its own model.

    Args:
      weights: [M, M], or sparse rows of M clients among themselves.
      accepted: whether each client takes its mixture [M].

    Example:
      >>> keep_own(jnp.array([[0.5, 0.5], [0.5, 0.5]]), jnp.array([True, False])).tolist()
      [[0.5, 0.5], [0.0, 1.0]]
    """
    if not isinstance(weights, SparseRows):
        return jnp.where(accepted[:, None], weights, jnp.eye(accepted.size))
    own = jnp.where(accepted, weights.columns[:, -1], jnp.arange(accepted.size))
    alone = jnp.zeros_like(weights.values).at[:, -1].set(1.0)
    return SparseRows(
        weights.columns.at[:, -1].set(own), jnp.where(accepted[:, None], weights.values, alone)
    )


@checked
def keep_part(weights: Float[Array, "m m"], fractions: Float[Array, "m"]) -> Float[Array, "m m"]:
    """The weights, where each client keeps its own model but for a fraction of its mixture.

    Args:
      weights: [M, M].
      fractions: of its mixture that each client takes [M].

    Example:
      >>> keep_part(jnp.array([[0.5, 0.5], [0.5, 0.5]]), jnp.array([0.5, 0.0])).tolist()
      [[0.75, 0.25], [0.0, 1.0]]
    """
    fractions = fractions[:, None]
    return (1 - fractions) * jnp.eye(len(fractions)) + fractions * weights


@checked
def positive_rows(values: Float[Array, "r m"]) -> Float[Array, "r m"]:
    """Weights in proportion to the positive, finite values of each row; others have weight 0.

    A row without a positive value is that of the identity.

    Args:
      values: of any sign [R, M]; R receivers, M senders.

    Returns:
      Row-stochastic [R, M].

    Example:
      >>> positive_rows(jnp.array([[3.0, 1.0], [-1.0, -2.0]])).tolist()
      [[0.75, 0.25], [0.0, 1.0]]
    """
    positive = jnp.where(jnp.isfinite(values), jnp.maximum(values, 0.0), 0.0)
    # Divided by the largest one first, a sum of large values is finite.
    largest = positive.max(axis=1, keepdims=True)
    shares = positive / jnp.where(largest > 0, largest, 1.0)
    total = shares.sum(axis=1, keepdims=True)
    rows = shares / jnp.where(total > 0, total, 1.0)
    return jnp.where(largest > 0, rows, jnp.eye(values.shape[0], values.shape[1]))


@checked
def possible_sizes(sizes: Shaped[Array, "*m"]) -> Float[Array, "*m"]:
    """Numbers of examples as floats, 0 in place of those that cannot be.

    A client tells its number itself. It cannot be negative, NaN, or above 1e15.

    Args:
      sizes: [M], or [M, K] of K kinds; or who reported [M] bool.

    Example:
      >>> possible_sizes(jnp.array([3.0, -1.0, jnp.nan, jnp.inf])).tolist()
      [3.0, 0.0, 0.0, 0.0]
    """
    sizes = sizes.astype(jnp.result_type(sizes, float))
    return jnp.where((sizes > 0) & (sizes < LARGEST_SIZE), sizes, 0)


@checked
def size_weights(sizes: Shaped[Array, "m"]) -> Float[Array, "m"]:
    """Weights in proportion to numbers of examples, p_i = n_i / sum_j n_j; 1 / M if there are none.

    Args:
      sizes: n_i [M], see `possible_sizes`; or who reported [M] bool, who then have equal weights.

    Example:
      >>> size_weights(jnp.array([1, 3, 0])).tolist()
      [0.25, 0.75, 0.0]
    """
    # float32 holds whole numbers up to 2^24, and their sum does not overflow beyond 2^31.
    sizes = possible_sizes(sizes)
    total = sizes.sum()
    weights = sizes / jnp.maximum(total, 1)
    return jnp.where(total > 0, weights, 1 / sizes.shape[0])


def disturbance(key: Key[Array, ""], clients: int, radius: Scalar) -> Float[Array, "m m"]:
    """A random change of mixing weights, which shows from losses alone how a loss depends on them.

    Random signs, less their mean in each row so that rows of weights still sum to one, times the
    radius. With losses L+ and L- at the weights plus and minus this change, (L+ - L-) / 2 times the
    row over the radius squared estimates the gradient of the loss less its mean, unbiased up to the
    radius squared (simultaneous perturbation: Spall, 1992, https://doi.org/10.1109/9.119632).

    Args:
      key: of the random signs.
      clients: M.
      radius: of the change of one weight.

    Returns:
      [M, M], rows sum to zero.

    Example:
      >>> disturbance(jax.random.key(0), 4, 0.5).sum(axis=1).tolist()
      [0.0, 0.0, 0.0, 0.0]
    """
    signs = jax.random.rademacher(key, (clients, clients), float)
    return radius * (signs - signs.mean(axis=1, keepdims=True))
