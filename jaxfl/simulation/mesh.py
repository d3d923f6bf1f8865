"""Devices and processes; no other file names them.

The client axis is divided over a mesh of one axis, "clients". Local training and evaluation run
each client on one device (`over_clients`); the server's step runs where its inputs are.
Algorithms are the same with and without a mesh:

    with jax.set_mesh(mesh.make_mesh(4)):
        federation = mesh.place(federation)
        ...
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import jaxlib.version
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from jaxfl.core.errors import InputError, check, warn
from jaxfl.core.ragged import join_shared, split_shared
from jaxfl.core.types import CLIENTS, Federation, Pool, State
from jaxfl.simulation import rendezvous

# The devices of a CPU share a pool of threads, and a device that waits for another one in a
# collective operation keeps its thread. By default XLA starts whatever is ready. Where a branch has
# collective operations, and others are ready beside it, one device can take all threads, and the
# process aborts after 40 s. So did four of five runs of FedSEM on two cores; with this flag none.
IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
# Versions of jaxlib in which the flag was tried: XLA aborts on a flag that it does not know.
KNOWN_IN = ((0, 10),)
# Seconds without a sign of life after which JAX counts a process as lost.
HEARTBEAT = 40
# Bytes of an array that every device gets at once, where its parts lie in several processes
PIECE = 2**26


def join_processes(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout: float = 300.0,
) -> None:
    """Joins several processes, on one host or many, that run the same program on the same data.

    It must be the first use of JAX. If all arguments are None they are taken from the cluster
    (SLURM, Open MPI, Kubernetes, Cloud TPU). On CPU the processes communicate through gloo. A
    process that waits for others says so. GPUs of a host are dealt out to its processes
    (`devices_of_process`), unless JAX_LOCAL_DEVICE_IDS names those of this process.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: number of processes.
      process: index of this process, from 0.
      timeout: seconds to wait for the other processes.

    Raises:
      InputError: the processes do not find each other, or JAX has already started.
    """
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    if coordinator is None or processes is None or process is None:
        coordinator, processes, process = _of_cluster(coordinator, processes, process, timeout)
    rendezvous.split(coordinator)
    check(
        0 <= process < processes,
        f"process {process} of {processes} processes: expected 0 or more and less than --processes",
    )
    devices = None
    if processes > 1:
        hosts = rendezvous.meet(coordinator, processes, process, float(timeout), warn)
        if "JAX_LOCAL_DEVICE_IDS" not in os.environ:
            devices = devices_of_process(hosts, process, os.environ, _installed_gpus())
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            local_device_ids=devices,
            cluster_detection_method="deactivate",
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"the processes cannot join ({reason}): start each with the same coordinator "
            "HOST:PORT and number of processes, and its own process number from 0"
        ) from error


def _of_cluster(
    coordinator: str | None, processes: int | None, process: int | None, timeout: float
) -> tuple[str, int, int]:
    """The arguments of `join_processes` of which some are None."""
    # JAX has no public name for it.
    from jax._src.clusters import ClusterEnv

    reason = "none is at hand"
    try:
        coordinator, processes, process, _ = ClusterEnv.auto_detect_unset_distributed_params(
            coordinator, processes, process, None, None, int(timeout)
        )
    except (RuntimeError, ValueError, KeyError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    if coordinator is None or processes is None or process is None:
        raise InputError(
            f"no cluster says which processes run together ({reason}): start them by SLURM's srun, "
            "Open MPI's mpirun, as a job of Kubernetes or on a Cloud TPU, or name the coordinator"
        )
    return coordinator, processes, process


def devices_of_process(
    hosts: Sequence[str], process: int, environment: Mapping[str, str], installed: int
) -> list[int] | None:
    """Which GPUs of its host a process uses, by their places among those that it sees.

    A process that is alone on its host uses all of them. Several share them evenly, unless the
    scheduler has already given each its own: if it sees one, or if SLURM has `--gpus-per-task`.

    Args:
      hosts: the host of each process.
      process: index of this process.
      environment: its environment, where CUDA_VISIBLE_DEVICES may say which GPUs it sees.
      installed: how many GPUs it sees otherwise.

    Returns:
      The places, None for all that it sees.

    Example:
      >>> devices_of_process(["a", "b"], 1, {}, 8)
      >>> devices_of_process(["a", "a"], 1, {}, 8)
      [4, 5, 6, 7]
      >>> devices_of_process(["a", "a"], 1, {"CUDA_VISIBLE_DEVICES": "5"}, 8)
    """
    here = [number for number, host in enumerate(hosts) if host == hosts[process]]
    visible = environment.get("CUDA_VISIBLE_DEVICES", environment.get("ROCR_VISIBLE_DEVICES"))
    count = installed if visible is None else len([one for one in visible.split(",") if one])
    share = count // len(here)
    if len(here) == 1 or share == 0 or "SLURM_GPUS_PER_TASK" in environment:
        return None
    first = share * here.index(process)
    return list(range(first, first + share))


def _installed_gpus() -> int:
    """The number of NVIDIA's GPUs in this host."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def check_backend() -> None:
    """Starts JAX, and connects the processes that run together.

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
    any_process(False)


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

    A folder that the user has set stays. Of several processes the first one writes, and all read.
    """
    _share_programs()
    # JAX adds its flags to the class at run time.
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(root / "jaxfl"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def _share_programs() -> None:
    """Makes the processes of a CPU know programs by the same names, those of process 0.

    In JAX's cache the name of a program has the fingerprint of the CPU, in which jaxlib includes
    the number of the process, and process 0 alone writes: the others would find nothing.
    """
    known = jaxlib.version.__version_info__[:2] in KNOWN_IN
    if jax.process_count() == 1 or jax.default_backend() != "cpu" or not known:
        return
    # JAX has no public names for these.
    from jax._src import cache_key
    from jax._src.lib import xla_client  # pyright: ignore[reportPrivateImportUsage]

    alone = xla_client.make_cpu_client(num_devices=jax.local_device_count())
    fingerprint = xla_client.get_topology_for_devices(alone.devices()).fingerprint()

    def add_fingerprint(content: Any, devices: np.ndarray) -> None:
        content.update(fingerprint.to_bytes(8, byteorder="big"))

    cache_key._hash_accelerator_config = add_fingerprint


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
