"""The words of a command line: what is read before the parser, and what its errors say."""

import dataclasses
import re
from collections.abc import Sequence
from itertools import pairwise, takewhile

from rich.text import Text

from jaxfl.core.errors import did_you_mean
from jaxfl.core.options import describe
from jaxfl.experiment.config.fields import hints, option

# How the parser's messages begin.
WRONG_VALUE = re.compile(r"(?:Error parsing|invalid choice .* for argument) '?(--[\w-]+)'?[:.] ")
UNKNOWN = re.compile(r"^Unrecognized options: ([^-,;][^,;]*)")
# It ends with the help of the program, which has no options.
HELP = re.compile(r"^For full helptext, (see|run) jaxfl.*--help$")


def values(name: str, arguments: Sequence[str]) -> list[str]:
    """The values that follow an option on the command line, as `--name VALUE` or `--name=VALUE`."""
    apart = [b for a, b in pairwise(arguments) if a == name]
    return apart + [a.removeprefix(f"{name}=") for a in arguments if a.startswith(f"{name}=")]


def with_names(arguments: Sequence[str]) -> list[str]:
    """`compare local fedavg ...` is `compare --algorithms local fedavg ...`."""
    if arguments[:1] == ["compare"] and arguments[1:2] and not arguments[1].startswith("-"):
        return ["compare", "--algorithms", *arguments[1:]]
    return list(arguments)


def refusal(said: str, commands: dict[str, type], arguments: Sequence[str]) -> str:
    """What the parser says of a command line that it refuses, on one line and in plain words.

    Args:
      said: its words.
      commands: the dataclass of each command.
      arguments: the command line.
    """
    line = unboxed(said)
    chosen = "".join(arguments[:1])
    if chosen not in commands:
        return line
    options = {option(field.name): field for field in dataclasses.fields(commands[chosen])}
    if (wrong := WRONG_VALUE.match(line)) and wrong[1] in options:
        hint = hints(commands[chosen])[options[wrong[1]].name]
        _, help_begins, about = line.partition(f"; {wrong[1]} ")
        given = " ".join(_behind(wrong[1], arguments))
        expected = describe(hint).replace(" or null", "")
        return f"{wrong[1]} is {given:.80}: expected {expected}{help_begins}{about}"
    if not line.startswith("Unrecognized"):
        return line
    words = [option(word.partition("=")[0][2:]) for word in arguments if word.startswith("--")]
    for word in words:
        if word not in options and word.replace("--no-", "--") not in options:
            return _unknown_option(word, chosen, commands)
    for word in UNKNOWN.findall(line):
        before = [name for name in arguments[: arguments.index(word)] if name.startswith("--")]
        last = option(before[-1][2:]) if before else ""
        if last in options and not isinstance(options[last].default, bool | tuple):
            return f"{line}; {last} takes one value"
    return line


def _unknown_option(word: str, chosen: str, commands: dict[str, type]) -> str:
    """What to say of an option that a command does not have."""
    having = {
        name: [option(field.name) for field in dataclasses.fields(command)]
        for name, command in commands.items()
    }
    others = [f"jaxfl {name}" for name, options in having.items() if word in options]
    if others:
        return f"jaxfl {chosen} takes no {word}: it is an option of {', '.join(others)}"
    hint = did_you_mean(word, having[chosen]) or f"see jaxfl {chosen} --help"
    return f"unknown option of jaxfl {chosen} {word!r}: {hint}"


def unboxed(said: str) -> str:
    """What the parser says in a box of several parts, in colours or in plain ASCII, as one line."""
    rows = [
        row.strip("│ ")
        for row in Text.from_ansi(said).plain.splitlines()
        if row.startswith(("│", "  "))
    ]
    parts = " ".join(row if row.strip("─-") else "\n" for row in rows if row).split("\n")
    parts = [
        part.partition(" Got errors:")[0].removeprefix(" Argument helptext:").strip()
        for part in parts
    ]
    return (
        "; ".join(part.rstrip(".") for part in parts if part and not HELP.match(part))
        or "no such command line: see jaxfl --help"
    )


def _behind(name: str, arguments: Sequence[str]) -> list[str]:
    """The words behind the option `name`."""
    spelled = [word.partition("=")[0].replace("_", "-") for word in arguments]
    place = len(spelled) - 1 - spelled[::-1].index(name)
    _, equals, value = arguments[place].partition("=")
    if equals:
        return [value]
    return list(takewhile(lambda word: not word.startswith("--"), arguments[place + 1 :]))
