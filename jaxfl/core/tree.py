"""Pytrees with the client axis first: `[M, ...]` on every leaf."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import flatten_util
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from jaxfl.core.errors import InputError, check
from jaxfl.core.ragged import is_ragged
from jaxfl.core.types import Params, Scalar


def take(tree: PyTree, ids: Int[Array, "m"]) -> PyTree:
    """Rows `ids` of every leaf: [C, ...] -> [M, ...]. No example of a `Ragged` array is copied.

    Example:
      >>> take({"w": jnp.array([[1.0], [2.0], [3.0]])}, jnp.array([2, 0]))["w"].tolist()
      [[3.0], [1.0]]
    """
    return jax.tree.map(lambda x: x[ids], tree, is_leaf=is_ragged)


def at(tree: PyTree, index: Any) -> PyTree:
    """What an index selects of every leaf; `Ragged` arrays are indexed as arrays are.

    Args:
      tree: arrays with the same first axes.
      index: as for an array: whole numbers, slices, arrays of whole numbers, or a tuple of them.

    Example:
      >>> examples = {"image": jnp.zeros((4, 8, 8)), "age": jnp.zeros((4, 1))}
      >>> jax.tree.map(jnp.shape, at(examples, slice(3)))
      {'age': (3, 1), 'image': (3, 8, 8)}
    """
    return jax.tree.map(lambda x: x[index], tree, is_leaf=is_ragged)


def rows(tree: PyTree) -> int:
    """The length of the first axis of the arrays of a tree, which all have the same.

    Example:
      >>> rows({"image": np.zeros((4, 8, 8)), "age": np.zeros((4, 1))})
      4
    """
    return jax.tree.leaves(tree, is_leaf=is_ragged)[0].shape[0]


def shapes(tree: PyTree, rows: int, *, axes: int) -> PyTree:
    """The shapes of `rows` rows of every leaf, such as those of a batch of a client's examples.

    Args:
      tree: arrays with the same first axes; nothing is read.
      rows: length of the one axis that takes the place of these.
      axes: how many first axes the leaves have before those of one row.

    Example:
      >>> shapes({"image": jnp.zeros((4, 9, 8, 8))}, 1, axes=2)
      {'image': ShapeDtypeStruct(shape=(1, 8, 8), dtype=float32)}
    """

    def leaf(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((rows, *x.shape[axes:]), x.dtype)

    return jax.tree.map(leaf, tree, is_leaf=is_ragged)


def put(tree: PyTree, ids: Int[Array, "m"], rows: PyTree) -> PyTree:
    """The tree with `rows` [M, ...] written over its rows `ids` [C, ...].

    Example:
      >>> put(jnp.zeros((3, 1)), jnp.array([2]), jnp.array([[5.0]])).tolist()
      [[0.0], [0.0], [5.0]]
    """
    return jax.tree.map(lambda x, r: x.at[ids].set(r), tree, rows)


@functools.partial(jax.jit, static_argnums=1)
def broadcast(tree: PyTree, clients: int) -> PyTree:
    """One model, `clients` times: [...] -> [C, ...].

    One program for all leaves, as `zeros_like` is.

    Example:
      >>> broadcast(jnp.array([1.0, 2.0]), 2).tolist()
      [[1.0, 2.0], [1.0, 2.0]]
    """
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (clients, *jnp.shape(x))), tree)


@jax.jit
def zeros_like(tree: PyTree) -> PyTree:
    """Zeros in the place of each number.

    Example:
      >>> zeros_like({"w": jnp.array([1.0, 2.0])})["w"].tolist()
      [0.0, 0.0]
    """
    return jax.tree.map(jnp.zeros_like, tree)


def where(condition: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    """`new` where the scalar condition holds, else `old`, leaf by leaf.

    Example:
      >>> where(jnp.array(False), {"w": jnp.array(1.0)}, {"w": jnp.array(2.0)})["w"].item()
      2.0
    """
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o), new, old)


def finite(stacked: PyTree, clients: int) -> Bool[Array, "m"]:
    """Which of the stacked models have no NaN and no inf [M]; all, if they have no leaves.

    Example:
      >>> finite(jnp.array([[1.0, 2.0], [3.0, jnp.nan]]), 2).tolist()
      [True, False]
    """
    return _all_leaves(jnp.isfinite, stacked, clients)


def _all_leaves(holds: Callable, stacked: PyTree, clients: int) -> Bool[Array, "m"]:
    """For which of the stacked models a condition holds of all entries [M]."""
    each = [holds(x).reshape(clients, -1).all(axis=1) for x in jax.tree.leaves(stacked)]
    return functools.reduce(jnp.logical_and, each, jnp.ones(clients, bool))


# Squares of a hundred million numbers of this size have a finite sum in float32.
LARGEST_ENTRY = 1e15


def finite_squares(stacked: PyTree, clients: int) -> Bool[Array, "m"]:
    """Which of the stacked models are finite, with no entry beyond 1e15 [M].

    Squares, products and sums of such models are finite in float32, which has numbers up to 3e38.

    Example:
      >>> finite_squares(jnp.array([[1.0, 2.0], [3.0, 1e38], [jnp.nan, 0.0]]), 3).tolist()
      [True, False, False]
    """
    return _all_leaves(lambda x: jnp.abs(x) <= LARGEST_ENTRY, stacked, clients)


def choose(condition: Bool[Array, "m"], new: PyTree, old: PyTree) -> PyTree:
    """The rows of `new` [M, ...] where the condition [M] holds, and the rows of `old` elsewhere.

    Example:
      >>> choose(jnp.array([True, False]), jnp.ones((2, 1)), jnp.zeros((2, 1))).tolist()
      [[1.0], [0.0]]
    """
    return jax.tree.map(
        lambda n, o: jnp.where(condition.reshape(-1, *[1] * (n.ndim - 1)), n, o), new, old
    )


def cast_like(tree: PyTree, like: PyTree) -> PyTree:
    """The tree in the types of another: floats stay floats, and whole numbers stay whole numbers.

    A leaf of another kind, such as a float where the other tree has a whole number, is left alone.

    Args:
      tree: what was computed.
      like: of the same structure.

    Example:
      >>> cast_like({"w": jnp.ones(2, jnp.float32)}, {"w": jnp.zeros(2, jnp.bfloat16)})["w"].dtype
      dtype(bfloat16)
    """

    def leaf(x: Array, other: Array) -> Array:
        found, wanted = jnp.result_type(x), jnp.result_type(other)
        kinds = (jnp.floating, jnp.integer)
        same_kind = any(jnp.issubdtype(found, k) and jnp.issubdtype(wanted, k) for k in kinds)
        return x.astype(wanted) if same_kind and found != wanted else x

    return jax.tree.map(leaf, tree, like)


def subtract(stacked: Params, model: Params) -> Params:
    """The difference between each model of the stack and one model: [M, ...], [...] -> [M, ...].

    Example:
      >>> subtract(jnp.array([[5.0], [7.0]]), jnp.array([2.0])).tolist()
      [[3.0], [5.0]]
    """
    return jax.tree.map(lambda s, m: s - m[None], stacked, model)


def scale(stacked: Params, factors: Shaped[Array, "m"]) -> Params:
    """Each model of the stack times its own factor: [M, ...], [M] -> [M, ...], in its own types.

    Example:
      >>> scale(jnp.array([[5.0], [7.0]]), jnp.array([2.0, 0.0])).tolist()
      [[10.0], [0.0]]
    """
    scaled = jax.tree.map(lambda s: s * factors.reshape(-1, *[1] * (s.ndim - 1)), stacked)
    return cast_like(scaled, stacked)


def interpolate(old: Params, new: Params, fraction: Scalar) -> Params:
    """The model at a fraction of the way from `old` to `new`, in the types of `old`; at 1 `new`.

    Example:
      >>> interpolate(jnp.array([0.0]), jnp.array([8.0]), 0.25).tolist()
      [2.0]
    """
    model = jax.tree.map(lambda a, b: (1 - fraction) * a + fraction * b, old, new)
    return cast_like(model, old)


def wide(x: Array) -> Array:
    """The array in float32, or in float64 if it has that type: for sums of its squares.

    Example:
      >>> wide(jnp.ones(2, jnp.bfloat16)).dtype.name
      'float32'
    """
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def dot(a: Params, b: Params) -> Shaped[Array, ""]:
    """Inner product of two models, in float32 or wider.

    Example:
      >>> dot({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, 4.0])}).item()
      11.0
    """
    products = jax.tree.map(lambda x, y: jnp.sum(wide(x) * wide(y)), a, b)
    return sum(jax.tree.leaves(products), jnp.zeros(()))


def squared_distance(a: Params, b: Params) -> Shaped[Array, ""]:
    """The squared Euclidean distance |a - b|^2 of two models.

    Example:
      >>> squared_distance(jnp.array([0.0, 0.0]), jnp.array([3.0, 4.0])).item()
      25.0
    """
    gap = jax.tree.map(jnp.subtract, a, b)
    return dot(gap, gap)


def size(model: Params) -> int:
    """The number of floats in one model, D.

    Example:
      >>> size({"kernel": jnp.zeros((4, 8)), "bias": jnp.zeros(8)})
      40
    """
    return sum(x.size for x in jax.tree.leaves(model))


def ravel(stacked: Params) -> Shaped[Array, "m d"]:
    """The stack as a matrix, with leaves in the order of `jax.tree.leaves`: [M, ...] -> [M, D].

    Example:
      >>> ravel({"bias": jnp.zeros((2, 1)), "kernel": jnp.ones((2, 1, 2))}).tolist()
      [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    """
    leaves = jax.tree.leaves(stacked)
    return jnp.concatenate([x.reshape(x.shape[0], -1) for x in leaves], axis=1)


def unravel(matrix: Shaped[Array, "m d"], like: Params) -> Params:
    """The inverse of `ravel`: [M, D] -> [M, ...], where `like` [...] is one model of the stack.

    Example:
      >>> model = {"bias": jnp.zeros(1), "kernel": jnp.zeros((1, 2))}
      >>> unravel(jnp.array([[1.0, 2.0, 3.0]]), model)["kernel"].tolist()
      [[[2.0, 3.0]]]
    """
    _, unflatten = flatten_util.ravel_pytree(like)
    return jax.vmap(unflatten)(matrix)


# A choice of leaves: a regular expression to find in their paths, or a predicate of the path.
Layers = str | Callable[[str], bool]


def path(keys: tuple) -> str:
    """The path of a leaf as text: `params/Dense_0/kernel`.

    Example:
      >>> model = {"params": {"Dense_0": {"kernel": 1.0}}}
      >>> [path(keys) for keys, _ in jax.tree_util.tree_leaves_with_path(model)]
      ['params/Dense_0/kernel']
    """
    return jax.tree_util.keystr(keys, simple=True, separator="/")


def select(model: Params, predicate: Layers) -> tuple:
    """The leaves whose path satisfies the predicate.

    Args:
      model: one model or a stack.
      predicate: a function of the path (`params/Dense_0/kernel`), or a regular expression to find
        in it.

    Raises:
      InputError: no leaf satisfies it, or it is not a regular expression.

    Example:
      >>> model = {"Dense_0": {"kernel": 1.0, "bias": 2.0}, "Dense_1": {"kernel": 3.0, "bias": 4.0}}
      >>> select(model, "Dense_1"), select(model, lambda path: path.endswith("kernel"))
      ((4.0, 3.0), (1.0, 3.0))
    """
    holds = _path_test(predicate)
    paths = [(path(keys), leaf) for keys, leaf in jax.tree_util.tree_leaves_with_path(model)]
    leaves = tuple(leaf for name, leaf in paths if holds(name))
    check(
        bool(leaves),
        f"no layer matches {predicate!r}: choose from {', '.join(name for name, _ in paths)}",
    )
    return leaves


def _path_test(predicate: Layers) -> Callable:
    """The predicate as a function of a path."""
    if not isinstance(predicate, str):
        return predicate
    try:
        return re.compile(predicate).search
    except re.error as error:
        raise InputError(
            f"{predicate!r} is no regular expression ({error}): mend the pattern of layers"
        ) from error


def combine(predicate: Layers, inside: Params, outside: Params) -> Params:
    """A model with the leaves of `inside` where the predicate holds, elsewhere those of `outside`.

    Args:
      predicate: as in `select`.
      inside: one model or a stack.
      outside: of the same structure.

    Raises:
      InputError: the predicate is text and not a regular expression.

    Example:
      >>> trained = {"Dense_0": jnp.array(1.0), "Dense_1": jnp.array(2.0)}
      >>> received = {"Dense_0": jnp.array(3.0), "Dense_1": jnp.array(4.0)}
      >>> [leaf.item() for leaf in combine("Dense_1", trained, received).values()]
      [3.0, 2.0]
    """
    holds = _path_test(predicate)

    # Leaves are arrays, their shapes, or None.
    def pick(keys: tuple, a: Any, b: Any) -> Any:
        return a if holds(path(keys)) else b

    return jax.tree_util.tree_map_with_path(pick, inside, outside, is_leaf=lambda x: x is None)


def split(model: Params, predicate: Layers) -> tuple[Params, Params]:
    """Two parts of a model: the leaves whose path satisfies the predicate, and the other leaves.

    Each part has None where the other part has a leaf. JAX does not count None as a leaf, so a part
    has no other parameters than its own. `join` is the inverse.

    Args:
      model: one model or a stack.
      predicate: as in `select`, but no leaf needs to satisfy it.

    Example:
      >>> model = {"Dense_0": jnp.array(1.0), "Dense_1": jnp.array(2.0)}
      >>> head, body = split(model, "Dense_1")
      >>> head["Dense_0"], head["Dense_1"].item()
      (None, 2.0)
    """
    nothing = jax.tree.map(lambda x: None, model)
    return combine(predicate, model, nothing), combine(predicate, nothing, model)


def join(inside: Params, outside: Params) -> Params:
    """The inverse of `split`.

    Example:
      >>> model = {"Dense_0": jnp.array(1.0), "Dense_1": jnp.array(2.0)}
      >>> head, body = split(model, "Dense_1")
      >>> join(head, body) == model
      True
    """
    return jax.tree.map(
        lambda a, b: b if a is None else a, inside, outside, is_leaf=lambda x: x is None
    )
