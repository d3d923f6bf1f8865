"""One of several processes is two: a child computes, and this process waits for it.

Where a process is lost, JAX ends the others by `abort`, after pages of a log in C++. The process
that waits says in one line what happened and how to go on, and has an exit code. It takes no part
in the run and imports nothing for it.
"""

import _thread
import json
import os
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from jaxfl.core.text import visible
from jaxfl.experiment.session.interrupt import NUMBERS

# The option that says that several processes run together.
JOIN = "--join"
# What stands in an error of JAX, or in its log, where another process is lost.
SIGNS = ("Gloo", "NCCL", "distributed service", "heartbeat", "oordination service")
# Lines of the log that are kept for the end.
LINES = 1000
# Seconds in which all processes may end together before this one ends alone.
GOODBYE = 5.0
LOST = 1  # the exit code

_parent: socket.socket | None = None  # of a child: the way to the process that waits
_directory = "DIR"  # of the run


def is_one_of_several(arguments: Sequence[str]) -> bool:
    """Whether a command line is one of several processes that run together.

    Example:
      >>> is_one_of_several(["run", "fedavg", "--join", "cluster"])
      True
    """
    return any(word.split("=")[0] == JOIN for word in arguments)


def divide() -> None:
    """Goes on in a child. The process itself waits for the child, and ends here when it has ended.

    Signals reach the child through the process that waits, each once: a scheduler may send them to
    both. The child ends if that process does. The child's own children have these signals blocked:
    they are ended by SIGKILL. Where a system has no safe `fork`, nothing happens.
    """
    global _parent
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    parent, child = socket.socketpair()
    reader, writer = os.pipe()
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    number = os.fork()
    if number:
        child.close()
        os.close(writer)
        code = LOST
        try:
            code = _wait(number, parent, reader)
        finally:
            os._exit(code)
    parent.close()
    os.close(reader)
    # What Python says goes to standard error; what C++ says, to the process that waits.
    sys.stderr = os.fdopen(os.dup(sys.stderr.fileno()), "w", 1, errors="backslashreplace")
    os.dup2(writer, 2)
    os.close(writer)
    _parent = child
    threading.Thread(target=_obey, args=(child,), daemon=True).start()


def tell_directory(directory: str) -> None:
    """Says where the run is, for the line that tells how to go on."""
    global _directory
    _directory = directory
    _tell(directory=directory)


def tell_join(problem: str) -> None:
    """Says what is wrong if JAX ends this process from now on; "" when the processes have met."""
    _tell(join=problem)


def tell_code(code: int) -> None:
    """Says which exit code the process shall have; the command line has given the reason."""
    _tell(code=code)


def tell_lost() -> int:
    """Says that another process is lost; returns the exit code."""
    _tell(code=LOST, lost=True)
    if _parent is None:
        print(f"jaxfl: {visible(lost_line(_directory))}", file=sys.stderr)
    return LOST


def _tell(**facts: Any) -> None:
    if _parent is not None:
        with suppress(OSError):  # it was killed, and `_obey` ends this process
            _parent.sendall(json.dumps(facts).encode() + b"\n")


def says_lost(error: BaseException) -> bool:
    """Whether an error of JAX says that another process is lost.

    Example:
      >>> says_lost(RuntimeError("Gloo all-reduce failed: Connection reset by peer"))
      True
    """
    return any(sign in str(error) for sign in SIGNS)


def lost_line(directory: str) -> str:
    """What is said where another process is lost.

    Example:
      >>> lost_line("runs/mine")
      'another process has ended ... start all of them again with jaxfl resume runs/mine, ...'
    """
    return (
        "another process has ended or cannot be reached (its own output says why): start all of "
        f"them again with jaxfl resume {directory}, which goes on from the newest checkpoint, or "
        "as before if it holds no run"
    )


def leave(code: int) -> None:
    """Ends a process whose command failed: together with the others, if they end within seconds.

    JAX's own end would wait for minutes for processes that go on, and then abort.
    """
    import jax

    goodbye = threading.Thread(target=jax.distributed.shutdown, daemon=True)
    goodbye.start()
    goodbye.join(GOODBYE)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _obey(control: socket.socket) -> None:
    """In the child: takes signals from the process that waits, and ends with it."""
    with suppress(OSError):  # the process that waits was killed
        while content := control.recv(1):
            number = signal.Signals(content[0])
            if signal.getsignal(number) is signal.SIG_DFL:  # the command has ended
                os._exit(128 + number)
            _thread.interrupt_main(number)
    os._exit(128 + signal.SIGKILL)


def _wait(child: int, control: socket.socket, log: int) -> int:
    """In the process that waits: the exit code, when the child has ended."""
    lines: deque[str] = deque(maxlen=LINES)
    facts: dict[str, Any] = {}
    readers = [
        threading.Thread(target=_collect, args=(log, lines), daemon=True),
        threading.Thread(target=_listen, args=(control, facts), daemon=True),
    ]
    for reader in readers:
        reader.start()

    def relay(number: int, frame: object) -> None:
        with suppress(OSError):  # the child has ended
            control.sendall(bytes([number]))

    for number in NUMBERS:
        signal.signal(number, relay)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    for reader in readers:
        reader.join(1)
    text = "".join(lines)
    directory = facts.get("directory", "DIR")
    aborted = status == -signal.SIGABRT and any(sign in text for sign in SIGNS)
    if facts.get("join") and (aborted or facts.get("lost")):
        code, text = 2, f"jaxfl: {visible(facts['join'])}\n"
    elif facts.get("lost") or (aborted and "code" not in facts):
        code, text = LOST, f"jaxfl: {visible(lost_line(directory))}\n"
    elif "code" in facts:
        code, text = facts["code"], "" if facts["code"] else text
    elif status >= 0:
        code = status
    else:
        code = 128 - status
        text += (
            f"jaxfl: this process was ended by signal {-status}: start all of them again with "
            f"jaxfl resume {visible(directory)}, which goes on from the newest checkpoint, or as "
            "before if it holds no run\n"
        )
    os.write(2, text.encode())
    return code


def _collect(log: int, lines: deque[str]) -> None:
    """Keeps the last lines of the log."""
    with open(log, errors="replace") as stream:
        lines.extend(stream)


def _listen(control: socket.socket, facts: dict[str, Any]) -> None:
    """Keeps what the child tells."""
    with suppress(OSError), control.makefile("r") as stream:
        for line in stream:
            facts.update(json.loads(line))
