"""The words of a command line: what is read before the parser, and what errors say of them."""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli.groups import REQUIRED, form_of, nargs
from jaxfl.core.errors import InputError, check, check_name, did_you_mean
from jaxfl.core.options import options_of
from jaxfl.core.text import composed
from jaxfl.experiment.config.composite import FIELDS, KEEP, dashed, divided, option, owners
from jaxfl.experiment.config.hints import hints, read_field
from jaxfl.experiment.config.json_text import parse_part

# Words for options in papers and in other programs.
SYNONYMS = {
    "--batch": "--batch-size",
    "--client-fraction": "--participation",
    "--clients-per-round": "--participation",
    "--dirichlet": "--partition dirichlet:beta=VALUE",
    "--epochs": "--local-epochs",
    "--fraction": "--participation",
    "--gpus": "--devices",
    "--learning-rate": "--lr",
    "--method": "--algorithm",
    "--methods": "--algorithms",
    "--metrics": "--metric",
    "--noniid": "--partition",
    "--non-iid": "--partition",
    "--num-clients": "--clients",
    "--num-rounds": "--rounds",
    "--output": "--out",
    "--score": "--metric",
    "--steps": "--local-steps",
}


def values(name: str, arguments: Sequence[str]) -> list[str]:
    """The values that follow an option on the command line, as `--name VALUE` or `--name=VALUE`."""
    followers = [b for a, b in pairwise(arguments) if a == name]
    return followers + [a.removeprefix(f"{name}=") for a in arguments if a.startswith(f"{name}=")]


def as_meant(arguments: Sequence[str]) -> list[str]:
    """The command line with the home folder in `--out=~/x`, and names as `composed` has them.

    A shell puts the home folder in the place of `~` at the beginning of a word alone. What names a
    file that exists stays as it is.
    """
    words = []
    for word in arguments:
        name, behind, value = word.partition("=")
        if word.startswith("--") and value.startswith("~"):
            value = os.path.expanduser(value)
            word = f"{name}{behind}{value}"
        names_file = os.path.exists(word) or os.path.exists(value)
        words.append(word if names_file else composed(word))
    return words


def with_names(arguments: Sequence[str]) -> list[str]:
    """`compare local fedavg ...` is `compare --algorithms local fedavg ...`."""
    if arguments[:1] == ["compare"] and arguments[1:2] and not arguments[1].startswith("-"):
        return ["compare", "--algorithms", *arguments[1:]]
    return list(arguments)


def take_fields(arguments: Sequence[str], command: type) -> tuple[list[str], dict[str, Any]]:
    """The fields that are typed behind the colon of another option, and those of `--keep`.

    Args:
      arguments: the command line.
      command: its dataclass.

    Returns:
      The command line without what stands behind colons; field -> value.

    Raises:
      InputError: a key that the option does not have, one that is given twice, or no value of it.
    """
    known = hints(command)
    rest: list[str] = []
    fields: dict[str, Any] = {}
    name = ""
    for word in arguments:
        before, equals, value = word.partition("=") if _is_option(word) else ("", "", word)
        if before:
            name = _option(before).removeprefix("--").replace("-", "_")
        keys = {key: one for key, one in FIELDS.get(name, {}).items() if one in known}
        if not keys or (before and not equals):
            rest.append(word)
            continue
        head, pairs = ("", [value]) if name == KEEP else divided(value)
        for pair in pairs:
            field, text = _pair(name, keys, pair)
            check(field not in fields, f"{option(field)} is given twice: give it once")
            fields[field] = read_field(option(field), known[field], parse_part(known[field], text))
        if head or not pairs:
            rest.append(before + equals + head)
        elif name == KEEP:
            rest += [before] if before else []
        elif not before:
            rest.pop()
    return rest, fields


def _pair(name: str, keys: dict[str, str], pair: str) -> tuple[str, str]:
    """The field and the text of KEY=VALUE behind an option of this name."""
    key, _, text = pair.partition("=")
    check(bool(text), f"{dashed(name)} {pair!r}: expected KEY=VALUE, KEY one of {', '.join(keys)}")
    check_name(f"key of {dashed(name)}", key, keys)
    return keys[key], text


def check_command(word: str, commands: dict[str, type]) -> None:
    """Checks the first word of a command line: a command, or an option that asks for the help.

    Raises:
      InputError: it is neither.
    """
    if word in ("-h", "--help"):
        return
    check(
        not _is_option(word),
        f"{word} stands before the command: expected jaxfl COMMAND with its options behind it, "
        f"COMMAND one of {', '.join(commands)}",
    )
    check_name("command", word, commands)


