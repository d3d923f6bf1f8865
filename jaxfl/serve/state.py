"""Arrays in a file: written completely or not at all, read without unpickling."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from jaxfl.core.errors import InputError, check
from jaxfl.core.file_locks import claim


def write_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name to an npz file, in place of an older one.

    The file is written under another name, and then renamed: a process that is killed leaves the
    old file or the new one, never a part. Folders are made.

    Raises:
      OSError: the file cannot be written, for example because the disk is full.

    Example:
      >>> write_arrays(Path("state.npz"), {"model": np.arange(3)})
      >>> read_arrays(Path("state.npz"))["model"].tolist()
      [0, 1, 2]
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # Two processes that write the same file must not write the same part.
    part = file.with_name(f"{file.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as handle:
            np.savez(handle, **dict(arrays))  # pyright: ignore[reportArgumentType]
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def read_arrays(file: Path) -> dict[str, np.ndarray]:
    """The arrays that `write_arrays` wrote.

    Raises:
      InputError: the file is damaged, or cannot be read without unpickling.
      FileNotFoundError: there is no such file.
      OSError: it cannot be opened.

    Example:
      >>> read_arrays(Path("state.npz"))
      Traceback (most recent call last):
      FileNotFoundError: [Errno 2] No such file or directory: 'state.npz'
    """
    with file.open("rb") as handle:
        try:
            with np.load(handle, allow_pickle=False) as npz:
                return {name: npz[name] for name in npz.files}
        except Exception as error:  # of bytes that may be anything
            reason = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
            raise InputError(
                f"{file} is damaged ({reason}): remove it to start anew, or put back a copy"
            ) from None


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Within, no other server may lock the directory, which is made if there is none.

    The system releases the lock when the process ends, however it ends.

    Raises:
      InputError: another server holds the lock, or it cannot be written.
      OSError: the directory cannot be made.

    Example:
      >>> with locked(Path("server")):
      ...     sorted(path.name for path in Path("server").iterdir())
      ['.lock']
    """
    directory.mkdir(parents=True, exist_ok=True)
    with claim(directory / ".lock") as ours:
        check(
            ours,
            f"another server writes into {directory}: wait for its end, or choose another "
            "directory",
        )
        yield
