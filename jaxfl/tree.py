"""Pytrees with the client axis first: `[M, ...]` on every leaf."""

import functools
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import flatten_util, lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from jaxfl import target
from jaxfl.layers import Layers, combine, join, path, select, split
from jaxfl.ragged import is_ragged, join_shared, split_shared
from jaxfl.types import CLIENTS, Chunk, Params, Scalar

__all__ = [
    "Layers",
    "broadcast",
    "choose",
    "combine",
    "dot",
    "finite",
    "interpolate",
    "join",
    "on_every_device",
    "over_clients",
    "path",
    "put",
    "ravel",
    "scale",
    "select",
    "side_by_side",
    "size",
    "some_at_a_time",
    "split",
    "squared_distance",
    "subtract",
    "take",
    "unravel",
    "where",
]


def take(tree: PyTree, ids: Int[Array, "m"]) -> PyTree:
    """Rows `ids` of every leaf: [C, ...] -> [M, ...]. No example of a `Ragged` array is copied.

    Example:
      >>> take({"w": jnp.array([[1.0], [2.0], [3.0]])}, jnp.array([2, 0]))["w"].tolist()
      [[3.0], [1.0]]
    """
    return jax.tree.map(lambda x: x[ids], tree, is_leaf=is_ragged)


def put(tree: PyTree, ids: Int[Array, "m"], rows: PyTree) -> PyTree:
    """The tree with `rows` [M, ...] written over its rows `ids` [C, ...].

    Example:
      >>> put(jnp.zeros((3, 1)), jnp.array([2]), jnp.array([[5.0]])).tolist()
      [[0.0], [0.0], [5.0]]
    """
    return jax.tree.map(lambda x, r: x.at[ids].set(r), tree, rows)


def broadcast(tree: PyTree, clients: int) -> PyTree:
    """One model, `clients` times: [...] -> [C, ...].

    Example:
      >>> broadcast(jnp.array([1.0, 2.0]), 2).tolist()
      [[1.0, 2.0], [1.0, 2.0]]
    """
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (clients, *jnp.shape(x))), tree)


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
    each = [jnp.isfinite(x).reshape(clients, -1).all(axis=1) for x in jax.tree.leaves(stacked)]
    return functools.reduce(jnp.logical_and, each, jnp.ones(clients, bool))


def choose(condition: Bool[Array, "m"], new: PyTree, old: PyTree) -> PyTree:
    """The rows of `new` [M, ...] where the condition [M] holds, and the rows of `old` elsewhere.

    Example:
      >>> choose(jnp.array([True, False]), jnp.ones((2, 1)), jnp.zeros((2, 1))).tolist()
      [[1.0], [0.0]]
    """
    return jax.tree.map(
        lambda n, o: jnp.where(condition.reshape(-1, *[1] * (n.ndim - 1)), n, o), new, old
    )


def subtract(stacked: Params, model: Params) -> Params:
    """The difference between each model of the stack and one model: [M, ...], [...] -> [M, ...].

    Example:
      >>> subtract(jnp.array([[5.0], [7.0]]), jnp.array([2.0])).tolist()
      [[3.0], [5.0]]
    """
    return jax.tree.map(lambda s, m: s - m[None], stacked, model)


def scale(stacked: Params, factors: Shaped[Array, "m"]) -> Params:
    """Each model of the stack times its own factor: [M, ...], [M] -> [M, ...].

    Example:
      >>> scale(jnp.array([[5.0], [7.0]]), jnp.array([2.0, 0.0])).tolist()
      [[10.0], [0.0]]
    """
    return jax.tree.map(lambda s: s * factors.reshape(-1, *[1] * (s.ndim - 1)), stacked)


def interpolate(old: Params, new: Params, fraction: Scalar) -> Params:
    """The model at a fraction of the way from `old` to `new`; at 1 it is `new`.

    Example:
      >>> interpolate(jnp.array([0.0]), jnp.array([8.0]), 0.25).tolist()
      [2.0]
    """
    return jax.tree.map(lambda a, b: (1 - fraction) * a + fraction * b, old, new)


