"""Similarities and distances of all pairs of stacked models, a matrix [M, D] or a pytree [M, ...].

Models of any finite size have finite similarities: the squares of a model that diverged, or that a
malicious client made huge, overflow a float and would turn the weights of all clients into NaN.

There are two ways to a Euclidean distance, which differ in accuracy and cost. `squared_distances`
takes one Gram matrix of the models less their mean: it is cheap, and accurate unless one model is
far from all others. `squared_differences` and `distances_l2` subtract every pair: they are accurate
whatever the other models are, and read all models M times.
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Float, PyTree

from jaxfl.core.options import checked
from jaxfl.core.shapes import Stack
from jaxfl.core.tree import LARGEST_ENTRY
from jaxfl.core.types import Scalar

Measure = Literal["cosine", "dice", "inner", "l2", "l1"]

# Values beyond count as this one: sums and multiples of it are still finite.
LARGEST_SQUARE = LARGEST_ENTRY**2


@checked
def gram(stacked: Stack, other: Stack | None = None) -> Float[Array, "m n"]:
    """Inner products of all pairs of models, summed leaf by leaf so that [M, D] need not exist.

    Sums are float32, also of models in bfloat16; float64 of models in float64.

    Finite for entries up to 1e15; `similarities` has inner products of models of any size.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
      other: models [N, ...] to pair them with; themselves if None.

    Example:
      >>> gram(jnp.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
      [[5.0, 6.0], [6.0, 9.0]]
    """

    def leaf(x: Array, y: Array) -> Array:
        x_rows = x.reshape(x.shape[0], -1)
        y_rows = y.reshape(y.shape[0], -1)
        wide = jnp.result_type(x, y, jnp.float32)
        return jnp.matmul(
            x_rows, y_rows.T, precision=Precision.HIGHEST, preferred_element_type=wide
        )

    products = jax.tree.map(leaf, stacked, stacked if other is None else other)
    return jnp.asarray(sum(jax.tree.leaves(products)))


@checked
def cosine(stacked: Stack) -> Float[Array, "m m"]:
    """Cosines of all pairs of models, in [-1, 1].

    A zero model has cosine 0 with every model, with itself too.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> cosine(jnp.array([[1.0, 0.0], [0.0, 2.0], [0.0, -4.0]])).tolist()
      [[1.0, 0.0, 0.0], [0.0, 1.0, -1.0], [0.0, -1.0, 1.0]]
    """
    products = gram(scaled(stacked)[0])
    inverse = _inverse(root(jnp.diagonal(products)))
    return jnp.clip(products * inverse[:, None] * inverse[None, :], -1.0, 1.0)


@checked
def dice(stacked: Stack) -> Float[Array, "m m"]:
    """2 <a, b> / (|a|^2 + |b|^2) of all pairs of models, in [-1, 1].

    The Dice coefficient of real vectors, https://en.wikipedia.org/wiki/Dice-S%C3%B8rensen_coefficient.
    It is the cosine times 2 r / (1 + r^2), where r is the ratio of the two lengths: models of equal
    length have their cosine, and a model ten times as long has at most .2. A zero model has 0 with
    every model, with itself too.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> dice(jnp.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])).tolist()[0][:2]
      [1.0, 0.0]
    """
    inverse = inverse_norms(stacked)
    # The ratio r of the lengths, the shorter to the longer; 0 for a zero model
    smaller = jnp.minimum(inverse[:, None], inverse[None])
    larger = jnp.maximum(inverse[:, None], inverse[None])
    ratio = smaller / jnp.where(larger > 0, larger, 1.0)
    return cosine(stacked) * 2 * ratio / (1 + ratio**2)


@checked
def similarities(
    stacked: Stack, measure: Measure, snap: Scalar | None = None
) -> Float[Array, "m m"]:
    """Similarities of all pairs of models by one of the measures of pFedGraph, or by `dice`.

    Ye et al., ICML 2023, https://proceedings.mlr.press/v202/ye23b.html, section 4.5.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
      measure: "cosine"; "dice"; "inner", the inner product; "l2" or "l1", minus the distance in
        that norm. The absolute values of the last three are at most 1e30.
      snap: "cosine" and "dice" above it count as 1, as in pFedGraph's code; None for never.

    Example:
      >>> similarities(jnp.array([[0.0, 0.0], [3.0, 4.0]]), "l1").tolist()
      [[-0.0, -7.0], [-7.0, -0.0]]
    """
    if measure in ("cosine", "dice"):
        values = cosine(stacked) if measure == "cosine" else dice(stacked)
        return values if snap is None else jnp.where(values > snap, 1.0, values)
    if measure == "l1":
        return -jnp.minimum(distances_l1(stacked), LARGEST_SQUARE)
    if measure == "l2":
        return -distances_l2(stacked)
    rescaled, power = scaled(stacked)
    products = gram(rescaled)
    return jnp.clip(products * power[:, None] * power[None], -LARGEST_SQUARE, LARGEST_SQUARE)


@checked
def distances_l1(stacked: Stack) -> Float[Array, "m m"]:
    """Sums of absolute differences of all pairs of models, one row at a time: no [M, M, D].

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> distances_l1(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[0.0, 7.0], [7.0, 0.0]]
    """

    def leaf(x: Array) -> Array:
        rows = x.reshape(x.shape[0], -1)
        return lax.map(lambda row: jnp.abs(rows - row[None]).sum(axis=1), rows)

    return jnp.asarray(sum(map(leaf, jax.tree.leaves(stacked))))


@checked
def distances_l2(stacked: Stack) -> Float[Array, "m m"]:
    """Euclidean distances of all pairs of models, at most 1e30, one row at a time.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> distances_l2(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[0.0, 5.0], [5.0, 0.0]]
    """
    matrix = _matrix(stacked)

    def distances_to(row: Float[Array, "d"]) -> Float[Array, "m"]:
        # Halves, so that the difference of two enormous entries does not overflow.
        half = 0.5 * matrix - 0.5 * row[None]
        # In units of the largest entry, the squares of a difference neither overflow nor vanish.
        largest = jnp.abs(half).max(axis=1)
        relative = half / jnp.where(largest > 0, largest, 1.0)[:, None]
        norms = root(jnp.sum(relative**2, axis=1))
        return jnp.minimum(norms * jnp.minimum(largest, LARGEST_SQUARE), LARGEST_SQUARE / 2) * 2

    return lax.map(distances_to, matrix)


@checked
def squared_distances(stacked: Stack) -> Float[Array, "m m"]:
    """Squared Euclidean distances of all pairs of models, at most 1e30, from inner products.

    The models are taken less their mean, so that models near each other and far from zero keep
    their digits. What is below 1e-6 of the two squared distances to the mean is rounding, and 0.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> squared_distances(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[0.0, 25.0], [25.0, 0.0]]
    """
    distances, unit = squared_distances_in_unit(stacked)
    return jnp.minimum(distances * unit * unit, LARGEST_SQUARE)


@checked
def squared_distances_in_unit(stacked: Stack) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
    """`squared_distances` in a unit in which none overflows, a power of two, and that unit.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> [x.tolist() for x in squared_distances_in_unit(jnp.array([[0.0], [8.0]]))]
      [[[0.0, 4.0], [4.0, 0.0]], 4.0]
    """
    rescaled, power = scaled(_less_mean(stacked))
    unit = power.max()
    products = gram(rescaled) * (power / unit)[:, None] * (power / unit)[None]
    squares = jnp.diagonal(products)
    both = squares[:, None] + squares[None]
    distances = both - 2 * products
    return jnp.where(distances > 1e-6 * both, distances, 0.0), unit


@checked
def squared_differences(stacked: Stack) -> Float[Array, "m m"]:
    """Sums of squared differences of all pairs of models, at most 1e30, one row at a time.

    From differences, so that an enormous model takes no digits of the other pairs.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> squared_differences(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[0.0, 25.0], [25.0, 0.0]]
    """
    matrix = _matrix(stacked)

    def distances_to(row: Float[Array, "d"]) -> Float[Array, "m"]:
        return jnp.minimum(jnp.sum((matrix - row[None]) ** 2, axis=1), LARGEST_SQUARE)

    return lax.map(distances_to, matrix)


@checked
def inverse_norms(stacked: Stack) -> Float[Array, "m"]:
    """One over the Euclidean norm of each model [M]; 0 for a zero model.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> inverse_norms(jnp.array([[0.0, 4.0], [0.0, 0.0]])).tolist()
      [0.25, 0.0]
    """
    rescaled, power = scaled(stacked)
    squares = sum(
        jnp.sum(jnp.square(x.reshape(x.shape[0], -1)), axis=1) for x in jax.tree.leaves(rescaled)
    )
    return _inverse(root(jnp.asarray(squares))) / power


def root(squares: Float[Array, "*s"]) -> Float[Array, "*s"]:
    """Square roots whose derivative is 0 where they are 0, and not infinite.

    There it is multiplied with that of a sum of squares, which is 0.

    Args:
      squares: sums of squares, of any shape.

    Example:
      >>> jax.grad(lambda x: root(jnp.sum(x**2)))(jnp.zeros(2)).tolist()
      [0.0, 0.0]
    """
    zero = squares == 0
    return jnp.where(zero, 0.0, jnp.sqrt(jnp.where(zero, 1.0, squares)))


@checked
def scaled(stacked: Stack) -> tuple[PyTree, Float[Array, "m"]]:
    """Each model over the power of two nearest its largest entry, and those powers [M].

    No digit is lost, and squares of the rescaled models neither overflow nor vanish. The power of a
    zero model is 1.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> [x.tolist() for x in scaled(jnp.array([[1.0, 9.0], [0.0, 0.0]]))]
      [[[0.125, 1.125], [0.0, 0.0]], [8.0, 1.0]]
    """

    def largest(x: Array) -> Float[Array, "m"]:
        return jnp.abs(x.reshape(x.shape[0], -1)).max(axis=1, initial=0.0)

    power = jnp.stack([largest(x) for x in jax.tree.leaves(stacked)]).max(axis=0)
    # Without a mantissa a float is a power of two; the largest float rounds to infinity.
    limits = jnp.finfo(power.dtype)
    power = jnp.minimum(lax.reduce_precision(power, limits.nexp, 0), 2.0 ** (limits.maxexp - 1))
    power = jnp.where(power > 0, power, 1.0)
    return jax.tree.map(lambda x: x / power.reshape(-1, *[1] * (x.ndim - 1)), stacked), power


def _inverse(norms: Float[Array, "m"]) -> Float[Array, "m"]:
    """One over each norm; 0 for 0."""
    return jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1.0), 0.0)


def _less_mean(stacked: PyTree) -> PyTree:
    """The models less their mean.

    The mean is a product, because XLA on CPU adds rows some 25 times more slowly.
    """

    def leaf(x: Array) -> Array:
        rows = x.reshape(x.shape[0], -1)
        even = jnp.full((1, x.shape[0]), 1 / x.shape[0], x.dtype)
        mean = jnp.matmul(even, rows, precision=Precision.HIGHEST)
        return (rows - mean).reshape(x.shape)

    return jax.tree.map(leaf, stacked)


def _matrix(stacked: PyTree) -> Float[Array, "m d"]:
    """All parameters of each model in one row."""
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in jax.tree.leaves(stacked)], axis=1)
