"""Python files of the user's own add to what the command line knows by name."""

import json

import pytest

import jaxfl
from jaxfl.cli import main
from jaxfl.models import MODELS

NET = """
import flax.linen as nn
import jaxfl


class Net(nn.Module):
    outputs: int
    head = "Dense_0"

    @nn.compact
    def __call__(self, x):
        return nn.Dense(self.outputs)(x.reshape(x.shape[0], -1))


jaxfl.models.MODELS["net"] = Net
"""
SHORT = ["--rounds", "1", "--local-steps", "1", "--partition", "iid", "--clients", "2"]


@pytest.fixture(autouse=True)
def known_models(monkeypatch):
    """The names of models, which a plugin changes, are put back after each test."""
    known = dict(MODELS)
    yield
    MODELS.clear()
    MODELS.update(known)


@pytest.mark.slow
def test_a_model_of_a_file_is_known_by_name_where_the_file_is_named(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(NET)
    plugin = ["--plugin", str(tmp_path / "mine.py")]
    out = tmp_path / "run"
    assert main(["run", "fedavg", *plugin, *SHORT, "--model", "net", "--out", str(out)]) == 0
    assert jaxfl.load(out).models["params"]["Dense_0"]["kernel"].shape == (2, 64, 10)
    assert json.loads((out / "config.json").read_text())["plugin"] == [plugin[1]]
    del MODELS["net"]
    again = ["run", "--config", str(out / "config.json"), "--out", str(tmp_path / "again")]
    assert main(again) == 2
    assert "unknown model 'net'" in capsys.readouterr().err
    assert main([*again, *plugin]) == 0


def test_no_config_runs_a_plugin(tmp_path, capsys):
    (tmp_path / "c.json").write_text(json.dumps({"algorithm": "fedavg", "plugin": ["mine.py"]}))
    assert main(["run", "--config", str(tmp_path / "c.json")]) == 2
    assert "plugin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.py", None, "there is no such file, give a Python file"),
        ("net.txt", NET, "expected a Python file, NAME.py"),
        ("broken.py", "1 / 0", "cannot be run: ZeroDivisionError"),
        ("wrong.py", "def", "cannot be run: SyntaxError"),
    ],
)
def test_a_file_that_cannot_be_run_is_one_line(tmp_path, capsys, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert main(["run", "fedavg", "--plugin", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_command_without_plugins_refuses_the_file_before_it_is_run(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("raise SystemExit('it was run')")
    for command in (["cite"], ["prepare", "mnist"], ["report", "x"]):
        assert main([*command, "--plugin", str(tmp_path / "mine.py")]) == 2
        assert f"jaxfl {command[0]} takes no --plugin" in capsys.readouterr().err
