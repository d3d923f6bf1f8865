"""A function of one client, over stacked clients: side by side, in chunks, on several devices."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree

from jaxfl.core import target
from jaxfl.core.options import checked
from jaxfl.core.ragged import join_shared, split_shared
from jaxfl.core.types import CLIENTS, Chunk


@checked
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


@checked
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

    def map_clients(*stacked: PyTree) -> PyTree:
        stacked, examples = split_shared(stacked)

        def one(client: tuple) -> PyTree:
            return function(*join_shared(client, examples), *shared)

        if size == "all":
            return jax.vmap(lambda *client: one(client))(*stacked)
        # One client at a time is a plain loop, without a batch axis of length 1.
        return lax.map(one, stacked, batch_size=None if size == 1 else size)

    return map_clients


@checked
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


def devices_in_use() -> int:
    """How many devices the clients are divided over where this is traced: 1 on one of them.

    Example:
      >>> devices_in_use()
      1
    """
    mesh = jax.sharding.get_abstract_mesh()
    return mesh.shape[CLIENTS] if CLIENTS in mesh.auto_axes else 1


def on_every_device(function: Callable, shared: tuple = ()) -> Callable:
    """A function of stacked arguments that each device of the mesh applies to rows of its own.

    Without a mesh in use, or on one of its devices, the function is called as it is. If the number
    of rows is not a multiple of that of devices, the first row fills the gap; a device that would
    have this row alone computes nothing.

    Args:
      function: (shared, *stacked) -> stacked.
      shared: its first argument, the same on all devices.

    Example:
      >>> on_every_device(lambda shared, x: shared[0] * x, (10.0,))(jnp.array([1.0, 2.0])).tolist()
      [10.0, 20.0]
    """

    def spread(*stacked: PyTree) -> PyTree:
        devices = devices_in_use()
        if devices == 1:
            return function(shared, *stacked)
        stacked, examples = split_shared(stacked)
        clients = jax.tree.leaves(stacked)[0].shape[0]
        by_clients = PartitionSpec(CLIENTS)
        specs = (PartitionSpec(), *[by_clients] * len(stacked))
        # The devices that have rows of their own
        busy = -(-clients // -(-clients // devices))

        def on_device(same: tuple, *local: PyTree) -> PyTree:
            def compute() -> PyTree:
                shared, examples = same
                return function(shared, *join_shared(local, examples))

            if busy == devices:
                return compute()
            nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(compute))
            return lax.cond(lax.axis_index(CLIENTS) < busy, compute, lambda: nothing)

        each = jax.shard_map(on_device, in_specs=specs, out_specs=by_clients, check_vma=False)
        if clients % devices == 0:
            return each((shared, examples), *stacked)
        gap = -clients % devices

        def fill(x: Array) -> Array:
            return jnp.concatenate([x, jnp.broadcast_to(x[:1], (gap, *x.shape[1:]))])

        stacked = jax.tree.map(fill, stacked)
        results = each((shared, examples), *stacked)
        return jax.tree.map(lambda x: x[:clients], results)

    return spread
