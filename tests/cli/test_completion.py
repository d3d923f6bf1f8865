"""Completion: a script that bash runs, here as the shell does, with the words before the cursor."""

import subprocess
import typing

import pytest

from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import NAMES, main
from jaxfl.cli.completion import completion
from jaxfl.data import PARTITIONS
from jaxfl.experiment.config import PRESETS
from jaxfl.experiment.config.fields import ScoreOptions
from jaxfl.models import MODELS


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    file = tmp_path_factory.mktemp("shell") / "completion.bash"
    file.write_text(completion("bash", NAMES))
    return file


def complete(script, *words):
    """What bash offers for the last of the words."""
    program = """
      source "$1"
      shift
      COMP_WORDS=("$@")
      COMP_CWORD=$(($# - 1))
      _jaxfl
      printf "%s\\n" "${COMPREPLY[@]}"
    """
    arguments = ["bash", "-u", "-c", program, "bash", script, "jaxfl", *words]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_first_word_is_a_command(script):
    assert set(complete(script, "")) == {*NAMES, "--help", "--version"}
    assert complete(script, "re") == ["resume", "report"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["run", ""], ALGORITHMS),
        (["run", "--overwrite", ""], ALGORITHMS),
        (["run", "--rounds", "3", ""], ALGORITHMS),
        (["compare", "local", ""], ALGORITHMS),
        (["compare", "--algorithms", "local", "fedavg", ""], ALGORITHMS),
        (["cite", "fedavg", ""], ALGORITHMS),
        (["run", "fedavg", "--model", ""], MODELS),
        (["run", "fedavg", "--preset", ""], PRESETS),
        (["sweep", "--model", ""], MODELS),
        (["run", "fedavg", "--partition", ""], PARTITIONS),
        (["run", "--eval-on", ""], typing.get_args(typing.get_type_hints(ScoreOptions)["eval_on"])),
        (["run", "fedavg", "--chunk", ""], ["auto", "all"]),
        (["report", "x", "--format", "md", "p"], ["png", "pdf"]),
        (["run", "--test", ""], ["reweighted", "own", "global"]),
    ],
    ids=" ".join,
)
def test_the_names_of_choices_are_offered(words, names, script):
    assert complete(script, *words) == list(names)


def test_data_sets_are_offered(script):
    assert complete(script, "run", "fedavg", "--dataset", "di") == ["digits"]
    assert "mnist" in complete(script, "prepare", "")
    assert {"datasets", "digits", "fedavg", "mlp"} <= set(complete(script, "list", ""))


def test_a_name_that_the_shell_would_run_is_not_offered(tmp_path, monkeypatch):
    for name in ("mine", "$(touch run)", "`touch run`", "a b", 'quo"te', "quo'te"):
        (tmp_path / f"{name}.npz").touch()
    monkeypatch.setenv("JAXFL_DATA_DIR", str(tmp_path))
    file = tmp_path / "completion.bash"
    file.write_text(completion("bash", NAMES))
    monkeypatch.chdir(tmp_path)
    assert complete(file, "run", "--dataset", "") == ["mine", "digits"]
    assert not (tmp_path / "run").exists()


def test_a_value_may_follow_an_equals_sign(script):
    """Readline takes the sign for a word of its own."""
    assert complete(script, "run", "--model", "=", "ml") == ["mlp"]
    assert complete(script, "run", "--model", "=") == list(MODELS)


def test_options_are_those_of_the_command(script):
    assert complete(script, "run", "fedavg", "--participat") == ["--participation"]
    assert complete(script, "compare", "--no-equal") == ["--no-equal-budget"]
    assert complete(script, "run", "--equal") == []
    assert "--algorithm" not in complete(script, "run", "--")


def test_files_are_left_to_the_shell(script):
    assert complete(script, "run", "fedavg", "--config", "") == []
    assert complete(script, "report", "") == []
    assert "-o default" in script.read_text()


def test_the_program_prints_the_script(script, capsys):
    assert main(["--completion", "bash"]) == 0
    assert capsys.readouterr().out == script.read_text()
    assert main(["--completion", "zsh"]) == 0
    assert (
        capsys.readouterr().out
        == f"autoload -Uz bashcompinit && bashcompinit\n{script.read_text()}"
    )
