"""What an option may be: its type hint and its range, as words and as a check.

A hint says it all: `Annotated[Scalar, POSITIVE]`, `Annotated[int | None, COUNT]`,
`Literal["ring", "alone"]`. The command line, `config.json` and the factories of the algorithms read
the same hints. A range holds for every number of the hint that it annotates; names, None and True
or False pass it.
"""

import functools
import inspect
import itertools
import math
import types
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

from jaxfl.core.errors import InputError, UnknownName
from jaxfl.core.shapes import check_form, has_form

_P = ParamSpec("_P")
_R = TypeVar("_R")

FLOAT32_MAX = float(np.finfo(np.float32).max)  # a larger number is infinite where JAX computes


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`.

    Example:
      >>> unit = Range(low=0, high=1, high_included=False)
      >>> 0 in unit, 1 in unit, unit.describe("number")
      (True, False, 'a number in [0, 1)')
    """

    low: float | int = -math.inf
    high: float | int = math.inf
    low_included: bool = True
    high_included: bool = True
    words: str = ""  # for the error message, in place of the words made of the ends

    def __contains__(self, number: Any) -> bool:
        """Whether the number lies in the range; NaN lies in none."""
        above = number >= self.low if self.low_included else number > self.low
        below = number <= self.high if self.high_included else number < self.high
        return bool(above and below)

    def describe(self, noun: str) -> str:
        """The range in words: "a positive number", for the noun "number" or "whole number"."""
        if self.words:
            return self.words
        if self.high == math.inf and self.low == 0:
            return f"a {'non-negative' if self.low_included else 'positive'} {noun}"
        if self.high == math.inf:
            return f"a {noun} {'of at least' if self.low_included else 'above'} {self.low:,}"
        if noun == "whole number" and self.low_included and self.high_included:
            return f"a {noun} from {self.low:,} to {self.high:,}"
        opening = "[" if self.low_included else "("
        closing = "]" if self.high_included else ")"
        return f"a {noun} in {opening}{self.low:,}, {self.high:,}{closing}"


@dataclass(frozen=True, eq=False)
class Names:
    """The names that a text may be: the keys of a table, which may grow.

    Example:
      >>> Names("colour", ["red", "blue"])
      Names(kind='colour')
    """

    kind: str  # what a name stands for, in the singular
    known: Collection[str] = field(repr=False)
    entry: Callable[[str], str] = field(default=str, repr=False)  # a text -> its name in the table


Limits = Range | Names | None


POSITIVE = Range(low=0, low_included=False)
NOT_NEGATIVE = Range(low=0)
FRACTION = Range(low=0, high=1)
COUNT = Range(low=1, high=10_000)  # of clusters, servers, steps, epochs
COUNT_OR_ZERO = Range(low=0, high=10_000)
SEED = Range(low=0, high=2**31 - 1, words="a whole number of at least 0 and below 2^31")
File = Annotated[str, Range(words="the path of a .npy file")]

WORDS = {
    float: "a number",
    int: "a whole number",
    bool: "true or false",
    str: "text",
    dict: "an object",
    tuple: "a list",
    types.NoneType: "none",
}
JSON_TYPES = (type(None), bool, int, float, str, np.number, np.bool_)


class Option(NamedTuple):
    """A keyword-only option of a function."""

    hint: Any  # with its ranges
    default: Any


def options_of(factory: Callable) -> dict[str, Option]:
    """The options of an algorithm: the keyword-only arguments of its factory, by name.

    Example:
      >>> list(options_of(jaxfl.algorithms.fedprox))
      ['mu']
    """
    hints = typing.get_type_hints(factory, include_extras=True)
    return {
        name: Option(hints[name], parameter.default)
        for name, parameter in inspect.signature(factory).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def takes_numbers(hint: Any) -> bool:
    """Whether the hint admits Python numbers.

    Example:
      >>> takes_numbers(float | None), takes_numbers(str)
      (True, False)
    """
    return any(base in (int, float) for base, _ in _alternatives(hint))


def takes_fractions(hint: Any) -> bool:
    """Whether the hint admits Python numbers that are not whole.

    Example:
      >>> takes_fractions(float | None), takes_fractions(int | None)
      (True, False)
    """
    return float in _bases(hint)


def takes_traced_numbers(hint: Any) -> bool:
    """Whether the hint admits a traced number, as `Scalar` does: a sweep may vmap over it.

    Example:
      >>> takes_traced_numbers(jaxfl.types.Scalar), takes_traced_numbers(float)
      (True, False)
    """
    return any(base is jax.Array for base, _ in _alternatives(hint))


def lists_names(hint: Any) -> bool:
    """Whether the hint lists names, alone or beside other types, or has a table of them.

    Example:
      >>> lists_names(jaxfl.types.Chunk), lists_names(str)
      (True, False)
    """
    return any(
        typing.get_origin(base) is typing.Literal or isinstance(note, Names)
        for base, note in _alternatives(hint)
    )


def listed_names(hint: Any) -> list[Any]:
    """The names and numbers that the hint lists, and those of its table.

    Example:
      >>> listed_names(typing.Literal["ring", "alone"] | None)
      ['ring', 'alone']
    """
    names = []
    for base, note in _alternatives(hint):
        if typing.get_origin(base) is typing.Literal:
            names += typing.get_args(base)
        elif isinstance(note, Names):
            names += note.known
    return names


def describe(hint: Any) -> str:
    """The hint in words: "a positive number or none". Arrays and functions are not mentioned.

    Example:
      >>> describe(Annotated[float | None, POSITIVE])
      'a positive number or none'
    """
    alternatives = _alternatives(hint)
    bases = [base for base, _ in alternatives]
    parts = []
    for base, limits in alternatives:
        if typing.get_origin(base) is typing.Literal:
            names = typing.get_args(base)
            parts.append(("one of " if names[1:] else "") + ", ".join(map(str, names)))
        elif base is str and isinstance(limits, Names):
            parts.append("one of " + ", ".join(limits.known))
        elif base is str and isinstance(limits, Range):
            parts.append(limits.words)
        elif base is int and float in bases:
            continue  # "a number" says it
        elif base in (int, float) and isinstance(limits, Range):
            parts.append(limits.describe("whole number" if base is int else "number"))
        elif _plain(base) is tuple and typing.get_args(base):
            inner = typing.get_args(base)[0]
            noun = "whole number" if inner is int else "name"
            if typing.get_origin(inner) is typing.Literal:
                parts.append(f"a list, each {describe(inner)}")
            elif isinstance(limits, Range):
                parts.append(f"a list, each {limits.describe(noun)}")
            else:
                parts.append(f"a list of {noun}s")
        elif _plain(base) in WORDS:
            parts.append(WORDS[_plain(base)])
    return " or ".join(parts)


def accepts(hint: Any, value: Any) -> bool:
    """Whether a JSON value fits the hint: of its type, in its range, finite and within 32 bits.

    Example:
      >>> accepts(Annotated[int, COUNT], 3), accepts(Annotated[int, COUNT], 0)
      (True, False)
    """
    return any(_accepts(base, limits, value) for base, limits in _alternatives(hint))


def expected(hint: Any, value: Any) -> str:
    """What `accepts` wants in place of the value, in words.

    Example:
      >>> expected(Annotated[float, POSITIVE], math.inf)
      'a positive number, finite and within 32 bits'
    """
    number = type(value) in (int, float) and not abs(value) < 2**31  # NaN included
    ends = [
        isinstance(limits, Range) and limits.high < math.inf for _, limits in _alternatives(hint)
    ]
    return describe(hint) + (", finite and within 32 bits" if number and not any(ends) else "")


def check_value(what: str, hint: Any, value: Any) -> None:
    """Checks an argument of a Python function: names, numbers and their ranges.

    Arrays, traced ones too, and anything else that JSON cannot hold pass. A number may be infinite
    where its range has no end.

    Args:
      what: the argument, for the message: "clip".
      hint: its type hint.
      value: what was given.

    Raises:
      InputError: a name, number, bool or None that the hint does not admit.

    Example:
      >>> check_value("graph", typing.Literal["ring", "alone"], "star")
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: graph is 'star': expected one of ring, alone
    """
    checkable = isinstance(value, JSON_TYPES) and Any not in _bases(hint)
    fits = not checkable or any(_fits(base, limits, value) for base, limits in _alternatives(hint))
    if not fits:  # the message is made only here: functions check their names at every call
        expected = describe(hint)
        if expected in ("", "none"):
            # An object that text and numbers cannot stand for.
            expected = " or ".join(filter(None, [_object_of(hint), expected]))
        raise error_type(hint, value)(f"{what} is {value!r:.80}: expected {expected}")


def error_type(hint: Any, value: Any) -> type[InputError]:
    """The error for a value that does not fit: of a name that a plug-in may add, `UnknownName`.

    Example:
      >>> error_type(Annotated[str, Names("model", {"cnn": 0})], "mlp").__name__
      'UnknownName'
    """
    tables = [note for _, note in _alternatives(hint) if isinstance(note, Names)]
    return UnknownName if tables and isinstance(value, str) else InputError


def _object_of(hint: Any) -> str:
    """What is expected where a hint lists no type of JSON."""
    if any(typing.get_origin(base) is Callable for base in _bases(hint)):
        return "a function or an object that is made for it"
    return "an object that is made for it"


def check_range(limits: Range, **values: Any) -> None:
    """Checks the numbers among the values against a range; None and traced arrays pass.

    Raises:
      InputError: a number outside the range; the message names it.

    Example:
      >>> check_range(FRACTION, own=2.0)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: own is 2.0: expected a number in [0, 1]
    """
    for name, value in values.items():
        if value is not None:
            check_value(name, Annotated[float | int | jax.Array, limits], value)


def checked(function: Callable[_P, _R], noun: str = "") -> Callable[_P, _R]:
    """The function, which checks the names, options, arrays and stacked models that it is given.

    It checks the arguments whose hints list names (`Literal`), and all keyword-only arguments, as
    `check_value` does; and those whose hints say how many axes they have, as `check_form` does. The
    check takes place where the function is called, so a traced function is checked once.

    Args:
      function: with type hints.
      noun: what the message calls an argument, if not by its name alone: "hyper-parameter".

    Example:
      >>> def mine(task, *, rate: Annotated[float, POSITIVE] = 0.1): ...
      >>> checked(mine)(None, rate=-1.0)
      Traceback (most recent call last):
      jaxfl.core.errors.InputError: rate of mine is -1.0: expected a positive number
    """
    hints = typing.get_type_hints(function, include_extras=True)
    arguments = inspect.signature(function).parameters
    known = {
        name: hints[name]
        for name, argument in arguments.items()
        if name in hints
        and (argument.kind is inspect.Parameter.KEYWORD_ONLY or lists_names(hints[name]))
    }
    forms = {name: hints[name] for name in arguments if name in hints and has_form(hints[name])}
    positions = tuple(arguments)

    @functools.wraps(function)
    def checking(*given: _P.args, **options: _P.kwargs) -> _R:
        for name, value in itertools.chain(zip(positions, given, strict=False), options.items()):
            what = f"{noun} {name} of {function.__name__}".lstrip()
            if name in known:  # Python itself refuses the others
                check_value(what, known[name], value)
            if name in forms:
                check_form(what, forms[name], value)
        return function(*given, **options)

    return checking


def _alternatives(hint: Any, limits: Limits = None) -> list[tuple[Any, Limits]]:
    """The members of a union, or the one type, each with its range or its table of names."""
    if typing.get_origin(hint) is typing.Annotated:
        inner, *notes = typing.get_args(hint)
        ranges = [note for note in notes if isinstance(note, Range | Names)]
        return _alternatives(inner, ranges[0] if ranges else limits)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [pair for member in typing.get_args(hint) for pair in _alternatives(member, limits)]
    return [(hint, limits)]


def _bases(hint: Any) -> list[Any]:
    return [base for base, _ in _alternatives(hint)]


def _plain(base: Any) -> Any:
    """`dict[str, Any]` -> `dict`."""
    return typing.get_origin(base) or base


def _accepts(base: Any, limits: Limits, value: Any) -> bool:
    """Whether a JSON value fits one alternative of a hint."""
    if base is float and type(value) is float:
        return abs(value) <= FLOAT32_MAX and _within(limits, value)
    if base in (int, float):
        whole = type(value) is int and abs(value) < 2**31  # JAX counts in 32 bits
        return whole and _within(limits, value)
    if _plain(base) is tuple and type(value) is tuple and typing.get_args(base):
        return all(_accepts(typing.get_args(base)[0], limits, element) for element in value)
    return _listed(base, value) or _is_one(base, limits, value)


def _fits(base: Any, limits: Limits, value: Any) -> bool:
    """Whether an argument of a Python function fits one alternative of a hint."""
    if base in (int, float):
        number_types = (int, np.integer) if base is int else (int, float, np.number)
        number = isinstance(value, number_types) and not isinstance(value, bool)
        return number and _within(limits, value)
    if base is bool:
        return isinstance(value, bool | np.bool_)
    return _listed(base, value) or _is_one(base, limits, value)


def _within(limits: Limits, value: Any) -> bool:
    """Whether a number is in the range, if there is one."""
    return not isinstance(limits, Range) or value in limits


def _is_one(base: Any, limits: Limits, value: Any) -> bool:
    """Whether a value is of the type, and a text in the table of names, if there is one."""
    if type(value) is not _plain(base):
        return False
    return not isinstance(limits, Names) or base is not str or limits.entry(value) in limits.known


def _listed(base: Any, value: Any) -> bool:
    """Whether the base is a `Literal` that lists the value, of the same type: True is not 1."""
    if typing.get_origin(base) is not typing.Literal:
        return False
    return any(type(name) is type(value) and name == value for name in typing.get_args(base))
