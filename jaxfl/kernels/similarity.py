"""Similarities and distances of all pairs of stacked models, a matrix [M, D] or a pytree [M, ...].

Models of any finite size have finite similarities: the squares of a model that diverged, or that a
malicious client made huge, overflow a float and would turn the weights of all clients into NaN.

There are two ways to a Euclidean distance, which differ in accuracy and cost. `squared_distances`
takes one Gram matrix of the models less their mean: it is cheap, and accurate unless one model is
far from all others. `squared_differences` and `distances_l2` subtract every pair: they are accurate
whatever the other models are, and take M times as many operations.

Running statistics of BatchNorm are not compared, see `core.trainable`.
"""

from collections.abc import Callable
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax
from jax.lax import Precision
from jaxtyping import Array, Float, PyTree, Shaped

from jaxfl.core.errors import check
from jaxfl.core.options import Names, checked
from jaxfl.core.row_differences import row_differences
from jaxfl.core.row_products import row_products, self_products
from jaxfl.core.shapes import Stack
from jaxfl.core.trainable import trainable
from jaxfl.core.tree import LARGEST_ENTRY, wide
from jaxfl.core.types import Scalar

# Values beyond count as this one: sums and multiples of it are still finite.
LARGEST_SQUARE = LARGEST_ENTRY**2
# A sum of squares below this one may have lost some that vanish.
SMALLEST_SQUARE = 1e-24


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

    def leaf(x: Array) -> Array:
        return x.reshape(x.shape[0], -1)

    rows = jax.tree.map(leaf, trainable(stacked))
    if other is None:
        return jnp.asarray(sum(map(self_products, jax.tree.leaves(rows))))
    others = jax.tree.map(leaf, trainable(other))
    return jnp.asarray(sum(jax.tree.leaves(jax.tree.map(row_products, rows, others))))


def _gram_in_units(stacked: PyTree) -> tuple[Float[Array, "m m"], Float[Array, "m"]]:
    """`gram` of the models that `scaled` makes, without writing them, and their powers of two."""
    power = _units(stacked)
    leaves = [x.reshape(len(x), -1) for x in jax.tree.leaves(trainable(stacked))]
    return jnp.asarray(sum(self_products(rows, power) for rows in leaves)), power


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
    products, _ = _gram_in_units(stacked)
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
def inner(stacked: Stack) -> Float[Array, "m m"]:
    """Inner products of all pairs of models of any size, in [-1e30, 1e30].

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> inner(jnp.array([[1.0, 2.0], [0.0, 3e30]])).tolist()[0]
      [5.0, 1.0000000150474662e+30]
    """
    products, power = _gram_in_units(stacked)
    return jnp.clip(products * power[:, None] * power[None], -LARGEST_SQUARE, LARGEST_SQUARE)


@checked
def minus_l2(stacked: Stack) -> Float[Array, "m m"]:
    """Minus the Euclidean distances of all pairs of models, at least -1e30.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> minus_l2(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[-0.0, -5.0], [-5.0, -0.0]]
    """
    return -distances_l2(stacked)


@checked
def minus_l1(stacked: Stack) -> Float[Array, "m m"]:
    """Minus the sums of absolute differences of all pairs of models, at least -1e30.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> minus_l1(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[-0.0, -7.0], [-7.0, -0.0]]
    """
    return -jnp.minimum(distances_l1(stacked), LARGEST_SQUARE)


@checked
def distances_l1(stacked: Stack) -> Float[Array, "m m"]:
    """Sums of absolute differences of all pairs of models, without [M, M, D].

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> distances_l1(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[0.0, 7.0], [7.0, 0.0]]
    """

    def leaf(x: Array) -> Array:
        rows = wide(x).reshape(x.shape[0], -1)
        return row_differences(lambda difference: jnp.abs(difference).sum(axis=1), rows)

    return jnp.asarray(sum(map(leaf, jax.tree.leaves(trainable(stacked)))))


