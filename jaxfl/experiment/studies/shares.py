"""Work that any number of processes share: each takes what no other one has.

There is no server: a process takes a share by the lock of a file, which the system releases when
the process ends, however it ends.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxfl.core.errors import Diverged, InputError
from jaxfl.core.file_locks import claim, holder


class Share(NamedTuple):
    """A part of the work.

    Attributes:
      name: for messages.
      lock: the file by whose lock a process takes it.
      is_done: whether its results are there.
      execute: makes and writes its results.
    """

    name: str
    lock: Path
    is_done: Callable[[], bool]
    execute: Callable[[], None]


def take_all(shares: Sequence[Share]) -> dict[str, str]:
    """Takes shares, one after the other, until none is left to take.

    A share that another process has is passed over, and taken if that process leaves it in the
    meantime. A share that fails is left to the others, and its error is raised when the rest is
    done.

    Returns:
      The shares that are not done, and who has them, see `core.file_locks.holder`.

    Raises:
      InputError: the error of the first share that failed, with the errors of the others.
      Diverged: likewise.

    Example:
      >>> results = []
      >>> done = lambda: len(results) > 0
      >>> take_all([Share("one", Path("one.lock"), done, lambda: results.append(1))])
      {}
    """
    failures: dict[str, InputError | Diverged] = {}
    is_new = True
    while is_new:
        is_new = False
        for share in shares:
            if share.name in failures:
                continue
            try:
                is_new |= _take(share)
            except (InputError, Diverged) as error:
                failures[share.name] = error
    if failures:
        words = [f"{name}: {error}" for name, error in failures.items()]
        raise type(next(iter(failures.values())))("; ".join(words))
    return {share.name: holder(share.lock) for share in shares if not share.is_done()}


def _take(share: Share) -> bool:
    """Takes a share, unless another process has it or it is done; says whether it did."""
    if share.is_done():
        return False
    with claim(share.lock) as ours:
        # Another process may have done it in the meantime.
        if not ours or share.is_done():
            return False
        share.execute()
        return True
