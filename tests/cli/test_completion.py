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
      _tyro_jaxfl
      printf "%s\\n" "${COMPREPLY[@]}"
    """
    arguments = ["bash", "-u", "-c", program, "bash", script, "jaxfl", *words]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_the_first_word_is_a_command(script):
    assert set(complete(script, "")) == {*NAMES, "--help", "-h"}
    assert complete(script, "re") == ["report", "resume"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["compare", "--algorithms", "local", "fedavg", ""], ALGORITHMS),
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


def test_a_name_that_the_shell_would_run_is_not_offered(tmp_path, monkeypatch):
    for name in ("mine", "$(touch run)", "`touch run`", "a b", 'quo"te', "quo'te"):
        (tmp_path / f"{name}.npz").touch()
    monkeypatch.setenv("JAXFL_DATA_DIR", str(tmp_path))
    file = tmp_path / "completion.bash"
    file.write_text(completion("bash", NAMES))
    monkeypatch.chdir(tmp_path)
    assert complete(file, "run", "--dataset", "") == ["mine", "digits"]
    assert not (tmp_path / "run").exists()


def test_options_are_those_of_the_command(script):
    assert complete(script, "run", "fedavg", "--participat") == ["--participation"]
    assert complete(script, "compare", "--no-equal") == ["--no-equal-budget"]
    assert complete(script, "run", "--equal") == []


def test_the_program_prints_the_script(script, capsys):
    assert main(["--completion", "bash"]) == 0
    assert capsys.readouterr().out == script.read_text()
