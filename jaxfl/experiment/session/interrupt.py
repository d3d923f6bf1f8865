"""Ctrl-C and SIGTERM as a wish to stop, granted when it loses nothing."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jaxfl.core.errors import warn


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Within, Ctrl-C and SIGTERM set the event that this yields; the second one interrupts at once.

    In any thread but the main one Python delivers no signals, and the event is never set.
    """
    request = threading.Event()

    def note(number: int, frame: object) -> None:
        if request.is_set():
            raise KeyboardInterrupt
        request.set()

    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def answer(request: threading.Event) -> Callable[[], None]:
    """A function that says once that a wish to stop was heard, as soon as the event is set."""
    has_answered = False

    def tell() -> None:
        nonlocal has_answered
        if request.is_set() and not has_answered:
            has_answered = True
            warn("stopping after the rounds under way; Ctrl-C again stops now")

    return tell
