"""The fields of a group of options: how they are typed, their notes, and whether a value fits.

All of it is read from the type hints, so it holds for any dataclass whose hints have notes.
"""

import functools
import typing
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, TypeVar

from jaxfl.core.errors import InputError, check_name
from jaxfl.core.options import Names, accepts, error_type, expected, takes_fractions
from jaxfl.experiment.config.composite import option
from jaxfl.experiment.config.notes import Mark

T = TypeVar("T")


def value_of(option: T | None) -> T:
    """The value of an option that a setting may leave open, and that `resolve` fills in.

    Raises:
      InputError: it is open.
    """
    if option is None:
        raise InputError("an option is left open: give it, or call jaxfl.experiment.resolve first")
    return option


def as_typed(value: Any) -> str:
    """A value as it stands on the command line; of a long list the first elements."""
    if not isinstance(value, tuple):
        return str(value)
    return " ".join(map(str, value[:20])) + (" ..." if len(value) > 20 else "")


@functools.cache
def hints(group: type) -> Mapping[str, Any]:
    """The type hints of a group's fields, with their ranges and names."""
    return MappingProxyType(typing.get_type_hints(group, include_extras=True))


@functools.cache
def notes_of(group: type) -> dict[str, tuple[Any, ...]]:
    """The ranges, names and other notes of each field of a group, by the name of the field."""
    return {name: getattr(hint, "__metadata__", ()) for name, hint in hints(group).items()}


def part(options: Any, group: type[T]) -> T:
    """The options of one group, of a dataclass that has more.

    Example:
      >>> part(Config(batch_size=8), TrainingOptions).batch_size
      8
    """
    return group(**{name: getattr(options, name) for name in hints(group)})


def marked(group: type, mark: Mark) -> set[str]:
    """The fields of a group that bear a mark.

    Example:
      >>> "rounds" in marked(Config, RESUMABLE)
      True
    """
    return {name for name, notes in notes_of(group).items() if mark in notes}


def check_field(what: str, hint: Any, value: Any, *, known: bool = True) -> None:
    """Checks a JSON value by the hint of its field.

    Args:
      what: the field, for the message: "--rounds".
      hint: its type, with a `Range` or with `Names`.
      value: what was given.
      known: whether a name must be a known one, and not that of a plug-in.

    Raises:
      InputError: another type, a number out of range, or an unknown name.
    """
    texts = [one for one in (value if isinstance(value, tuple) else (value,)) if type(one) is str]
    tables = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Names)]
    if tables and texts and not known:
        return
    for table in tables:
        for name in texts:
            check_name(table.kind, table.entry(name), table.known)
    if not accepts(hint, value):
        raise error_type(hint, value)(f"{what} is {value!r:.80}: expected {expected(hint, value)}")


def read_field(what: str, hint: Any, value: Any, *, known: bool = True) -> Any:
    """A JSON value as its field has it, checked: 1 is 1.0 where the field takes fractions.

    A list is a tuple where the field takes tuples.
    """
    takes_tuples = typing.get_origin(getattr(hint, "__origin__", hint)) is tuple
    if isinstance(value, list) and takes_tuples:
        value = tuple(value)
    check_field(what, hint, value, known=known)
    return float(value) if type(value) is int and takes_fractions(hint) else value


def check_fields(options: Any, *names: str) -> None:
    """Checks the named fields of a group by their hints; all fields if none is named.

    Raises:
      InputError: see `check_field`.
    """
    types = hints(type(options))
    for name in names or [one.name for one in fields(options)]:
        check_field(option(name), types[name], getattr(options, name))
