"""Checks what a JSON file holds against a type, field by field."""

import sys
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from jaxfl.core.options import describe


def parse(value: Any, hint: Any, field: str = "") -> None:
    """Checks a JSON value against a type, field by field.

    Args:
      value: as `json.loads` made it.
      hint: a TypedDict, list, dict, Literal, float, int, str, None, Any, or a union of these.
      field: where the value stands in its file, for the message.

    Raises:
      ValueError: a field is missing, or its value is not of its type; numbers are finite.

    Example:
      >>> parse({"mean": [0.9, "high"]}, dict[str, list[float]], "scores")
      Traceback (most recent call last):
      ValueError: scores.mean[1] is 'high': expected a number
    """
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return
    if is_typeddict(hint):
        _expect(isinstance(value, dict), value, hint, field)
        for name, kind in get_type_hints(hint).items():
            where = f"{field}.{name}" if field else name
            if name in value:
                parse(value[name], kind, where)
            elif name in hint.__required_keys__:
                raise ValueError(f"{where} is missing")
    elif origin is list:
        _expect(isinstance(value, list), value, hint, field)
        for place, element in enumerate(value):
            parse(element, inner[0], f"{field}[{place}]")
    elif origin is dict:
        _expect(isinstance(value, dict), value, hint, field)
        for name, element in value.items():
            parse(element, inner[1], f"{field}.{name}")
    elif origin in (Union, UnionType):
        _expect(any(_fits(value, one) for one in inner), value, hint, field)
    elif origin is Literal:
        _expect(isinstance(value, str) and value in inner, value, hint, field)
    elif hint in (int, float):
        whole = type(value) is int or (hint is float and type(value) is float)
        _expect(whole and abs(value) <= sys.float_info.max, value, hint, field)
    else:
        _expect(type(value) is hint, value, hint, field)


def _fits(value: Any, hint: Any) -> bool:
    try:
        parse(value, hint)
    except ValueError:
        return False
    return True


def _expect(holds: bool, value: Any, hint: Any, field: str) -> None:
    if not holds:
        raise ValueError(f"{field or 'it'} is {value!r:.60}: expected {_words(hint)}")


def _words(hint: Any) -> str:
    """The hint in words: "a number or none"."""
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(_words, get_args(hint)))
    if get_origin(hint) is list:
        return "a list"
    return "an object" if is_typeddict(hint) or get_origin(hint) is dict else describe(hint)
