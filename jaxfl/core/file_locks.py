"""Files that are written in place: opened through no link, and locked by one process at a time."""

import errno
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from jaxfl.core.errors import InputError, warn

# What file systems say that know no locks, such as some that many hosts share.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def open_in_place(path: Path, mode: str, *, buffering: int = -1) -> IO[Any]:
    """Opens a file to write what is not there whole or not at all, such as a line more.

    Args:
      path: of the file.
      mode: as for `open`.
      buffering: likewise.

    Raises:
      OSError: the file cannot be opened, for example because it is a link.

    Example:
      >>> Path("notes").symlink_to("elsewhere")
      >>> open_in_place(Path("notes"), "a")
      Traceback (most recent call last):
      OSError: [Errno ...] it is a link, which is not followed: 'notes'
    """
    try:
        return open(path, mode, buffering, opener=_descriptor)
    except OSError as error:
        raise named(error) from None


def _descriptor(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def named(error: OSError) -> OSError:
    """The error in words that fit, where it is that of a link at the place of a file.

    Example:
      >>> named(OSError(errno.ELOOP, "Too many levels of symbolic links")).strerror
      'it is a link, which is not followed'
    """
    if error.errno != errno.ELOOP:
        return error
    return OSError(errno.ELOOP, "it is a link, which is not followed", error.filename)


@contextmanager
def claim(path: Path, *, seconds: float = 0.0, needed: bool = False) -> Iterator[bool]:
    """Locks a file, if no other process has locked it, and removes it in the end.

    The system releases the lock when the process ends, however it ends.

    Args:
      path: of the file, which is made; it says who has locked it, see `holder`.
      seconds: to wait for the end of another process's lock; below 0 as long as it takes.
      needed: refuse a file system without locks, of which a warning is given otherwise.

    Yields:
      Whether this process has the lock.

    Raises:
      InputError: the file cannot be made, for example because it is a link.

    Example:
      >>> with claim(Path("a.lock")) as first, claim(Path("a.lock")) as second:
      ...     first, second
      (True, False)
    """
    lock = FileLock(path, timeout=seconds, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        pass
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise InputError(
                f"cannot write {path} ({named(error).strerror}): free or choose a place for it"
            ) from error
        path.unlink(missing_ok=True)
        if needed:
            raise InputError(
                f"{path} cannot be locked ({error.strerror}), and workers share runs by locks: "
                "choose an --out on a file system that has them, or go on without workers"
            ) from error
        warn(f"{path} cannot be locked ({error.strerror}): let no other process write there")
        yield True
        return
    if not lock.is_locked:
        yield False
        return
    try:
        with suppress(OSError), open_in_place(path, "w") as file:  # a full disk does no harm
            file.write(f"{socket.gethostname()} {os.getpid()}\n")
            file.flush()
            os.fsync(file.fileno())  # for readers on other hosts
        yield True
    finally:
        with suppress(OSError):
            path.unlink()  # while it is locked: who waits for it makes another one
        lock.release()


def holder(path: Path) -> str:
    """Who has locked a file: "HOST, process 12"; "" if it does not say so.

    Example:
      >>> holder(Path("missing.lock"))
      ''
    """
    try:
        with path.open(errors="replace") as stream:
            words = re.fullmatch(r"(\S{1,255}) (\d{1,20})\n", stream.read(300))
    except OSError:
        return ""
    return f"{words[1]}, process {words[2]}" if words else ""