def dot(a: Params, b: Params) -> Shaped[Array, ""]:
    """Inner product of two models.

    Example:
      >>> dot({"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([3.0, 4.0])}).item()
      11.0
    """
    return sum(jax.tree.leaves(jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)), jnp.zeros(()))


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


def over_clients(function: Callable, chunk: Chunk, *shared: PyTree) -> Callable:
    """A function of one client, mapped over stacked arguments [M, ...].

    Where a mesh of devices is in use (`jax.set_mesh`, see `mesh`), each device computes some of the
    clients.

    Args:
      function: takes and returns pytrees of one client; its last arguments are those that all
        clients share.
      chunk: how many clients a device computes side by side; the result is the same. "all" is
        `vmap`; a number needs less memory; "auto" is 1 on a CPU, whose cache holds the work of one
        client but not of ten, and "all" on other devices.
      shared: arguments that are the same for all clients, such as a pool of examples.

    Example:
      >>> add = over_clients(lambda x, shared: x + shared, "all", 10.0)
      >>> add(jnp.array([1.0, 2.0])).tolist()
      [11.0, 12.0]
    """

    def on_device(shared: tuple, *stacked: PyTree) -> PyTree:
        return some_at_a_time(function, side_by_side(chunk), *shared)(*stacked)

    return on_every_device(on_device, shared)


def some_at_a_time(function: Callable, size: int | Literal["all"], *shared: PyTree) -> Callable:
    """A function of one client, mapped over stacked arguments [M, ...] on one device.

    Args:
      function: as for `over_clients`.
      size: how many clients are computed side by side.
      shared: as for `over_clients`.

    Example:
      >>> some_at_a_time(lambda x: x + 1, 2)(jnp.array([1.0, 2.0, 3.0])).tolist()
      [2.0, 3.0, 4.0]
    """

    def mapped(*stacked: PyTree) -> PyTree:
        stacked, examples = split_shared(stacked)

        def one(client: tuple) -> PyTree:
            return function(*join_shared(client, examples), *shared)

        if size == "all":
            return jax.vmap(lambda *client: one(client))(*stacked)
        # One client at a time is a plain loop, without a batch axis of length 1.
        return lax.map(one, stacked, batch_size=None if size == 1 else size)

    return mapped


def side_by_side(chunk: Chunk) -> int | Literal["all"]:
    """How many clients a device computes side by side, see `over_clients`; "auto" is decided.

    Example:
      >>> with jax.default_device("cpu"):
      ...     side_by_side("auto")
      1
    """
    if chunk == "auto":
        return 1 if target.platform() == "cpu" else "all"
    return chunk


def on_every_device(function: Callable, shared: tuple = ()) -> Callable:
    """A function of stacked arguments that each device of the mesh applies to rows of its own.

    Without a mesh in use, the function is called as it is. If the number of rows is not a multiple
    of the number of devices, the first row is computed again to fill the gap.

    Args:
      function: (shared, *stacked) -> stacked.
      shared: its first argument, the same on all devices.

    Example:
      >>> on_every_device(lambda shared, x: shared[0] * x, (10.0,))(jnp.array([1.0, 2.0])).tolist()
      [10.0, 20.0]
    """

    def spread(*stacked: PyTree) -> PyTree:
        devices = jax.sharding.get_abstract_mesh().shape.get(CLIENTS, 1)
        if devices == 1:
            return function(shared, *stacked)
        stacked, examples = split_shared(stacked)
        clients = jax.tree.leaves(stacked)[0].shape[0]
        by_clients = PartitionSpec(CLIENTS)
        specs = (PartitionSpec(), *[by_clients] * len(stacked))

        def on_device(same: tuple, *own: PyTree) -> PyTree:
            shared, examples = same
            return function(shared, *join_shared(own, examples))

        each = jax.shard_map(on_device, in_specs=specs, out_specs=by_clients, check_vma=False)
        if clients % devices == 0:
            return each((shared, examples), *stacked)
        rows = jnp.pad(jnp.arange(clients), (0, -clients % devices))
        own = jax.tree.map(lambda x: x[rows], stacked)
        filled = each((shared, examples), *own)
        return jax.tree.map(lambda x: x[:clients], filled)

    return spread
