"""A script as a command: its options on the command line, and one line for bad input."""

import sys
from collections.abc import Callable

import tyro

from jaxfl.core.errors import InputError


def command(main: Callable[..., None]) -> None:
    """Runs a script with the options of the command line; bad input ends it with exit code 2.

    Args:
      main: the script; its arguments are the options.
    """
    try:
        tyro.cli(main)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
