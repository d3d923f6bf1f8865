"""Standard output and standard error, which may be closed or take no more text."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from jaxfl.core.errors import InputError, warn

STREAMS = ("stdin", "stdout", "stderr")


def open_closed_streams() -> None:
    """Opens the standard streams that are closed, as after `>&-`: they lead nowhere.

    Otherwise the next file that is opened would have the number of a standard stream.
    """
    for number, name in enumerate(STREAMS):
        if getattr(sys, name) is not None:
            continue
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free
        setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115


class Output:
    """A stream of text that leads nowhere as soon as it takes no more text.

    A letter that the encoding of the stream lacks is written by its number, with a backslash.

    It is what a `rich.console.Console` takes for a file.

    Args:
      stream: standard output or standard error, or what a program has put in its place.
      fail: called with the error, once.
    """

    def __init__(self, stream: Any, fail: Callable[[OSError], None]):
        self._stream = stream
        self._fail = fail
        self._takes_text = True

    def write(self, text: str) -> int:
        """Writes the text, or drops it."""
        if self._takes_text:
            try:
                self._write(text)
            except OSError as error:
                self._give_up(error)
        return len(text)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except UnicodeEncodeError as error:
            content = text.encode(error.encoding, "backslashreplace")
            self._stream.write(content.decode(error.encoding))

    def flush(self) -> None:
        """Writes what the stream has kept, or drops it."""
        if self._takes_text:
            try:
                self._stream.flush()
            except OSError as error:
                self._give_up(error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _give_up(self, error: OSError) -> None:
        self._takes_text = False
        lead_nowhere(self._stream)
        self._fail(error)


def lead_nowhere(stream: Any) -> None:
    """Drops what a stream still keeps, and whatever is written into it."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def output_of_run(stream: Any) -> Output:
    """Standard output of a command that runs for long: without it the run goes on."""

    def fail(error: OSError) -> None:
        warn(f"the log cannot be written ({error.strerror}): the run goes on without it")

    return Output(stream, fail)


def output_of_command(stream: Any) -> Output:
    """Standard output of a command whose result it is."""

    def fail(error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            raise error
        raise InputError(
            f"the output cannot be written ({error.strerror}): send it to another place"
        ) from error

    return Output(stream, fail)


def output_of_errors(stream: Any) -> Output:
    """Standard error, which nothing can replace."""
    return Output(stream, lambda error: None)
