"""Locks of directories: which process may write a run, and which of them workers share."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jaxfl.core.errors import InputError, warn
from jaxfl.core.file_locks import claim, holder
from jaxfl.experiment.store import files
from jaxfl.simulation import processes

MOUNTS = Path("/proc/self/mounts")  # of Linux: what file systems there are, and their options
# Options of network file systems with which a lock is known to one host alone.
LOCAL_LOCKS = {"nolock", "local_lock=all", "local_lock=flock", "localflock", "nobrl"}
PATIENCE = 10.0  # seconds that a worker waits while others enter, who do so one at a time


def check_free(directories: list[Path], overwrite: bool) -> None:
    """Checks, in the process that will write, that files may be written; creates nothing.

    Raises:
      InputError: a directory holds a run or a comparison, cannot be one, or another process writes
        into it.
    """
    if processes.is_main_process():
        for directory in directories:
            files.check_empty(directory, overwrite)
            if any(directory.glob(f"{files.LOCK}*")):
                with locked(directory):
                    pass


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Within, no other process may lock the directory, which is created if there is none.

    Of several processes that run together, the first one holds the lock.

    Raises:
      InputError: another process holds the lock, or the directory cannot be written.
    """
    if not processes.is_main_process():
        yield
        return
    files.make_directory(directory)
    path = directory / files.LOCK
    with ExitStack() as stack:
        _take(stack, path)
        for worker in sorted(directory.glob(f"{files.LOCK}-*")):
            with ExitStack() as moment:
                _take(moment, worker)
        yield


@contextmanager
def shared(directory: Path) -> Iterator[None]:
    """Within, other processes may be within `shared` too, and none within `locked`.

    Raises:
      InputError: a process has locked the directory, or locks are not to be had there.
    """
    files.make_directory(directory)
    _warn_of_local_locks(directory)
    path = directory / files.LOCK
    with ExitStack() as stack:
        with ExitStack() as moment:
            _take(moment, path, seconds=PATIENCE, needed=True)
            for other in sorted(directory.glob(f"{files.LOCK}-*")):
                with claim(other):  # which removes what a worker that was killed has left
                    pass
            # Each worker has a file of its own, which `locked` looks for.
            _take(stack, directory / f"{files.LOCK}-{secrets.token_hex(8)}", needed=True)
        yield


@contextmanager
def alone(path: Path, named_by: str = "--out") -> Iterator[None]:
    """Within, no other process is: it waits here while another one makes the same path.

    The lock is a file `beside` the path, which need not exist; the folder above it is made.

    Args:
      path: of the directory or the file that is made.
      named_by: the option that names it, for messages.
    """
    files.make_directory(path.absolute().parent, named_by)
    with claim(beside(path), seconds=-1.0):
        yield


def beside(path: Path) -> Path:
    """The file whose lock is that of a directory, or of a file, which need not exist.

    Example:
      >>> beside(Path("runs/table.json")).as_posix()
      'runs/.table.json.lock'
    """
    return path.with_name(f".{path.name}{files.LOCK}")


def _take(stack: ExitStack, path: Path, *, seconds: float = 0.0, needed: bool = False) -> None:
    """Enters `claim` of a lock of a directory, in a stack.

    Raises:
      InputError: another process has it.
    """
    if not stack.enter_context(claim(path, seconds=seconds, needed=needed)):
        who = holder(path)
        raise InputError(
            f"another process writes the run in {path.parent}: wait for its end"
            f"{f' ({who})' if who else ''}, or choose another --out"
        )


def _warn_of_local_locks(directory: Path) -> None:
    """Warns where a network file system is mounted so that other hosts do not see its locks."""
    try:
        lines = [line.split() for line in MOUNTS.read_text().splitlines()]
    except OSError:
        return  # not Linux
    places = {Path(words[1].replace("\\040", " ")): words[3] for words in lines if len(words) > 3}
    full = directory.resolve()
    options = next((places[one] for one in (full, *full.parents) if one in places), "")
    names = sorted(LOCAL_LOCKS & set(options.split(",")))
    if names:
        warn(
            f"{directory} is on a file system whose locks other hosts do not see (it is mounted "
            f"with {names[0]}): start workers on this host alone"
        )
