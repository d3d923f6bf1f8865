"""Python files of the user's own add to what the command line knows by name."""

import json
from pathlib import Path

import numpy as np
import pytest

import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.cli import main
from jaxfl.core.errors import InputError
from jaxfl.experiment.config.json_text import config_from
from jaxfl.experiment.studies.sweep import resume_search
from jaxfl.kernels.similarity import MEASURES
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
def known_names():
    """The names of models and measures, which a plugin changes, are put back after each test."""
    tables = (MODELS, MEASURES)
    known = [dict(table) for table in tables]
    yield
    for table, names in zip(tables, known, strict=True):
        table.clear()
        table.update(names)


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


def test_an_unknown_name_of_a_config_may_be_one_of_its_plug_in():
    content = {"algorithm": "mine", "plugin": ["mine.py"]}
    with pytest.raises(InputError, match=r"algorithm 'mine': .*\(the run had --plugin mine\.py"):
        config_from(content, Path("c.json"))
    conflict = {"algorithm": "fedavg", "local_steps": 1, "local_epochs": 1, "plugin": ["mine.py"]}
    with pytest.raises(InputError, match="both --local-steps and --local-epochs") as error:
        config_from(conflict, Path("c.json"))
    assert "plugin" not in str(error.value)


def test_an_unknown_name_of_a_search_may_be_one_of_its_plug_in(tmp_path):
    config = {"algorithm": "fedavg", "plugin": ["mine.py"]}
    inputs = {"data": [], "files": {}}
    plan = {"config": config, "points": [{"model": "net"}], "show_test": False, "inputs": inputs}
    (tmp_path / "search.json").write_text(json.dumps(plan))
    with pytest.raises(InputError, match=r"unknown model 'net': .*\(the run had --plugin mine\.py"):
        resume_search(tmp_path)


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
    for command in (["cite"], ["prepare", "mnist"]):
        assert main([*command, "--plugin", str(tmp_path / "mine.py")]) == 2
        assert f"jaxfl {command[0]} takes no --plugin" in capsys.readouterr().err


NESTED = """
import jax
import jaxfl
from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.facts import method
from jaxfl.core.types import Algorithm


@method(title="Nested", paper="this test", personal="its model", sends="its model")
def nested(task) -> Algorithm:
    '''Local training, with weights for each layer, by name, in two levels.'''
    local = ALGORITHMS["local"](task)

    def round(key, state, cohort):
        state, info = local.round(key, state, cohort)
        # One of them of a type that NumPy does not have.
        weights = {"params": {"Dense_0": info.weights, "b": info.weights.astype("bfloat16")}}
        return state, info._replace(weights=weights)

    return Algorithm(local.init, round, local.models, local.apply)


ALGORITHMS["nested"] = nested
"""


@pytest.mark.slow
def test_weights_of_parts_of_parts_are_named_by_their_paths(tmp_path):
    (tmp_path / "nested.py").write_text(NESTED)
    run = tmp_path / "run"
    plugin = ["--plugin", str(tmp_path / "nested.py")]
    try:
        assert main(["run", "nested", *SHORT, *plugin, "--out", str(run)]) == 0
        assert main(["report", str(run), "--html", str(tmp_path / "page.html")]) == 0
        graph = jaxfl.load(run).graph
    finally:
        ALGORITHMS.pop("nested", None)
    names = {name for name in graph if name.startswith("weights")}
    assert names == {"weights_params/Dense_0", "weights_params/b"}
    np.testing.assert_array_equal(graph["weights_params/b"], np.eye(2)[None])
    assert graph["weights_params/b"].dtype == np.float32
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert set(line["graph"]) == {"params/Dense_0", "params/b"}


MEASURE = """
import jax
import jax.numpy as jnp
from jaxfl.kernels.similarity import MEASURES


def ones(stacked):
    '''All pairs of models are equally similar.'''
    models = jax.tree.leaves(stacked)[0].shape[0]
    return jnp.ones((models, models))


def flat(stacked):
    '''A vector, where a matrix is expected.'''
    return jnp.ones(jax.tree.leaves(stacked)[0].shape[0])


MEASURES["ones"] = ones
MEASURES["flat"] = flat
"""


def test_a_measure_of_a_file_is_listed_by_name_and_otherwise_unknown(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(MEASURE)
    run = ["run", "pfedgraph", *SHORT, "--hyper", "measure=ones", "--out", str(tmp_path / "run")]
    assert main(run) == 2
    expected = "is 'ones': expected one of cosine, dice, inner, l2, l1"
    assert f"hyper-parameter measure of pfedgraph {expected}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    plugin = ["--plugin", str(tmp_path / "mine.py")]
    assert main(["list", "ones", *plugin]) == 0
    text = capsys.readouterr().out
    assert "ones: measure, --hyper measure=ones" in text
    assert "All pairs of models are equally similar." in text
    assert main(["list", "pfedgraph", *plugin]) == 0
    assert "one of cosine, dice, inner, l2, l1, ones, flat" in capsys.readouterr().out
    content = {"algorithm": "pfedgraph", "hyper": {"measure": "none"}, "plugin": ["mine.py"]}
    with pytest.raises(InputError, match=r"is 'none': expected .*\(the run had --plugin mine\.py"):
        config_from(content, Path("c.json"))


@pytest.mark.slow
def test_a_measure_of_a_file_is_that_of_runs_and_searches(tmp_path, capsys):
    """All similarities are equal, so the weights are the sizes of two equal clients."""
    (tmp_path / "mine.py").write_text(MEASURE)
    plugin = ["--plugin", str(tmp_path / "mine.py")]
    run = ["run", "pfedgraph", *SHORT, "--partition", "iid", *plugin]
    assert main([*run, "--hyper", "measure=ones", "--out", str(tmp_path / "run")]) == 0
    np.testing.assert_allclose(jaxfl.load(tmp_path / "run").graph["weights"], 0.5, atol=0.01)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["hyper"] == {"measure": "ones"}
    again = ["run", "--config", str(tmp_path / "run" / "config.json")]
    assert main([*again, *plugin, "--out", str(tmp_path / "again")]) == 0
    capsys.readouterr()
    assert main([*run, "--hyper", "measure=flat", "--out", str(tmp_path / "flat")]) == 2
    error = capsys.readouterr().err
    assert "the values of measure flat are float32 [2]: expected floating-point" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "flat").exists()
    search = ["sweep", "pfedgraph", *SHORT, *plugin, "--over", "measure=cosine,ones"]
    assert main([*search, "--out", str(tmp_path / "search")]) == 0
    assert "ones" in capsys.readouterr().out
