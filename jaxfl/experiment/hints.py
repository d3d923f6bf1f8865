"""Type hints as checks and as words: what a value of a config or a hyper-parameter may be."""

import math
import types
import typing
from typing import Any

WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    dict: "an object",
    types.NoneType: "null",
}


def accepts(hint: Any, value: Any) -> bool:
    """Whether a JSON value fits a type hint; of its types only those that JSON can hold count."""
    return any(_fits(alternative, value) for alternative in _alternatives(hint))


def describe(hint: Any) -> str:
    """A type hint in words: "a number or null"."""
    parts = []
    for alternative in _alternatives(hint):
        origin = typing.get_origin(alternative) or alternative
        if origin is typing.Literal:
            parts.append("one of " + ", ".join(map(str, typing.get_args(alternative))))
        elif origin in WORDS and not (origin is int and float in _alternatives(hint)):
            parts.append(WORDS[origin])
    return " or ".join(parts)


def _alternatives(hint: Any) -> tuple:
    """The members of a union, or the one type."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _fits(hint: Any, value: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    if origin is typing.Literal:
        return value in typing.get_args(hint)
    if origin is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is origin
