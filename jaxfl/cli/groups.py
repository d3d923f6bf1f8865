"""The options of a command in groups, as `jaxfl COMMAND --help` shows them.

A command is one flat dataclass, made of dataclasses for what its options are about. The parser gets
these as nested dataclasses, because it shows each nested dataclass in a box of its own.
"""

import ast
import dataclasses
import functools
import inspect
import textwrap
import types
import typing
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import tyro

# The order of the boxes; other groups follow.
ORDER = ["DataOptions", "TrainingOptions", "RunOptions", "UploadOptions", "ClockOptions"]
# Options of a smaller group stand in the first box, with the options of the command itself.
SMALLEST_GROUP = 3
# Defaults that the help leaves out.
PLAIN_DEFAULTS = ("", "None", "False")
# What stands for the value of an option that may be None.
PLACEHOLDERS = {str: "STR", int: "INT", float: "FLOAT", Path: "PATH"}


def grouped(command: type, default: Any = None) -> type:
    """A dataclass for the parser, with a nested dataclass for each group of a command's options.

    Args:
      command: the flat dataclass of the command.
      default: an instance of it from which the options start; None for the defaults of the class.
    """
    return _from_the_class(command) if default is None else _grouped(command, vars(default))


def flat(command: type, parsed: Any) -> Any:
    """The command of an instance of the class that `grouped` has made."""
    values = {}
    for field in dataclasses.fields(parsed):
        value = getattr(parsed, field.name)
        values |= vars(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return command(**values)


@functools.cache
def _from_the_class(command: type) -> type:
    """`grouped` with the defaults of the class, which do not change."""
    return _grouped(command, {field.name: field.default for field in dataclasses.fields(command)})


def _grouped(command: type, defaults: dict[str, Any]) -> type:
    """`grouped` with the default of each option."""
    hints = typing.get_type_hints(command, include_extras=True)
    members = []
    boxes = []
    for group in _groups(command):
        options = [
            (name, _shown(hints[name], text), dataclasses.field(default=defaults[name]))
            for name, text in _texts(group).items()
        ]
        if group is command or len(options) < SMALLEST_GROUP:
            members += options
            continue
        box = _make(group, options)
        title = group.__name__.removesuffix("Options").lower()
        # The text is given, so the parser does not search the sources for it.
        noted = Annotated[box, tyro.conf.arg(help=inspect.getdoc(group))]
        boxes.append((title, noted, dataclasses.field(default_factory=box)))
    return _make(command, members + boxes)


def _make(like: type, members: list[Any]) -> type:
    """A dataclass with the name and the documentation of another one."""
    documented = {"__doc__": like.__doc__}
    return dataclasses.make_dataclass(
        like.__name__, members, frozen=True, kw_only=True, namespace=documented
    )


def _groups(command: type) -> list[type]:
    """The command and the dataclasses it is made of that have options, in the order of the help."""
    bases = [base for base in command.__mro__[1:] if inspect.get_annotations(base)]
    return [
        command,
        *sorted(bases, key=lambda base: [*ORDER, base.__name__].index(base.__name__)),
    ]


@functools.cache
def _texts(group: type) -> dict[str, str]:
    """The options of a dataclass itself and the text below each of them, as one line."""
    source = ast.parse(textwrap.dedent(inspect.getsource(group)))
    statements = next(node.body for node in source.body if isinstance(node, ast.ClassDef))
    return {
        ast.unparse(field.target): " ".join(ast.literal_eval(text.value).split())
        for field, text in pairwise(statements)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _shown(hint: Any, text: str) -> Any:
    """The hint of an option as the help shows it."""
    shown = tyro.conf.arg(
        help=text,
        metavar=_placeholder(hint),
        help_behavior_hint=lambda value: "" if value in PLAIN_DEFAULTS else f"(default: {value})",
    )
    return Annotated[hint, shown]


def _placeholder(hint: Any) -> str | None:
    """What stands for the value of an option that may be None; None to leave it to the parser."""
    plain = hint
    if typing.get_origin(hint) is Annotated:
        plain, *notes = typing.get_args(hint)
        if any(getattr(note, "metavar", None) for note in notes):
            return None
    if typing.get_origin(plain) not in (types.UnionType, typing.Union):
        return None
    kinds = [kind for kind in typing.get_args(plain) if kind is not types.NoneType]
    if len(kinds) > 1:
        return None
    if typing.get_origin(kinds[0]) is typing.Literal:
        return "{" + ",".join(typing.get_args(kinds[0])) + "}"
    return PLACEHOLDERS[kinds[0]]