@checked
def distances_l2(stacked: Stack) -> Float[Array, "m m"]:
    """Euclidean distances of all pairs of models, at most 1e30, without [M, M, D].

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> distances_l2(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[0.0, 5.0], [5.0, 0.0]]
    """
    # Halves, so that the difference of two enormous entries does not overflow.
    half = 0.5 * _matrix(stacked)
    squares = row_differences(_sum_of_squares, half)

    def in_units() -> Float[Array, "m m"]:
        # In units of the largest entry, the squares of a difference neither overflow nor vanish.
        largest = row_differences(
            lambda difference: jnp.abs(difference).max(axis=1), half, combine=jnp.maximum
        )
        unit = jnp.where(largest > 0, largest, 1.0)
        relative = row_differences(lambda x, unit: _sum_of_squares(x / unit[:, None]), half, unit)
        return root(relative) * jnp.minimum(largest, LARGEST_SQUARE)

    within = (squares > SMALLEST_SQUARE) & (squares < LARGEST_SQUARE)
    within |= jnp.eye(len(half), dtype=bool)
    norms = lax.cond(within.all(), lambda: root(squares), in_units)
    return 2 * jnp.minimum(norms, LARGEST_SQUARE / 2)


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
    products, power = _gram_in_units(_less_mean(stacked))
    unit = power.max()
    products = products * (power / unit)[:, None] * (power / unit)[None]
    squares = jnp.diagonal(products)
    both = squares[:, None] + squares[None]
    distances = both - 2 * products
    return jnp.where(distances > 1e-6 * both, distances, 0.0), unit


@checked
def distances_between(stacked: Stack, centres: Stack) -> Float[Array, "m k"]:
    """The squared distance of each model to each centre, in a common unit [M, K].

    Args:
      stacked: models [M, ...].
      centres: [K, ...].

    Example:
      >>> distances = distances_between(jnp.array([[1.0], [7.0]]), jnp.array([[0.0], [8.0]]))
      >>> distances.argmin(axis=1).tolist()
      [0, 1]
    """
    models = jax.tree.leaves(stacked)[0].shape[0]
    both = jax.tree.map(lambda m, c: jnp.concatenate([m, c]), stacked, centres)
    # As in `squared_distances`, without the pairs of models.
    rescaled, power = scaled(_less_mean(both))
    power = power / power.max()
    squares = _squared_norms(rescaled) * power * power
    of_models = jax.tree.map(lambda x: x[:models], rescaled)
    of_centres = jax.tree.map(lambda x: x[models:], rescaled)
    products = gram(of_models, of_centres) * power[:models, None] * power[None, models:]
    both_squares = squares[:models, None] + squares[None, models:]
    distances = both_squares - 2 * products
    return jnp.where(distances > 1e-6 * both_squares, distances, 0.0)


@checked
def squared_differences(stacked: Stack) -> Float[Array, "m m"]:
    """Sums of squared differences of all pairs of models, at most 1e30, without [M, M, D].

    From differences, so that an enormous model takes no digits of the other pairs.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> squared_differences(jnp.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
      [[0.0, 25.0], [25.0, 0.0]]
    """
    return jnp.minimum(row_differences(_sum_of_squares, _matrix(stacked)), LARGEST_SQUARE)


def _sum_of_squares(x: Float[Array, "m d"]) -> Float[Array, "m"]:
    return jnp.sum(x**2, axis=1)


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
    return _inverse(root(_squared_norms(rescaled))) / power


def _squared_norms(stacked: PyTree) -> Float[Array, "m"]:
    leaves = [wide(x).reshape(x.shape[0], -1) for x in jax.tree.leaves(trainable(stacked))]
    return jnp.asarray(sum(jnp.sum(jnp.square(rows), axis=1) for rows in leaves))


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
    """Each model over the power of two nearest its largest parameter, and those powers [M].

    No digit is lost, and squares of the rescaled parameters neither overflow nor vanish. The power
    of a zero model is 1.

    Args:
      stacked: models [M, ...] or a matrix [M, D].

    Example:
      >>> [x.tolist() for x in scaled(jnp.array([[1.0, 9.0], [0.0, 0.0]]))]
      [[[0.125, 1.125], [0.0, 0.0]], [8.0, 1.0]]
    """
    power = _units(stacked)
    return jax.tree.map(lambda x: x / power.reshape(-1, *[1] * (x.ndim - 1)), stacked), power


def _units(stacked: PyTree) -> Float[Array, "m"]:
    """The power of two nearest the largest parameter of each model [M]; 1 of a zero model."""

    def largest(x: Array) -> Shaped[Array, "m"]:
        return jnp.abs(x.reshape(x.shape[0], -1)).max(axis=1, initial=0.0)

    power = jnp.stack([largest(x) for x in jax.tree.leaves(trainable(stacked))]).max(axis=0)
    power = power.astype(jnp.result_type(power, 1.0))
    # Without a mantissa a float is a power of two; the largest float rounds to infinity.
    limits = jnp.finfo(power.dtype)
    power = jnp.minimum(lax.reduce_precision(power, limits.nexp, 0), 2.0 ** (limits.maxexp - 1))
    # It scales and scales back: what is computed does not change with it.
    return lax.stop_gradient(jnp.where(power > 0, power, 1.0))


