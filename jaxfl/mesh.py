"""Devices and processes: the only file that names them.

The client axis is spread over a mesh of one axis, "clients". Local training and evaluation run each
client on one device (`tree.over_clients`); the server's step follows where its inputs lie. No
algorithm knows of it:

    with jax.set_mesh(mesh.make(4)):
        federation = mesh.place(federation)
        ...
"""

import os

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jaxfl.errors import InputError, check
from jaxfl.types import CLIENTS, Federation, Pool, State


def join(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Makes this process one of several that run the same program on the same data, on one host or on many.

    Before anything else of JAX. All None: as the cluster says (SLURM, Open MPI, Cloud TPU). On CPU
    the processes speak through gloo.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: how many there are.
      process: the number of this one, from 0.

    Raises:
      InputError: they do not find each other, or JAX has already started.
    """
    if coordinator is not None:
        port = coordinator.rpartition(":")[2]
        known = ":" in coordinator and port.isdecimal() and 0 < int(port) < 2**16
        check(known, f"the coordinator {coordinator!r}: expected HOST:PORT, as localhost:8476")
    if processes is not None and process is not None:
        check(
            0 <= process < processes,
            f"process {process} of {processes} processes: expected 0 or more and less than --processes",
        )
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"the processes cannot join ({reason}): start each with the same coordinator HOST:PORT and number of "
            "processes, and its own process number from 0"
        ) from error


def prepare_host(devices: int | None = None) -> None:
    """Lets the CPU count as so many devices, one a core if None; nothing if JAX has already started.

    Two devices of one core each train clients faster than one device of two cores:
    docs/performance.md.
    """
    try:
        jax.config.update("jax_num_cpu_devices", devices or os.cpu_count() or 1)
    except RuntimeError:
        return  # the backend runs with what it has; `make` says if that is too few


def make(devices: int | None = None) -> Mesh:
    """A mesh of the first `devices` devices of each process along the client axis; of all if None.

    Raises:
      InputError: there are not so many.
    """
    every = [jax.local_devices(process) for process in range(jax.process_count())]
    there = min(map(len, every))
    count = there if devices is None else devices
    check(
        1 <= count <= there,
        f"{count} devices asked for: JAX has {there} ({every[0][0].device_kind}), ask for 1 to {there}; on CPU set "
        f"JAX_NUM_CPU_DEVICES={count} before the program starts",
    )
    chosen = [device for local in every for device in local[:count]]
    # Auto: under JAX's default, Explicit, each type would carry its layout and `vmap` over clients
    # fails.
    return jax.make_mesh((len(chosen),), (CLIENTS,), axis_types=(AxisType.Auto,), devices=chosen)


def place(tree: PyTree, *, axis: int = 0) -> PyTree:
    """Puts a federation, a state or a stack on the devices of the mesh in use (`jax.set_mesh`).

    Client axes are split evenly where the devices divide them; all else is on every device.
    Every process passes the same values. Without a mesh: the tree itself.

    Args:
      tree: a `Federation`, a `State`, or a pytree [C, ...].
      axis: of the clients; 1 behind an axis of seeds.
    """
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        return tree
    if isinstance(tree, State):
        return State(place(tree.clients, axis=axis), _put(tree.server, mesh, None))
    if isinstance(tree, Federation):
        return Federation(*(place(part, axis=axis) for part in tree))
    if isinstance(tree, Pool):
        return Pool(_put(tree.x, mesh, None), _put(tree.y, mesh, None), place(tree.mask, axis=axis))
    return _put(tree, mesh, axis)


def _put(tree: PyTree, mesh: Mesh, axis: int | None) -> PyTree:
    def leaf(x: jax.Array | np.ndarray) -> jax.Array:
        even = axis is not None and x.shape[axis] % mesh.size == 0
        sharding = NamedSharding(
            mesh, PartitionSpec(*[None] * axis, CLIENTS) if even else PartitionSpec()
        )
        if jax.process_count() == 1:
            return jax.device_put(x, sharding)
        if (
            isinstance(x, jax.Array) and not x.is_fully_addressable
        ):  # on the mesh already, in some layout
            return jax.jit(lambda x: x, out_shardings=sharding)(x)
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(leaf, tree)


def fetch(tree: PyTree) -> PyTree:
    """The tree as NumPy arrays, whole on every process."""
    if jax.process_count() == 1:
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def anywhere(flag: bool) -> bool:
    """Whether the flag is set in any of the processes, each of which asks."""
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.array(flag)).any())


def leads() -> bool:
    """Whether this is the process that writes files and speaks."""
    return jax.process_index() == 0
