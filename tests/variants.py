"""The options of a method, one at a time."""

import typing

from jaxfl.core.options import accepts, options_of, takes_fractions


def variants(factory):
    """Options of the method that may change what a round does: a name, a yes or no, 0, 1 or null.

    One of them at a time; the method may refuse it.
    """
    found = []
    for name, (hint, default) in options_of(factory).items():
        names = [
            choice
            for part in _parts(hint)
            if typing.get_origin(part) is typing.Literal
            for choice in typing.get_args(part)
        ]
        values = [*names, True, False, None, *((0.0, 1.0) if takes_fractions(hint) else (0, 1))]
        found += [{name: value} for value in values if accepts(hint, value) and value != default]
    return found


def _parts(hint):
    """The hint and all hints within it."""
    return [hint, *(part for inner in typing.get_args(hint) for part in _parts(inner))]
