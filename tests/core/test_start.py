"""Ctrl-C while the program starts, and its version."""

import importlib.metadata
import os
import signal
import subprocess
import sys
from pathlib import Path

import children
import pytest

ROOT = Path(__file__).parents[2]
# What pip writes for an entry of [project.scripts]
SCRIPT = "import sys\nfrom jaxfl.cli import main\nsys.exit(main())\n"


@pytest.fixture
def interrupt(tmp_path):
    """A function that interrupts a program while it imports a module, and gives code and errors.

    The program is given as words; SCRIPT stands for the file of the console script.
    """

    def call(words, module):
        script = tmp_path / "jaxfl"
        script.write_text(SCRIPT)
        words = [str(script) if word == "SCRIPT" else word for word in words]
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in process.stderr:
            if line.split("|")[-1].strip() == module:
                break
        process.send_signal(signal.SIGINT)
        ((_, said),) = children.end([process], 60)
        lines = said.splitlines()
        return process.returncode, [line for line in lines if not line.startswith("import time")]

    return call


@pytest.mark.slow
@pytest.mark.parametrize("words", [["SCRIPT", "list"], ["-m", "jaxfl", "list"]], ids=str)
def test_an_interruption_while_the_program_imports_is_one_line(words, interrupt):
    assert interrupt(words, "jax.version") == (130, ["jaxfl: interrupted"])


@pytest.mark.slow
def test_a_program_that_imports_jaxfl_gets_an_exception(interrupt):
    code, lines = interrupt(["-c", "import jaxfl"], "jax.version")
    assert code == -signal.SIGINT
    assert lines[-1] == "KeyboardInterrupt"


@pytest.mark.parametrize("words", [["SCRIPT"], ["-m", "jaxfl"]], ids=str)
def test_the_version_is_there_without_an_import_of_jax(words, tmp_path):
    script = tmp_path / "jaxfl"
    script.write_text(SCRIPT)
    words = [str(script) if word == "SCRIPT" else word for word in words]
    process = subprocess.run(
        [sys.executable, "-X", "importtime", *words, "--version"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0
    assert process.stdout == f"jaxfl {importlib.metadata.version('jaxfl')}\n"
    modules = {line.split("|")[-1].strip() for line in process.stderr.splitlines()}
    assert "jaxfl.core.first_lines" in modules
    assert not modules & {"jax", "numpy"}
