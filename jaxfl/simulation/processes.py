"""Processes: what is settled before JAX starts, how they join, and what they tell each other.

Each process has its devices and the cache of compiled programs; the first one writes files.
"""

import contextlib
import hashlib
import os
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jax
import jaxlib.version
import numpy as np
from jax.errors import JaxRuntimeError
from jax.experimental import multihost_utils

from jaxfl.core.errors import InputError, check
from jaxfl.core.version import VERSION

# XLA runs the collective operations of a program in the same order on all devices of a CPU. Of a
# program from JAX's cache it forgets this for those inside a loop or a branch beside those outside,
# since it makes an order of its own for each (jaxlib 0.10, xla/backends/cpu/runtime/
# thunk_proto_serdes.cc, WhileThunkFromProto). Two devices can then wait for each other. In one
# process FedSEM aborted after 40 s in four of five runs; with this flag, by which XLA starts less
# side by side, none did. Several processes keep no programs (`check_backend`).
IN_ORDER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
# Versions of jaxlib in which the flag was tried: XLA aborts on a flag that it does not know.
KNOWN_IN = ((0, 10),)
# Seconds without a sign of life after which JAX counts a process as lost.
HEARTBEAT = 40


def join_processes(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout: float = 300.0,
) -> None:
    """Joins several processes, on one host or many, that run the same program on the same data.

    It must be the first use of JAX. If all arguments are None they are taken from the cluster
    (SLURM, Open MPI, Kubernetes, Cloud TPU). On CPU the processes communicate through gloo. Where
    the processes do not find each other in time, JAX ends them by `abort`, with a log in C++ (the
    command line says it in one line). GPUs of a host are dealt out to its processes
    (`devices_of_process`), unless JAX_LOCAL_DEVICE_IDS names those of this process. Processes on
    CPU do not use JAX's cache of compiled programs, with which they could wait for each other for
    ever.

    Args:
      coordinator: HOST:PORT of process 0.
      processes: number of processes.
      process: index of this process, from 0.
      timeout: seconds to wait for the other processes.

    Raises:
      InputError: the processes were started differently, or JAX has already started.
    """
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    if coordinator is None or processes is None or process is None:
        coordinator, processes, process = _of_cluster(coordinator, processes, process, timeout)
    port = coordinator.rpartition(":")[2]
    check(
        ":" in coordinator and port.isdecimal() and 0 < int(port) < 2**16,
        f"the coordinator is {coordinator!r}: expected HOST:PORT, as localhost:8476",
    )
    check(
        0 <= process < processes,
        f"process {process} of {processes} processes: expected 0 or more and less than that",
    )
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, round(timeout)),
            heartbeat_timeout_seconds=HEARTBEAT,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"the processes cannot join ({reason}): start each with the same coordinator "
            "HOST:PORT and number of processes, and its own process number from 0"
        ) from error
    if processes > 1:
        hosts = _hosts(processes, process, timeout)
        devices = devices_of_process(hosts, process, os.environ, _installed_gpus())
        if devices is not None and "JAX_LOCAL_DEVICE_IDS" not in os.environ:
            for platform in ("cuda", "rocm"):  # as `initialize` does it
                jax.config.update(f"jax_{platform}_visible_devices", ",".join(map(str, devices)))
    check_backend()


def _hosts(processes: int, process: int, timeout: float) -> list[str]:
    """The host of each process, which all of them tell the service of JAX.

    Raises:
      InputError: another process has another version of jaxfl, or does not tell.
    """
    # JAX has no public name for it.
    from jax._src.distributed import global_state

    client = cast(Any, global_state.client)
    client.key_value_set(f"jaxfl/{process}", f"{VERSION} {socket.gethostname()}")
    hosts = []
    for number in range(processes):
        try:
            answer = client.blocking_key_value_get(f"jaxfl/{number}", round(1000 * timeout))
        except JaxRuntimeError as error:
            raise InputError(
                f"process {number} of {processes} has not come within {timeout:g} s: start each "
                "with the same number of processes, and its own process number from 0"
            ) from error
        version, _, host = answer.partition(" ")
        check(
            version == VERSION,
            f"process {number} has jaxfl {version}, this one has {VERSION}: install one version",
        )
        hosts.append(host)
    return hosts


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
      InputError: it finds no device of the kind that is asked for, it may not compile, or another
        process has another number of devices.
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
    if jax.process_count() > 1 and jax.default_backend() == "cpu":
        # Before the first program: JAX asks once. Why: `IN_ORDER`.
        jax.config.update("jax_enable_compilation_cache", False)
    counts = Counter(device.process_index for device in jax.devices())
    numbers = [str(counts[process]) for process in range(jax.process_count())]
    check(
        len(set(numbers)) == 1,
        f"the processes that run together have {', '.join(numbers)} devices: give each the same "
        "number (by --devices on a CPU, by CUDA_VISIBLE_DEVICES on GPUs)",
    )
    any_process(False)


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

    A folder that the user has set stays. Of several processes on GPUs the first one writes, and all
    read; on CPU they keep none.
    """
    # JAX adds its flags to the class at run time.
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder is None:
        jax.config.update("jax_compilation_cache_dir", str(_own_cache()))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def drop_programs() -> bool:
    """Removes all programs that `keep_programs` has kept, unless the folder is the user's.

    JAX neither mends nor replaces one that a full disk has cut, and warns of it in each run.

    Returns:
      Whether the programs are kept there.

    Example:
      >>> drop_programs()  # nothing is kept here
      False
    """
    # JAX adds its flags to the class at run time.
    folder = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if folder != str(_own_cache()):
        return False
    for file in _own_cache().glob("*-cache"):
        with contextlib.suppress(OSError):
            file.unlink()
    return True


def _own_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "jaxfl"


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process; all processes must call it.

    Example:
      >>> any_process(False), any_process(True)
      (False, True)
    """
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.array(flag)).any())


def check_alike(facts: Mapping[str, object]) -> None:
    """Checks that all processes that run together have the same facts; all must call it.

    Args:
      facts: by what a message calls them, in the same order in all processes. Those of two
        processes are the same if `repr` writes them alike.

    Raises:
      InputError: a process has another fact; all processes raise it.

    Example:
      >>> check_alike({"--rounds": 3}) is None
      True
    """
    if jax.process_count() == 1:
        return
    digests = [hashlib.sha256(repr(fact).encode()).digest() for fact in facts.values()]
    rows = np.frombuffer(b"".join(digests), np.uint8).reshape(len(digests), -1)
    each = multihost_utils.process_allgather(rows)
    differ = (each != each[:1]).any(axis=(0, 2))
    names = [name for name, one in zip(facts, differ, strict=True) if one]
    check(
        not names,
        f"the processes that run together differ in {', '.join(names)}: start each with the same "
        "options, data and files",
    )


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
