"""Ctrl-C, SIGTERM and SIGHUP: at once where nothing is lost, else as a wish to stop.

SIGHUP, which a terminal sends when it is closed, counts as SIGTERM; `nohup` has it ignored.
"""

import _thread
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from jaxfl.core.errors import Terminated, warn

# Windows has no SIGHUP.
ENDS = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
NUMBERS = (signal.SIGINT, *ENDS)
# Seconds after which a signal is sent again whose exception was lost.
PAUSE = 0.01


class Request(threading.Event):
    """A wish to stop: set as soon as a signal has come.

    Attributes:
      number: of the signal.
    """

    number: int = signal.SIGINT


@contextmanager
def stops_at_once() -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM raise a `KeyboardInterrupt`, wherever they come.

    Python drops what is raised in a callback of its garbage collector, and JAX has such a callback,
    which takes much of the time in which programs are compiled. Such a signal is sent again.

    Example:
      >>> with stops_at_once():
      ...     os.kill(os.getpid(), signal.SIGTERM)
      Traceback (most recent call last):
      jaxfl.core.errors.Terminated
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise interruption(number)

    def send_again(lost: Any) -> None:
        if not isinstance(lost.exc_value, KeyboardInterrupt):
            show(lost)
            return
        number = signal.SIGTERM if isinstance(lost.exc_value, Terminated) else signal.SIGINT
        # Not by the system, from which the process may take no signals (`jaxfl.cli.supervisor`).
        timer = threading.Timer(PAUSE, _thread.interrupt_main, (number,))
        timer.daemon = True
        timer.start()

    show = sys.unraisablehook
    with _handler(stop):
        sys.unraisablehook = send_again
        try:
            yield
        finally:
            sys.unraisablehook = show


@contextmanager
def interruptible() -> Iterator[Request]:
    """Within, Ctrl-C and SIGTERM set the request that this yields; the second one raises at once.

    In any thread but the main one Python delivers no signals, and the request is never set.
    """
    request = Request()

    def note(number: int, frame: FrameType | None) -> None:
        if request.is_set():
            raise interruption(number)
        request.number = number
        request.set()

    with _handler(note):
        yield request


@contextmanager
def _handler(function: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within, the function takes these signals, but none that the process ignores.

    Nothing changes in any thread but the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, function) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interruption(number: int, *message: str) -> KeyboardInterrupt:
    """The exception of a signal, with a message that says how to go on, if there is one.

    Example:
      >>> interruption(signal.SIGTERM, "jaxfl resume x goes on")
      Terminated('jaxfl resume x goes on')
    """
    return (Terminated if number in ENDS else KeyboardInterrupt)(*message)


def exit_code(stop: KeyboardInterrupt) -> int:
    """The exit code of a program that a signal has stopped.

    Example:
      >>> exit_code(interruption(signal.SIGINT)), exit_code(interruption(signal.SIGTERM))
      (130, 143)
    """
    return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


@contextmanager
def hint(
    directory: Path,
    first: str,
    last: str,
    *,
    always: bool = False,
    option: str = "",
    rounds: int | None = None,
) -> Iterator[None]:
    """Within, an interruption says how to go on with what is in the directory.

    Args:
      directory: of a run, a comparison or a search.
      first: the file from which `jaxfl resume` takes what to do.
      last: the file that is written when all is done.
      always: say so in place of a message that the interruption has.
      option: of the command that goes on.
      rounds: that it shall have from now on, which no file says yet.
    """
    command = f"jaxfl resume {directory} {option}".strip()
    try:
        yield
    except KeyboardInterrupt as stop:
        if stop.args and not always:
            raise
        if rounds is not None:
            message = f"jaxfl resume {directory} --rounds {rounds} goes on"
        elif (directory / last).exists():
            message = f"what {directory} holds is finished"
        elif (directory / first).exists():
            message = f"{command} goes on"
        else:
            raise
        raise type(stop)(message) from stop


def answer(request: threading.Event, work: str = "rounds") -> Callable[[], None]:
    """A function that says once that a wish to stop was heard, as soon as it is set.

    Args:
      request: of `interruptible`.
      work: what is ended before the stop.
    """
    has_answered = False

    def tell() -> None:
        nonlocal has_answered
        if request.is_set() and not has_answered:
            has_answered = True
            warn(f"stopping after the {work} under way; Ctrl-C again stops now")

    return tell