def check_all_read(
    unread: Sequence[str], arguments: Sequence[str], commands: dict[str, type]
) -> None:
    """Checks that the parser has read every word of a command line.

    Args:
      unread: the words that it has not.
      arguments: the command line.
      commands: the dataclass of each command.

    Raises:
      InputError: an option that the command does not have, or a word where none is expected.
    """
    for word in unread:
        if _is_option(word):
            raise InputError(_unknown_option(word, arguments[0], commands))
    if unread:
        room = _room(unread[0], arguments, commands[arguments[0]])
        raise InputError(f"unexpected {', '.join(unread)}: {room}")


def missing_value(arguments: Sequence[str], commands: dict[str, type]) -> str:
    """What is wrong with a command line that the parser refuses: an option lacks its value."""
    command = commands[arguments[0]]
    numbers = nargs(command)
    for word, follower in pairwise([*arguments, "--"]):
        if numbers.get(_option(word)) == 1 and "=" not in word and _is_option(follower):
            name = _option(word).removeprefix("--").replace("-", "_")
            return (
                f"Missing value for argument '{_option(word)}': expected {form_of(command, name)}"
            )
    return f"cannot read this command line: see jaxfl {arguments[0]} --help"


def check_complete(options: dict[str, Any], name: str, command: type) -> None:
    """Checks that the options of a command that have no default are given.

    Args:
      options: as the parser read them.
      name: the name of the command.
      command: its dataclass.

    Raises:
      InputError: some are missing; the message names them.
    """
    absent = [form_of(command, key) for key, value in options.items() if value is REQUIRED]
    check(not absent, f"Missing from jaxfl {name}: {' and '.join(absent)}: see jaxfl {name} --help")


def _unknown_option(word: str, name: str, commands: dict[str, type]) -> str:
    """What to say of an option that a command does not have.

    Args:
      word: the option.
      name: the name of the command.
      commands: the dataclass of each command.
    """
    unknown = _option(word)
    options = nargs(commands[name])
    known = SYNONYMS.get(unknown, "")
    if known and all(one in options for one in known.split() if one.startswith("--")):
        return f"unknown option of jaxfl {name} {unknown!r}: did you mean {known}?"
    hyper = unknown.removeprefix("--").replace("-", "_")
    for owner, key in owners(hyper):
        if hyper in hints(commands[name]):
            behind = f"{key}=VALUE" if owner == KEEP else f"VALUE:{key}=VALUE"
            problem = f"unknown option of jaxfl {name} {unknown!r}"
            return f"{problem}: did you mean {dashed(owner)} {behind}?"
    if "--hyper" in options and any(hyper in options_of(one) for one in ALGORITHMS.values()):
        return (
            f"unknown option of jaxfl {name} {unknown!r}: it is a hyper-parameter, did you mean "
            f"--hyper {hyper}=VALUE?"
        )
    others = [f"jaxfl {other}" for other, command in commands.items() if unknown in nargs(command)]
    if others:
        return f"jaxfl {name} takes no {unknown}: it is an option of {', '.join(others)}"
    nearest = did_you_mean(unknown, options) or f"see jaxfl {name} --help"
    return f"unknown option of jaxfl {name} {unknown!r}: {nearest}"


def _room(word: str, arguments: Sequence[str], command: type) -> str:
    """How many values the option takes behind which a word stands that is one too many."""
    places = [i for i, argument in enumerate(arguments) if f"={argument}".endswith(f"={word}")]
    before = [_option(argument) for argument in arguments[: places[0] + 1] if _is_option(argument)]
    number = nargs(command).get(before[-1]) if before else None
    if number in (0, 1):
        return f"{before[-1]} takes {'one' if number else 'no'} value"
    return f"see jaxfl {arguments[0]} --help"


def _option(word: str) -> str:
    """The option of a word as the help has it: "--local-steps" of "--local_steps=3"."""
    return word.partition("=")[0].replace("_", "-")


def _is_option(word: str) -> bool:
    """Whether a word is an option, known or not, and no value: "-3" and "-inf" are numbers."""
    if word.startswith("--"):
        return True
    try:
        float(word)
    except ValueError:
        return word[:1] == "-" and word[1:2].isalpha()
    return False
