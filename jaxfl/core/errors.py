"""Exceptions and warnings, above all "your input is wrong", with a message that fits on a line."""

import warnings
from collections.abc import Iterable
from difflib import get_close_matches

import numpy as np


class InputError(ValueError):
    """Bad input: the message says what was wrong, what was expected and how to mend it."""


class UnknownName(InputError):
    """A name that is not among those that jaxfl or a plug-in has.

    Example:
      >>> check_name("algorithm", "mine", ["fedavg", "local"])
      Traceback (most recent call last):
      jaxfl.core.errors.UnknownName: unknown algorithm 'mine': choose from fedavg, local
    """


class Diverged(RuntimeError):
    """A run stops because a client's update is not finite; the message says whose and when."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has stopped the program, as Ctrl-C does by a `KeyboardInterrupt`.

    Example:
      >>> issubclass(Terminated, KeyboardInterrupt)
      True
    """


class RunWarning(UserWarning):
    """A run goes on, and its result may not be what was expected; the message fits on a line."""


def warn(message: str) -> None:
    """Warns with a `RunWarning`; the command line prints it on standard error.

    Example:
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     warn("the scores are those of 2 of 10 clients")
      >>> caught[0].category.__name__
      'RunWarning'
    """
    warnings.warn(message, RunWarning, stacklevel=3)


def check(ok: bool | np.bool_, message: str) -> None:
    """Raises `InputError(message)` unless `ok`.

    Example:
      >>> check(0 > 1, "clients is 0: expected 1 or more")
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: clients is 0: expected 1 or more
    """
    if not ok:
        raise InputError(message)


def check_name(kind: str, name: str, names: Iterable[str], otherwise: str = "") -> None:
    """Raises an `UnknownName` that offers the nearest known names, unless `name` is one of them.

    Args:
      kind: what the name stands for, in the singular ("algorithm", "data set").
      name: what the user wrote.
      names: all names that are accepted.
      otherwise: what to say if none of them is near; "" to list all of them.

    Example:
      >>> check_name("algorithm", "fedavgg", ["fedavg", "local"])
      Traceback (most recent call last):
      jaxfl.core.errors.UnknownName: unknown algorithm 'fedavgg': did you mean fedavg?
    """
    names = sorted(names)
    if name not in names:
        otherwise = otherwise or f"choose from {', '.join(names)}"
        raise UnknownName(f"unknown {kind} {name!r}: {did_you_mean(name, names) or otherwise}")


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A question that offers the known names that are nearest; "" if there is none.

    Example:
      >>> did_you_mean("Fed-Avg", ["fed_avg", "local"]), did_you_mean("sum", ["fed_avg", "local"])
      ('did you mean fed_avg?', '')
      >>> did_you_mean("recal:died", ["recall:CLASS", "auc"])  # the part before the colon
      'did you mean recall:died?'
    """
    plain = {_plain(one): one for one in names}
    if _plain(name) in plain:
        return f"did you mean {plain[_plain(name)]}?"
    nearest = [plain[one] for one in get_close_matches(_plain(name), plain, n=3, cutoff=0.6)]
    if not nearest and ":" in name:
        kind, _, rest = name.partition(":")
        kinds = {one.partition(":")[0] for one in plain if ":" in one} - {_plain(kind)}
        nearest = [f"{one}:{rest}" for one in get_close_matches(_plain(kind), kinds, n=1)]
    return f"did you mean {' or '.join(nearest)}?" if nearest else ""


def _plain(name: str) -> str:
    """The name without what one forgets: capitals, the dashes of an option, `-` or `_`."""
    return name.casefold().replace("-", "_").strip("_")
