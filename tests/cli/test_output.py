"""Standard output that is closed or takes no more text: a run goes on, another command says so."""

import errno
import io
import os
import sys
import warnings

import jax
import pytest
from rich.console import Console

from jaxfl.cli import COMMANDS, main, one_line_warnings
from jaxfl.cli.command_options import List, Run
from jaxfl.core.errors import warn


class Broken(io.StringIO):
    """A stream that takes no text."""

    def __init__(self, number):
        super().__init__()
        self.number = number
        self.tries = 0

    def write(self, text):
        self.tries += 1
        raise OSError(self.number, os.strerror(self.number))


def show_rounds(command, console):
    for number in range(3):
        console.print(f"round {number}")


NUMBERS = [errno.ENOSPC, errno.EPIPE]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_goes_on_without_its_log(number, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Broken(number))
    monkeypatch.setitem(COMMANDS, Run, show_rounds)
    assert main(["run", "local"]) == 0
    said = capsys.readouterr().err
    assert said == (
        f"jaxfl: the log cannot be written ({os.strerror(number)}): the run goes on without it\n"
    )


@pytest.mark.parametrize("number", NUMBERS)
def test_a_run_goes_on_without_standard_error_too(number, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Broken(number))
    monkeypatch.setattr(sys, "stderr", Broken(errno.ENOSPC))
    monkeypatch.setitem(COMMANDS, Run, show_rounds)
    assert main(["run", "local"]) == 0
    assert sys.stdout.tries
    assert sys.stderr.tries


def test_a_command_whose_result_is_its_output_fails_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Broken(errno.ENOSPC))
    monkeypatch.setitem(COMMANDS, List, show_rounds)
    assert main(["list"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "the output cannot be written (No space left on device)" in said


@pytest.mark.parametrize("names", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_closed_streams_lead_nowhere(names, monkeypatch):
    for name in names:
        monkeypatch.setattr(sys, name, None)
    monkeypatch.setitem(COMMANDS, Run, show_rounds)
    assert main(["run", "local"]) == 0
    for name in names:
        getattr(sys, name).close()


def test_help_that_cannot_be_written_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", Broken(errno.ENOSPC))
    assert main(["report", "--help"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("command", [List, Run])
def test_letters_that_the_encoding_lacks_are_written_by_their_numbers(command, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setitem(COMMANDS, command, lambda _, console: console.print("0.5 \u00b1 0.1"))
    assert main([command.__name__.lower(), "local"]) == 0
    assert stream.buffer.getvalue() == b"0.5 \\xb1 0.1\n"


def test_a_warning_is_one_line_and_is_said_once(capsys):
    with one_line_warnings(Console(stderr=True, width=200)):
        for message in ("one", "two", "one"):
            warn(message)
    assert capsys.readouterr().err.splitlines() == ["jaxfl: one", "jaxfl: two"]


def test_programs_that_cannot_be_read_are_removed_in_one_line(tmp_path, monkeypatch):
    """A full disk cuts them; JAX warns of each in every run, and replaces none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before, folder = jax.config.jax_compilation_cache_dir, tmp_path / "jaxfl"
    folder.mkdir()
    (folder / "jit_round-cache").write_bytes(b"cut")
    (folder / "notes").touch()
    text = io.StringIO()
    jax.config.update("jax_compilation_cache_dir", str(folder))
    try:
        with one_line_warnings(Console(file=text, width=200)):
            warnings.simplefilter("always")
            for name in ("jit_round", "jit_score"):
                warnings.warn(
                    f"Error reading persistent compilation cache entry for '{name}'", stacklevel=1
                )
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert text.getvalue().count("\n") == 1
    assert "could not be read, and has been emptied" in text.getvalue()
    assert [path.name for path in folder.iterdir()] == ["notes"]
