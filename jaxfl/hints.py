"""Type hints as words, and as a check of the options that have names."""

import functools
import types
import typing
from collections.abc import Callable
from typing import Any

from jaxfl.errors import check

WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    dict: "an object",
    types.NoneType: "null",
}


def alternatives(hint: Any) -> tuple:
    """The members of a union, or the one type."""
    return (
        typing.get_args(hint)
        if typing.get_origin(hint) in (typing.Union, types.UnionType)
        else (hint,)
    )


def names(hint: Any) -> tuple:
    """What the `Literal`s of a type hint list."""
    literals = [part for part in alternatives(hint) if typing.get_origin(part) is typing.Literal]
    return tuple(name for literal in literals for name in typing.get_args(literal))


def describe(hint: Any) -> str:
    """A type hint in words: "a number or null"."""
    parts = []
    for alternative in alternatives(hint):
        origin = typing.get_origin(alternative) or alternative
        if origin is typing.Literal:
            parts.append("one of " + ", ".join(map(str, names(alternative))))
        elif origin in WORDS and not (origin is int and float in alternatives(hint)):
            parts.append(WORDS[origin])
    return " or ".join(parts)


def checked(factory: Callable) -> Callable:
    """The same factory, but an option whose hint lists names raises an `InputError` for anything that is none of them.

    Numbers and arrays, traced ones too, pass where the hint admits more than names.
    """
    hints = typing.get_type_hints(factory)

    @functools.wraps(factory)
    def of_names(*given: Any, **options: Any) -> Any:
        for name, value in options.items():
            hint = hints.get(name)
            listed, more = names(hint), len(alternatives(hint)) > 1
            known = value in listed if isinstance(value, str) else more
            what = f"hyper-parameter {name} of {factory.__name__} is {value!r}"
            check(not listed or known, f"{what}: expected {describe(hint)}")
        return factory(*given, **options)

    return of_names
