"""The layout of arrays over devices; no other file names these.

The client axis is divided over a mesh of one axis, "clients". Local training and evaluation run
each client on one device (`over_clients`). The server's step runs where its inputs are; on a CPU
each device makes the cosines and mixtures of its own clients.
Algorithms are the same with and without a mesh:

    with jax.set_mesh(mesh.make_mesh(4)):
        federation = mesh.place(federation)
        ...

`jaxfl.mesh` has the public names of `processes` too.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jaxfl.core.errors import check
from jaxfl.core.ragged import join_shared, split_shared
from jaxfl.core.types import CLIENTS, Federation, Pool, State
from jaxfl.simulation.processes import HEARTBEAT as HEARTBEAT
from jaxfl.simulation.processes import IN_ORDER as IN_ORDER
from jaxfl.simulation.processes import KNOWN_IN as KNOWN_IN
from jaxfl.simulation.processes import any_process as any_process
from jaxfl.simulation.processes import check_backend as check_backend
from jaxfl.simulation.processes import devices_of_process as devices_of_process
from jaxfl.simulation.processes import from_main_process as from_main_process
from jaxfl.simulation.processes import is_main_process as is_main_process
from jaxfl.simulation.processes import join_processes as join_processes
from jaxfl.simulation.processes import keep_programs as keep_programs
from jaxfl.simulation.processes import prepare_host as prepare_host

# Bytes of an array that every device gets at once, where its parts lie in several processes
PIECE = 2**26


def connect(devices: int) -> None:
    """One tiny collective operation on the devices of a run, if several processes have them.

    Gloo connects the processes at the first such operation, and allows 30 s between them: a program
    that one process has to compile and another one finds in its cache may take longer.

    Args:
      devices: how many of each process.
    """
    if jax.process_count() > 1:
        mesh = make_mesh(devices)
        with jax.set_mesh(mesh):
            ones = place(np.ones(mesh.size, np.float32))
            jax.block_until_ready(jax.jit(jnp.sum)(ones))


def make_mesh(devices: int | None = None) -> Mesh:
    """A mesh of the first `devices` devices of each process along the client axis; all if None.

    Raises:
      InputError: a process has fewer devices.

    Example:
      >>> make_mesh(devices=1).axis_names
      ('clients',)
    """
    every = [jax.local_devices(process) for process in range(jax.process_count())]
    available = min(map(len, every))
    count = available if devices is None else devices
    check(
        1 <= count <= available,
        f"{count} devices asked for: JAX has {available} ({every[0][0].device_kind}), "
        f"ask for 1 to {available}; on CPU set JAX_NUM_CPU_DEVICES={count} "
        "before the program starts",
    )
    mesh_devices = [device for local in every for device in local[:count]]
    # Under JAX's default, Explicit, the layout would be part of each array's type, and `vmap` over
    # clients would fail.
    return jax.make_mesh(
        (len(mesh_devices),), (CLIENTS,), axis_types=(AxisType.Auto,), devices=mesh_devices
    )


def place(tree: PyTree, *, axis: int = 0) -> PyTree:
    """Puts a federation, a state or a stack on the devices of the mesh in use (`jax.set_mesh`).

    A client axis is divided among the devices if their number divides it. Everything else is copied
    to every device; the devices of a CPU share one copy. The examples of `Ragged` arrays are copied
    too, since each device reads those of its clients by row number. Every process passes the same
    values. Without a mesh the tree itself is returned.

    Args:
      tree: a `Federation`, a `State`, or a pytree [C, ...].
      axis: of the clients; 1 behind an axis of seeds.

    Example:
      >>> with jax.set_mesh(make_mesh(devices=1)):
      ...     models = place(jnp.zeros((4, 2)))
      >>> tuple(models.sharding.spec)
      ('clients',)
    """
    mesh = jax.sharding.get_mesh()
    if mesh.empty:
        return tree
    if isinstance(tree, State):
        return State(place(tree.clients, axis=axis), _put(tree.server, mesh, None))
    if isinstance(tree, Federation):
        return Federation(*(place(data, axis=axis) for data in tree))
    if isinstance(tree, Pool):
        x, y, groups = _share((tree.x, tree.y, tree.groups), mesh)
        return Pool(x, y, place(tree.mask, axis=axis), groups)
    by_client, shared = split_shared(tree)
    return join_shared(_put(by_client, mesh, axis), _share(shared, mesh))


def pad(tree: PyTree, *, axis: int = 0) -> PyTree:
    """The tree with clients of zeros, so that the devices of the mesh in use divide their number.

    So `place` divides it among the devices whatever the number of clients. Without a mesh the tree
    itself is returned.

    Args:
      tree: as for `place`.
      axis: of the clients; 1 behind an axis of seeds.

    Example:
      >>> with jax.set_mesh(make_mesh(devices=1)):
      ...     pad(jnp.ones((3, 2))).shape
      (3, 2)
    """
    devices = jax.sharding.get_abstract_mesh().shape.get(CLIENTS, 1)

    def leaf(x: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        gap = -x.shape[axis] % devices
        return jnp.pad(x, [(0, gap * (number == axis)) for number in range(x.ndim)]) if gap else x

    return _map_clients(leaf, tree)


def unpad(tree: PyTree, clients: int, *, axis: int = 0) -> PyTree:
    """The tree without the clients that `pad` has added.

    Args:
      tree: as for `place`, of arrays of JAX or NumPy.
      clients: how many there are.
      axis: of the clients.

    Example:
      >>> unpad(np.zeros((8, 2)), 5).shape
      (5, 2)
    """

    def leaf(x: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
        rows = [slice(None)] * axis + [slice(clients)]
        return x[tuple(rows)] if x.shape[axis] > clients else x

    return _map_clients(leaf, tree)


def _map_clients(function: Callable, tree: PyTree) -> PyTree:
    """The tree with a function applied to each array that has the client axis."""
    if isinstance(tree, State):
        return State(_map_clients(function, tree.clients), tree.server)
    if isinstance(tree, Federation):
        return Federation(*(_map_clients(function, data) for data in tree))
    if isinstance(tree, Pool):
        return tree._replace(mask=_map_clients(function, tree.mask))
    by_client, shared = split_shared(tree)
    return join_shared(jax.tree.map(function, by_client), shared)


def layout(stacked: PyTree, *, axis: int = 0) -> PyTree:
    """The sharding that `place` gives to each leaf of a stack; None without a mesh.

    Args:
      stacked: a pytree [C, ...] of arrays or of their shapes.
      axis: of the clients.

    Example:
      >>> with jax.set_mesh(make_mesh(devices=1)):
      ...     tuple(layout(jnp.zeros((4, 2))).spec)
      ('clients',)
    """
    mesh = jax.sharding.get_mesh()
    return jax.tree.map(lambda x: None if mesh.empty else _sharding(x.shape, mesh, axis), stacked)


def _sharding(shape: tuple[int, ...], mesh: Mesh, axis: int | None) -> NamedSharding:
    if axis is not None and shape[axis] % mesh.size == 0:
        return NamedSharding(mesh, PartitionSpec(*[None] * axis, CLIENTS))
    return NamedSharding(mesh, PartitionSpec())


def _put(tree: PyTree, mesh: Mesh, axis: int | None) -> PyTree:
    def leaf(x: jax.Array | np.ndarray) -> jax.Array:
        sharding = _sharding(x.shape, mesh, axis)
        if jax.process_count() == 1:
            return jax.device_put(_on_host(x, mesh), sharding)
        # An array that is already on the mesh, in any layout.
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return jax.jit(lambda x: x, out_shardings=sharding)(x)
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(leaf, tree)


def _on_host(x: jax.Array | np.ndarray, mesh: Mesh) -> jax.Array | np.ndarray:
    """An array of a CPU as NumPy's, which takes no memory.

    The devices of a CPU share the memory of a NumPy array. Of a JAX array each has a copy, and a
    program is compiled that cuts it.
    """
    cpu = mesh.devices.flat[0].platform == "cpu"
    one_device = not isinstance(x, jax.Array) or len(x.sharding.device_set) == 1
    key = jnp.issubdtype(x.dtype, jax.dtypes.extended)
    return np.asarray(x) if cpu and one_device and not key else x


def _share(tree: PyTree, mesh: Mesh) -> PyTree:
    """Puts examples that all clients share on every device."""
    return _put(tree, mesh, None)


def fetch(tree: PyTree) -> PyTree:
    """The tree as NumPy arrays, complete on every process.

    Example:
      >>> type(fetch(jnp.zeros(2))).__name__
      'ndarray'
    """
    if jax.process_count() == 1:
        return jax.device_get(tree)
    return jax.tree.map(_gather, tree)


def _gather(x: jax.Array | np.ndarray) -> np.ndarray:
    """The whole of an array of which each process has a part."""
    if isinstance(x, jax.Array) and not x.is_fully_addressable:
        if x.is_fully_replicated:
            return np.asarray(x.addressable_data(0))
        if x.nbytes > PIECE:
            return gather_in_pieces(x)
    return multihost_utils.process_allgather(x, tiled=True)


def gather_in_pieces(x: jax.Array, size: int = PIECE) -> np.ndarray:
    """The whole of an array whose clients are divided among devices, piece after piece.

    So a device holds its own clients and one piece of all clients, not a copy of the array.

    Args:
      x: [C, ...], or with the clients at another axis.
      size: bytes of a piece.

    Example:
      >>> with jax.set_mesh(make_mesh(devices=1)):
      ...     models = place(jnp.arange(6.0).reshape(2, 3))
      >>> gather_in_pieces(models, size=8).tolist()
      [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    sharding = cast(NamedSharding, x.sharding)
    axis = sharding.spec.index(CLIENTS) if CLIENTS in sharding.spec else 0
    mesh = sharding.mesh
    clients = x.shape[axis]
    others = [length for number, length in enumerate(x.shape) if number != axis]
    columns = math.prod(others)
    width = min(columns, max(1, size // (clients * x.dtype.itemsize)))

    @partial(jax.jit, out_shardings=NamedSharding(mesh, PartitionSpec()))
    def cut(x: jax.Array, start: jax.Array) -> jax.Array:
        rows = jnp.moveaxis(x, axis, 0).reshape(clients, columns)
        return jax.lax.dynamic_slice_in_dim(rows, start, width, axis=1)

    whole = np.empty((clients, columns), x.dtype)
    for start in range(0, columns, width):
        # The last piece may begin within the one before.
        first = min(start, columns - width)
        whole[:, first : first + width] = cut(x, np.int32(first)).addressable_data(0)
    return np.moveaxis(whole.reshape(clients, *others), 0, axis)