# By the name that `measure=` takes. `MEASURES["mine"] = function` adds one: stacked models [M, ...]
# to [M, M] (receiver, sender), larger where the sender suits the receiver better.
MEASURES: dict[str, Callable[[PyTree], Float[Array, "m m"]]] = {
    "cosine": cosine,
    "dice": dice,
    "inner": inner,
    "l2": minus_l2,
    "l1": minus_l1,
}
BUILT_IN = dict(MEASURES)
Measure = Annotated[str, Names("measure", MEASURES)] | Callable[[PyTree], Float[Array, "m m"]]


@checked
def similarities(
    stacked: Stack, measure: Measure, snap: Scalar | None = None
) -> Float[Array, "m m"]:
    """Similarities of all pairs of models by one of the measures of pFedGraph, or by another one.

    Ye et al., ICML 2023, https://proceedings.mlr.press/v202/ye23b.html, section 4.5.

    Args:
      stacked: models [M, ...] or a matrix [M, D].
      measure: "cosine"; "dice"; "inner", the inner product; "l2" or "l1", minus the distance in
        that norm. The absolute values of the last three are at most 1e30. Or a name that a plug-in
        has added to `MEASURES`, or a function of the stacked models to [M, M] (receiver, sender),
        of any sign and range, larger where the sender suits the receiver better. It is traced.
        Where its values are not a number they count as -1e30, and beyond 1e30 as that.
      snap: "cosine" and "dice" above it count as 1, as in pFedGraph's code; None for never.

    Raises:
      InputError: the function's values are not floating-point numbers [M, M].

    Example:
      >>> similarities(jnp.array([[0.0, 0.0], [3.0, 4.0]]), "l1").tolist()
      [[-0.0, -7.0], [-7.0, -0.0]]
      >>> similarities(jnp.array([[1.0], [3.0]]), lambda x: -jnp.abs(x - x.T)).tolist()
      [[-0.0, -2.0], [-2.0, -0.0]]
    """
    name = measure if isinstance(measure, str) else getattr(measure, "__name__", repr(measure))
    function = MEASURES[measure] if isinstance(measure, str) else measure
    if function not in BUILT_IN.values():
        return _similarities_of_ones_own(function, name, stacked)
    values = function(stacked)
    if measure not in ("cosine", "dice") or snap is None:
        return values
    return jnp.where(values > snap, 1.0, values)


def _similarities_of_ones_own(
    function: Callable[[PyTree], Float[Array, "m m"]], name: str, stacked: PyTree
) -> Float[Array, "m m"]:
    """The finite values of a function that is not the library's, whose form is checked."""
    values = function(trainable(stacked))
    models = jax.tree.leaves(stacked)[0].shape[0]
    shape, number_type = getattr(values, "shape", None), getattr(values, "dtype", None)
    is_float = number_type is not None and jnp.issubdtype(number_type, jnp.floating)
    form = f"{number_type} {list(shape)}" if shape is not None else type(values).__name__
    check(
        shape == (models, models) and is_float,
        f"the values of measure {name} are {form}: expected floating-point numbers "
        f"[{models}, {models}], a row for each receiver and a column for each sender",
    )
    values = jnp.where(jnp.isnan(values), -LARGEST_SQUARE, wide(jnp.asarray(values)))
    return jnp.clip(values, -LARGEST_SQUARE, LARGEST_SQUARE)


def _inverse(norms: Float[Array, "m"]) -> Float[Array, "m"]:
    """One over each norm; 0 for 0."""
    return jnp.where(norms > 0, 1 / jnp.where(norms > 0, norms, 1.0), 0.0)


def _less_mean(stacked: PyTree) -> PyTree:
    """The models less their mean.

    The mean is a product, because XLA on CPU adds rows some 25 times more slowly.
    """

    def leaf(x: Array) -> Array:
        rows = wide(x).reshape(x.shape[0], -1)
        even = jnp.full((1, x.shape[0]), 1 / x.shape[0], rows.dtype)
        mean = jnp.matmul(even, rows, precision=Precision.HIGHEST)
        return (rows - mean).reshape(x.shape)

    return jax.tree.map(leaf, stacked)


def _matrix(stacked: PyTree) -> Float[Array, "m d"]:
    """All parameters of each model in one row."""
    rows = [wide(x).reshape(x.shape[0], -1) for x in jax.tree.leaves(trainable(stacked))]
    return jnp.concatenate(rows, axis=1)
