"""Devices and processes; no other file names them.

The client axis is divided over a mesh of one axis, "clients". Local training and evaluation run
each client on one device (`over_clients`); the server's step runs where its inputs are.
Algorithms are the same with and without a mesh:

    with jax.set_mesh(mesh.make_mesh(4)):
        federation = mesh.place(federation)
        ...
"""

import os
from pathlib import Path

import jax
import jaxlib.version
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jaxfl.core.errors import InputError, check
from jaxfl.core.ragged import join_shared, split_shared
from jaxfl.core.types import CLIENTS, Federation, Pool, State

# The devices of a CPU share a pool of threads, and a device that waits for another one in a
# collective operation keeps its thread. By default XLA starts whatever is ready. Where a branch has
# collective operations, and others are ready beside it, one device can take all threads, and the
# process aborts after 40 s. So did four of five runs of FedSEM on two cores; with this flag none.
IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
# Versions of jaxlib in which the flag was tried: XLA aborts on a flag that it does not know.
KNOWN_IN = ((0, 10),)


def join_processes(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Joins several processes, on one host or many, that run the same program on the same data.

    It must be the first use of JAX. If all arguments are None they are taken from the cluster
    (SLURM, Open MPI, Cloud TPU). On CPU the processes communicate through gloo.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: number of processes.
      process: index of this process, from 0.

    Raises:
      InputError: the processes do not find each other, or JAX has already started.
    """
    if coordinator is not None:
        port = coordinator.rpartition(":")[2]
        valid = ":" in coordinator and port.isdecimal() and 0 < int(port) < 2**16
        check(valid, f"the coordinator is {coordinator!r}: expected HOST:PORT, as localhost:8476")
    if processes is not None and process is not None:
        check(
            0 <= process < processes,
            f"process {process} of {processes} processes: "
            "expected 0 or more and less than --processes",
        )
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if coordinator is processes is process is None:
            raise InputError(
                f"no cluster says which processes run together ({reason}): start them by SLURM's "
                "srun, Open MPI's mpirun or on a Cloud TPU, or name the coordinator"
            ) from error
        raise InputError(
            f"the processes cannot join ({reason}): start each with the same coordinator "
            "HOST:PORT and number of processes, and its own process number from 0"
        ) from error


def check_backend() -> None:
    """Starts JAX.

    Raises:
      InputError: it finds no device of the kind that is asked for, or it may not compile.
    """
    # JAX adds its flags to the class at run time.
    disabled = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
    check(
        not disabled,
        "JAX_DISABLE_JIT is set, and a run is a compiled program: unset it",
    )
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue]
        backend = platforms or "its default"
        raise InputError(
            f"JAX cannot start on {backend} ({reason:.200}): install it for that device, or set "
            "JAX_PLATFORMS=cpu"
        ) from error


def prepare_host(devices: int | None = None) -> None:
    """Makes JAX see the CPU as that many devices, one per core if None.

    Two devices of one core each train clients faster than one device of two cores
    (docs/performance.md). It has no effect after JAX has started.

    It also adds `IN_ORDER` to the environment's XLA_FLAGS, under versions that know it.
    """
    try:
        jax.config.update("jax_num_cpu_devices", devices or os.cpu_count() or 1)
    except RuntimeError:
        return  # the number of devices is fixed now; `make_mesh` tells if they are too few
    flags = os.environ.get("XLA_FLAGS", "")
    option = IN_ORDER.partition("=")[0]
    if jaxlib.version.__version_info__[:2] in KNOWN_IN and option not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {IN_ORDER}".strip()


def keep_programs() -> None:
    """Compiled programs are kept between runs, below the user's cache folder.

    A folder that the user has set stays.
    """
    # JAX adds its flags to the class at run time.
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(root / "jaxfl"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


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
            return jax.device_put(x, sharding)
        # An array that is already on the mesh, in any layout.
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            return jax.jit(lambda x: x, out_shardings=sharding)(x)
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return jax.tree.map(leaf, tree)


def _share(tree: PyTree, mesh: Mesh) -> PyTree:
    """Puts examples that all clients share on every device."""
    if jax.process_count() == 1 and mesh.devices.flat[0].platform == "cpu":
        # The devices of a CPU share the memory of a NumPy array; of a JAX array each has a copy.
        tree = jax.tree.map(np.asarray, tree)
    return _put(tree, mesh, None)


def fetch(tree: PyTree) -> PyTree:
    """The tree as NumPy arrays, complete on every process.

    Example:
      >>> type(fetch(jnp.zeros(2))).__name__
      'ndarray'
    """
    if jax.process_count() == 1:
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process; all processes must call it.

    Example:
      >>> any_process(False), any_process(True)
      (False, True)
    """
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.array(flag)).any())


def from_main_process(text: str) -> str:
    """The text that the main process has; all processes must call it.

    Example:
      >>> from_main_process("runs/2026-01-01")
      'runs/2026-01-01'
    """
    if jax.process_count() == 1:
        return text
    letters = np.zeros(4096, np.uint8)
    content = np.frombuffer(text.encode()[:4096], np.uint8)
    letters[: content.size] = content
    return bytes(multihost_utils.broadcast_one_to_all(letters)).rstrip(b"\0").decode()


def is_main_process() -> bool:
    """Whether this is the process that writes files and prints.

    Example:
      >>> is_main_process()
      True
    """
    return jax.process_index() == 0
