"""Completion in the shell, by the parser's own script, which here knows names of values too."""

import contextlib
import io
import itertools
import re
import typing
from collections.abc import Mapping
from typing import Any

import tyro

from jaxfl.cli.groups import registry, union
from jaxfl.cli.listing import kinds
from jaxfl.cli.prepare_data import OPTIONS
from jaxfl.core.errors import check_name
from jaxfl.core.options import Names
from jaxfl.data.published.recipes import RECIPES

SHELLS = ("bash", "fish", "zsh")
# The kind of names, as `jaxfl list` calls it, that an option takes; it may take others too.
KINDS = {
    "algorithm": "algorithms",
    "algorithms": "algorithms",
    "dataset": "datasets",
    "preset": "presets",
}
# A shell may expand the words that it offers, so a file named `$(...)` must not be one of them.
PLAIN = re.compile(r"[\w./:-]+")


def completion(shell: str, commands: Mapping[str, type]) -> str:
    """A script by which a shell completes command lines of jaxfl.

    Args:
      shell: of `SHELLS`.
      commands: the dataclass of each command.

    Raises:
      InputError: another shell.
    """
    check_name("shell", shell, SHELLS)
    names_by_kind = {name: list(kind.values) for name, kind in kinds(None).items()}

    def names(field: str, hint: Any) -> list[str]:
        return list(filter(PLAIN.fullmatch, _names(field, hint, names_by_kind)))

    with contextlib.redirect_stdout(io.StringIO()) as script, contextlib.suppress(SystemExit):
        tyro.cli(
            union(commands, {}),
            prog="jaxfl",
            args=["--tyro-print-completion", shell],
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
            registry=registry(commands.values(), names),
        )
    return script.getvalue()


def _names(field: str, hint: Any, names_by_kind: dict[str, list[str]]) -> list[str]:
    """The names that are known for the values of an option."""
    if field == "data":  # of `jaxfl prepare`
        return [*OPTIONS, *RECIPES]
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
