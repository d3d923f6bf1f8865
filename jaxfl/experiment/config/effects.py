"""Options that need, exclude or replace each other: what the notes of their hints say, checked."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, TypeVar

from jaxfl.core.errors import InputError
from jaxfl.experiment.config.composite import FIELDS, KEEP, option
from jaxfl.experiment.config.hints import as_typed, notes_of
from jaxfl.experiment.config.notes import GIVEN, Effect, Excludes, Needs, Others

Note = TypeVar("Note")


def idle(options: Any) -> list[str]:
    """The options without effect whose values are not the defaults.

    Args:
      options: of the data or of a run.
    """
    defaults, values = _defaults(options), vars(options)
    return [
        name
        for name, note in _notes(type(options), Effect)
        if values[name] != defaults[name] and not note.hold(values, defaults)
    ]


def check_effects(options: Any) -> None:
    """Raises an `InputError` if an option is given that has no effect.

    The default passes, because `config.json` has a value for every option.

    Args:
      options: complete options of the data or of a run.
    """
    notes = dict(_notes(type(options), Effect))
    for name in idle(options):
        value = getattr(options, name)
        raise InputError(
            f"{option(name)} is {as_typed(value)}, and has no effect without "
            f"{_others(notes[name])}: leave it out, or give both"
        )


def check_together(options: Any) -> None:
    """Raises an `InputError` if an option is given with one that it excludes or without its need.

    Args:
      options: of the data or of a run; those that the data set will choose may be open.
    """
    defaults, values = _defaults(options), vars(options)

    def has_value(name: str, when: Any) -> bool:
        return values[name] != defaults[name] if when is None else values[name] == when

    for name, note in _notes(type(options), Needs):
        if has_value(name, note.when) and not note.hold(values, defaults):
            why = f", {note.why}" if note.why else ""
            raise InputError(
                f"{_spelling(name, note.when)} is given without {_others(note)}{why}: give both"
            )
    for name, note in _notes(type(options), Excludes):
        if has_value(name, note.when) and values[note.other] != defaults[note.other]:
            raise InputError(_both(name, note))


def alternatives(group: type) -> list[tuple[str, str]]:
    """The pairs of options of which only one may be given.

    Example:
      >>> ("local_steps", "local_epochs") in alternatives(Setting)
      True
    """
    return [(name, note.other) for name, note in _notes(group, Excludes) if note.when is None]


def check_typed(group: type, typed: set[str]) -> None:
    """Raises an `InputError` if two alternatives are typed, be it with the values of the defaults.

    Args:
      group: of the options of a command.
      typed: the options on the command line, such as "--rounds".
    """
    for name, note in _notes(group, Excludes):
        if note.when is None and {option(name), option(note.other)} <= typed:
            raise InputError(_both(name, note))


def replaced(group: type, typed: set[str]) -> dict[str, Any]:
    """The options that give way to alternatives on the command line, with their defaults.

    Args:
      group: of the options of a command.
      typed: the options on the command line, such as "--rounds".
    """
    defaults = {one.name: one.default for one in fields(group)}
    pairs = alternatives(group)
    return {
        other: defaults[other]
        for name, other in [*pairs, *((other, name) for name, other in pairs)]
        if option(name) in typed
    }


def _defaults(options: Any) -> dict[str, Any]:
    return {one.name: one.default for one in fields(options)}


def _notes(group: type, kind: type[Note]) -> Iterator[tuple[str, Note]]:
    """Each note of a kind, with the name of its field."""
    for name, notes in notes_of(group).items():
        yield from ((name, note) for note in notes if isinstance(note, kind))


def _both(name: str, note: Excludes) -> str:
    one, other = _spelling(name, note.when), option(note.other)
    return f"both {one} and {other} are given: {note.choose}"


def _others(note: Others) -> str:
    """What the note asks for, as it is typed."""
    return " or ".join(
        option(name)
        if values is GIVEN
        else _spelling(name, *(value for value in values if value is not None))
        for name, values in note.others.items()
    )


def _spelling(name: str, *values: Any) -> str:
    """An option with the values that it may have, as they are typed."""
    if len(values) == 1 and isinstance(values[0], bool):  # 1 == True
        return option(name if values[0] else f"no_{name}")
    words = " or ".join(as_typed(value) for value in values if value is not None)
    return option(name) + (f"={words}" if name in FIELDS[KEEP].values() else f" {words}".rstrip())
