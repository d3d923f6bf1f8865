"""Locks of directories and files: which process may write, and which runs workers have taken."""

import errno
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from jaxfl.core.errors import InputError, warn
from jaxfl.experiment.store import files
from jaxfl.simulation import processes

if sys.platform == "win32":  # which has no such lock
    fcntl = None
else:
    import fcntl

# What file systems say that know no locks, such as some that many hosts share.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
MOUNTS = Path("/proc/self/mounts")  # of Linux: what file systems there are, and their options
# Options of network file systems with which a lock is known to one host alone.
LOCAL_LOCKS = {"nolock", "local_lock=all", "local_lock=flock", "localflock", "nobrl"}
# How often, and after how many seconds each, a worker asks for a lock that one may just give up.
ATTEMPTS, PAUSE = 10, 0.05


def check_locks() -> None:
    """Raises an `InputError` where the system has no locks of files, by which workers share."""
    if fcntl is None:
        raise InputError("this system has no locks of files, which workers need: go on without")


def check_free(directories: list[Path], overwrite: bool) -> None:
    """Checks, in the process that will write, that files may be written; creates nothing.

    Raises:
      InputError: a directory holds a run or a comparison, cannot be one, or another process writes
        into it.
    """
    if processes.is_main_process():
        for directory in directories:
            files.check_empty(directory, overwrite)
            if os.path.lexists(directory / files.LOCK):
                with locked(directory):
                    pass


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Within, no other process may lock the directory, which is created if there is none.

    The system releases the lock when the process ends, however it ends. Of several processes that
    run together, the first one holds the lock.

    Raises:
      InputError: another process holds the lock, or the directory cannot be written.
    """
    with claim(directory / files.LOCK) as ours:
        if not ours:
            raise _taken(directory)
        yield


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Locks a file, if no other process has locked it, and removes it in the end.

    As with `locked`, the system releases the lock when the process ends.

    Args:
      path: of the file, which is made; it says who has locked it, see `holder`.

    Yields:
      Whether this process has the lock.
    """
    if fcntl is None or not processes.is_main_process():
        yield True
        return
    files.make_directory(path.parent)
    with files.writing(path):
        try:
            file = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file = None
    if file is None:
        yield False
        return
    try:
        _sign(file)
        yield True
    finally:
        _release(path, file)


def holder(path: Path) -> str:
    """Who has locked a file: "HOST, process 12"; "" if it does not say so."""
    try:
        with path.open(errors="replace") as stream:
            words = re.fullmatch(r"(\S{1,255}) (\d{1,20})\n", stream.read(300))
    except OSError:
        return ""
    return f"{words[1]}, process {words[2]}" if words else ""


@contextmanager
def shared(directory: Path) -> Iterator[None]:
    """Within, other processes may be within `shared` too, and none within `locked`.

    Raises:
      InputError: a process has locked the directory, or locks are not to be had there.
    """
    check_locks()
    files.make_directory(directory)
    _warn_of_local_locks(directory)
    path = directory / files.LOCK
    with files.writing(path):
        file = _lock_shared(path)
    if file is None:
        raise _taken(directory)
    with suppress(OSError):
        os.ftruncate(file, 0)  # a process that was killed is no longer its holder
    try:
        yield
    finally:
        if _is_last(file):
            _release(path, file)
        else:
            os.close(file)


@contextmanager
def alone(path: Path, named_by: str = "--out") -> Iterator[None]:
    """Within, no other process is: it waits here while another one makes the same path.

    The lock is a file `beside` the path, which need not exist; the folder above it is made.

    Args:
      path: of the directory or the file that is made.
      named_by: the option that names it, for messages.
    """
    files.make_directory(path.absolute().parent, named_by)
    if fcntl is None:
        yield
        return
    place = beside(path)
    file = _lock(place, fcntl.LOCK_EX)
    try:
        yield
    finally:
        _release(place, file)


def beside(path: Path) -> Path:
    """The file whose lock is that of a directory, or of a file, which need not exist.

    Example:
      >>> beside(Path("runs/table.json")).as_posix()
      'runs/.table.json.lock'
    """
    return path.with_name(f".{path.name}{files.LOCK}")


def _taken(directory: Path) -> InputError:
    """What is said of a directory that another process has locked."""
    who = holder(directory / files.LOCK)
    return InputError(
        f"another process writes the run in {directory}: wait for its end"
        f"{f' ({who})' if who else ''}, or choose another --out"
    )


def _sign(file: int) -> None:
    """Writes into a locked file who has locked it; a full disk does no harm."""
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.write(file, f"{socket.gethostname()} {os.getpid()}\n".encode())
        os.fsync(file)  # for readers on other hosts


def _release(path: Path, file: int) -> None:
    """Removes a locked file, which ends the lock."""
    with suppress(OSError):
        if os.path.samestat(os.fstat(file), path.stat()):
            path.unlink()
    os.close(file)


def _is_last(file: int) -> bool:
    """Whether nobody else shares the lock of a file, which is then ours alone."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _lock_shared(path: Path) -> int | None:
    """The descriptor of a file whose lock is shared; None if a process has it alone.

    The last one that shares a lock has it alone for a moment while it removes the file.
    """
    for _ in range(ATTEMPTS):
        try:
            return _lock(path, fcntl.LOCK_SH | fcntl.LOCK_NB, needed=True)
        except BlockingIOError:
            time.sleep(PAUSE)
    return None


def _lock(path: Path, operation: int, *, needed: bool = False) -> int:
    """The descriptor of the locked file, which is made if it is not there.

    Args:
      path: of the file.
      operation: of `flock`: whether to wait for the end of another process's lock.
      needed: refuse a file system without locks, of which a warning is given otherwise.

    Raises:
      BlockingIOError: another process holds the lock, and the operation does not wait for it.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, operation)
            # Its last owner may have removed the file since it was opened.
            if os.path.samestat(os.fstat(file), path.stat()):
                return file
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno in NO_LOCKS and needed:
                os.close(file)
                path.unlink(missing_ok=True)
                raise InputError(
                    f"{path} cannot be locked ({error.strerror}), and workers share runs by locks: "
                    "choose an --out on a file system that has them, or go on without workers"
                ) from error
            if error.errno in NO_LOCKS:
                warn(
                    f"{path} cannot be locked ({error.strerror}): let no other process write there"
                )
                return file
            os.close(file)
            raise
        os.close(file)


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
