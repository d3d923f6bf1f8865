"""The options of a command in groups, as `jaxfl COMMAND --help` shows them.

A command is one flat dataclass, made of dataclasses for what its options are about. The parser
learns here that each of these is a box of its own, and how the words behind an option are read.
"""

import dataclasses
import functools
import inspect
import operator
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import docstring_parser
import tyro
from tyro.constructors import (
    MISSING,
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from jaxfl.core.options import describe
from jaxfl.experiment.config.composite import FIELDS, option, owners
from jaxfl.experiment.config.hints import as_typed, hints
from jaxfl.experiment.config.setting import Options, SettingOptions

# The order of the boxes; other groups follow.
ORDER = [group.__name__ for group in hints(Options).values()]
# Options of a smaller group stand in the first box, with the options of the command itself.
SMALLEST_GROUP = 2
# Defaults that the help leaves out.
PLAIN_DEFAULTS = ("", "None", "False")
# The value of an option that has no default, until the command line gives one.
REQUIRED = object()


class Unreadable(Exception):
    """The words behind an option are no value of it; the message is that of an `InputError`.

    The parser catches every `ValueError`, and so every `InputError`, and draws a box.
    """


# The names that are known for an option, by its name and hint.
Known = Callable[[str, Any], list[str]]


def union(commands: Mapping[str, type], defaults: Mapping[type, Any]) -> Any:
    """The commands as the parser takes them, with instances from which their options start."""
    kinds = (
        Annotated[kind, tyro.conf.subcommand(name, default=defaults.get(kind, MISSING))]
        for name, kind in commands.items()
    )
    return functools.reduce(operator.or_, kinds)


def registry(commands: Collection[type], known: Known | None = None) -> ConstructorRegistry:
    """The rule by which the parser reads the dataclasses of commands.

    What it reads is the command as a `functools.partial` of all its options, still to be called. An
    option without a default that is not on the command line has the value `REQUIRED`.

    Args:
      commands: the dataclasses.
      known: of a script of completion, which offers these names.
    """
    groups = {group for command in commands for group in groups_of(command)}
    rules = ConstructorRegistry()

    @rules.struct_rule
    def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
        if info.type not in groups:
            return None
        default = info.default if isinstance(info.default, info.type) else None
        fields = _fields(info.type, default, known)
        return StructConstructorSpec(_maker(info.type), fields)

    return rules


def groups_of(command: type) -> list[type]:
    """The command and the dataclasses it is made of that have options, in the order of the help."""
    bases = [base for base in command.__mro__[1:] if inspect.get_annotations(base)]
    return [
        command,
        *sorted(bases, key=lambda base: [*ORDER, base.__name__].index(base.__name__)),
    ]


@functools.cache
def texts(group: type) -> dict[str, str]:
    """The options of a dataclass itself and the text below each of them, as one line."""
    params = docstring_parser.parse_from_object(group).params
    return {param.arg_name: " ".join((param.description or "").split()) for param in params}


def text_of(command: type, name: str) -> str:
    """What stands below an option of a command, as one line."""
    return next(texts(group)[name] for group in groups_of(command) if name in texts(group))


def typed_alone(group: type) -> list[str]:
    """The options of a dataclass itself that are not typed behind another one."""
    return [name for name in texts(group) if not owners(name)]


def form_of(command: type, name: str) -> str:
    """An option as it is typed: "--rounds INT"."""
    hint = hints(command)[name]
    is_positional = tyro.conf.Positional in _notes(hint)
    return " ".join([*([] if is_positional else [option(name)]), metavar(hint)])


def nargs(command: type) -> dict[str, int | str]:
    """How many words the options of a command take, each time: 0, 1 or "*" for any number."""
    numbers = {}
    for name, hint in hints(command).items():
        if owners(name):
            continue
        if _plain(hint) is bool:
            numbers[option(name)] = 0
        elif tyro.conf.UseAppendAction in _notes(hint):
            numbers[option(name)] = 1
        else:
            numbers[option(name)] = _spec(hint).nargs
    return numbers


def _fields(group: type, default: Any, known: Known | None) -> tuple[StructFieldSpec, ...]:
    """The options of a command in its order, then a nested dataclass for each of its boxes.

    Args:
      group: the dataclass of a command, or of one box.
      default: an instance of it from which the options start; None for the defaults of the class.
      known: as in `registry`.
    """
    values = {field.name: _default(field) for field in dataclasses.fields(group)}
    if default is not None:
        values = vars(default)
    options = []
    boxes = []
    for section in groups_of(group):
        if section is group or len(typed_alone(section)) < SMALLEST_GROUP:
            options += [
                StructFieldSpec(name, _form(group, name, values[name], known), values[name])
                for name in typed_alone(section)
            ]
            continue
        title = section.__name__.removesuffix("Options").lower()
        start = section(**{name: values[name] for name in texts(section)})
        boxes.append(StructFieldSpec(title, section, start))
    return (*options, *boxes)


def _default(field: dataclasses.Field) -> Any:
    return REQUIRED if field.default is dataclasses.MISSING else field.default


def _maker(command: type) -> Callable[..., functools.partial]:
    """What joins a command's own options and its boxes; the help begins with its docstring."""

    def make(**values: Any) -> functools.partial:
        options = {}
        for name, value in values.items():
            is_box = isinstance(value, functools.partial)
            options |= value.keywords if is_box else {name: value}
        return functools.partial(command, **options)

    make.__doc__ = command.__doc__
    return make


def _form(command: type, name: str, default: Any, known: Known | None) -> Any:
    """The hint of an option with what the help says, and how its words are read."""
    hint = hints(command)[name]
    display = tyro.conf.arg(
        help=_help(command, name),
        help_behavior_hint=_behaviour(default),
    )
    if _plain(hint) is bool or tyro.conf.UseAppendAction in _notes(hint):
        return Annotated[hint, display]  # any words will do
    # The parser warns of a default of another type than the hint's, as REQUIRED is.
    plain = Any if default is REQUIRED else _plain(hint)
    return Annotated[(plain, *_notes(hint), display, _reader(command, name, known))]


def _behaviour(default: Any) -> str:
    """What the help says of a default."""
    if default is REQUIRED:
        return "(required)"
    return "" if as_typed(default) in PLAIN_DEFAULTS else f"(default: {as_typed(default)})"


def _reader(command: type, name: str, known: Known | None) -> PrimitiveConstructorSpec:
    """How the words behind an option are read: as the parser does, but for the error."""
    hint = hints(command)[name]
    spec = _spec(hint)

    def read(words: list[str]) -> Any:
        try:
            return spec.instance_from_str(words)
        except ValueError:
            expected = describe(hint).replace(" or none", "")
            problem = f"{option(name)} is {' '.join(words):.80}: expected {expected}"
            raise Unreadable(problem) from None

    return dataclasses.replace(
        spec,
        metavar=metavar(hint),
        instance_from_str=read,
        is_instance=lambda value: value is REQUIRED or spec.is_instance(value),
        str_from_instance=lambda value: [] if value is REQUIRED else spec.str_from_instance(value),
        # `read` refuses what is none of them.
        choices=tuple(known(name, hint)) or None if known else None,
    )


def _spec(hint: Any) -> PrimitiveConstructorSpec:
    """How the parser reads a type by itself."""
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(hint, set()))
    if not isinstance(spec, PrimitiveConstructorSpec):
        raise TypeError(f"the parser cannot read {hint}")
    return spec


def _help(command: type, name: str) -> str:
    """What the help says of an option: of one that `jaxfl list options` has, the part before `;`.

    Behind it stand the keys that may follow its value.
    """
    text = text_of(command, name)
    if name in hints(SettingOptions):
        text = text.partition(";")[0]
    keys = " ".join(f"{key}=" for key in FIELDS.get(name, {}))
    return text + (f" [{keys}]" if keys else "")


def metavar(hint: Any) -> str:
    """What stands for the value of an option, where None needs no words: INT, {ring,alone}."""
    for note in _notes(hint):
        if getattr(note, "metavar", None):
            return note.metavar
    plain = _plain(hint)
    if tyro.conf.UseAppendAction in _notes(hint):  # one of them at a time
        plain, *_ = typing.get_args(plain)
    if typing.get_origin(plain) in (types.UnionType, typing.Union):
        kinds = [kind for kind in typing.get_args(plain) if kind is not types.NoneType]
        plain = typing.Union[tuple(kinds)]  # noqa: UP007, for a tuple
    return _spec(plain).metavar


def _plain(hint: Any) -> Any:
    """The hint without its notes."""
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _notes(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())
