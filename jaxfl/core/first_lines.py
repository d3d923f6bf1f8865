"""What the program does before the imports of jaxfl, which take a second: Ctrl-C, `--version`.

The imports of this module are the first of the program, so they are few and small.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

# The numbers of the streams, which Python itself may not have opened.
STDOUT = 1
STDERR = 2


def is_program(argv: Sequence[str], orig_argv: Sequence[str]) -> bool:
    """Whether a process is `jaxfl` or `python -m jaxfl`, not a program that imports jaxfl.

    Args:
      argv: `sys.argv`; while Python looks for a module, its first word is "-m".
      orig_argv: `sys.orig_argv`, the words of the whole command line.

    Example:
      >>> is_program(["bin/jaxfl", "list"], ["python", "bin/jaxfl", "list"])
      True
      >>> is_program(["-m", "list"], ["python", "-m", "jaxfl", "list"])
      True
      >>> is_program(["train.py"], ["python", "train.py"])
      False
    """
    if not argv:  # Python is a part of another program
        return False
    if argv[0] == "-m":
        module = orig_argv[orig_argv.index("-m") + 1] if "-m" in orig_argv else ""
        return module.split(".")[0] == "jaxfl"
    return Path(argv[0]).stem == "jaxfl"


def exit_on_interrupt() -> None:
    """From now on Ctrl-C ends the process with one line and exit code 130, until others handle it.

    An exception would pass through the imports of other libraries, which show it or lose it.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            os.write(STDERR, b"jaxfl: interrupted\n")
        os._exit(128 + number)

    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if threading.current_thread() is threading.main_thread() and not ignored:
        signal.signal(signal.SIGINT, leave)


def answer_version(argv: Sequence[str]) -> None:
    """Prints the version and ends the process, if the command line asks for it and nothing else.

    Where it cannot be written, the command line says so, when it is imported.

    Args:
      argv: `sys.argv`.

    Example:
      >>> answer_version(["jaxfl", "list"]) is None
      True
    """
    if argv[1:] != ["--version"]:
        return
    from jaxfl.core.version import VERSION

    try:
        os.write(STDOUT, f"jaxfl {VERSION}\n".encode())
    except OSError:
        return
    sys.exit(0)
