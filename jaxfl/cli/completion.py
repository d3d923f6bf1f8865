"""Completion in the shell: a script that knows the commands, their options, and names of values."""

import itertools
import re
import typing
from collections.abc import Iterable
from typing import Any

import tyro

from jaxfl.cli.groups import nargs
from jaxfl.cli.listing import kinds
from jaxfl.cli.prepare import GROUPS
from jaxfl.core.errors import check_name
from jaxfl.core.options import Names
from jaxfl.data.published.recipes import RECIPES
from jaxfl.experiment.config.hints import hints, option

# What zsh needs before it reads a script for bash.
PREAMBLES = {"bash": "", "zsh": "autoload -Uz bashcompinit && bashcompinit\n"}
# The kind of names, as `jaxfl list` calls it, that an option takes; it may take others too.
KINDS = {
    "algorithm": "algorithms",
    "algorithms": "algorithms",
    "dataset": "datasets",
    "preset": "presets",
}
# Bash expands the words that it offers, so a file of data named `$(...)` must not be one of them.
PLAIN = re.compile(r"[\w./:-]+")
# `jaxfl compare local fedavg` is `jaxfl compare --algorithms local fedavg`.
WITHOUT_OPTION = ("compare", "algorithms")
# The word before the one to complete says what may stand there: an option that takes a value, or
# none. Where no name is known, the shell offers files.
SCRIPT = """\
_jaxfl() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" option="" words="" i
  local flags=" {flags} " several=" {several} "
  [[ $word == "=" ]] && word=""
  for ((i = COMP_CWORD - 1; i > 1; i--)); do
    if [[ ${{COMP_WORDS[i]}} == --* ]]; then
      option="${{COMP_WORDS[i]}}"
      break
    fi
  done
  if [[ $flags == *" $option "* ]]; then
    option=""
  elif [[ $several != *" $option "* && $COMP_CWORD -ne $((i + 1)) ]]; then
    [[ $COMP_CWORD -eq $((i + 2)) && ${{COMP_WORDS[i + 1]}} == "=" ]] || option=""
  fi
  if ((COMP_CWORD == 1)); then
    words="{commands}"
  elif [[ $word == -* ]]; then
    case "$command" in
{options}
    esac
  else
    case "$command $option" in
{values}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _jaxfl jaxfl
"""


def completion(shell: str, commands: dict[str, type]) -> str:
    """A script by which a shell completes command lines of jaxfl.

    Args:
      shell: bash or zsh.
      commands: the dataclass of each command.

    Raises:
      InputError: another shell.
    """
    check_name("shell", shell, PREAMBLES)
    names_by_kind = {name: list(kind.values) for name, kind in kinds(None).items()}
    numbers = {}
    options = []
    values: dict[str, list[str]] = {}  # what may stand there -> where: "run --dataset"
    for name, command in commands.items():
        numbers |= nargs(command)
        switches = [f"--no-{flag[2:]}" for flag, number in nargs(command).items() if number == 0]
        names = [option(field) for field, hint in hints(command).items() if not _is_first(hint)]
        options.append(_case([name], " ".join([*names, *switches, "--help"])))
        for field, hint in hints(command).items():
            words = " ".join(filter(PLAIN.fullmatch, _names(field, hint, names_by_kind)))
            places = [] if _is_first(hint) else [option(field)]
            if _is_first(hint) or (name, field) == WITHOUT_OPTION:
                places.append("")
            if words:
                values.setdefault(words, []).extend(f'"{name} {place}"' for place in places)
    return PREAMBLES[shell] + SCRIPT.format(
        flags=" ".join(flag for flag, number in numbers.items() if number == 0),
        several=" ".join(flag for flag, number in numbers.items() if number == "*"),
        commands=" ".join([*commands, "--help", "--version"]),
        options="\n".join(options),
        values="\n".join(_case(places, words) for words, places in values.items()),
    )


def _case(places: Iterable[str], words: str) -> str:
    return f'      {"|".join(places)}) words="{words}" ;;'


def _is_first(hint: Any) -> bool:
    """Whether a value stands without its option: `jaxfl run fedavg`."""
    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def _names(field: str, hint: Any, names_by_kind: dict[str, list[str]]) -> list[str]:
    """The names that are known for the values of an option."""
    if field == "data":  # of `jaxfl prepare`
        return [*GROUPS, *RECIPES]
    if field == "what":  # of `jaxfl list`
        return [*names_by_kind, *itertools.chain(*names_by_kind.values())]
    if field in KINDS:
        return names_by_kind[KINDS[field]]
    notes = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, Names)]
    return [*itertools.chain(*(note.known for note in notes)), *_literals(hint)]


def _literals(hint: Any) -> list[str]:
    """The words of every `Literal` in a hint."""
    if typing.get_origin(hint) is typing.Literal:
        return list(map(str, typing.get_args(hint)))
    return [word for inner in typing.get_args(hint) for word in _literals(inner)]
