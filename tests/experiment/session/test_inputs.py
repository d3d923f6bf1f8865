"""Files that a run reads beside its data: `resume` refuses others, by name."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from kill import interrupt_after

from jaxfl.algorithms import ALGORITHMS
from jaxfl.core.errors import InputError
from jaxfl.core.options import options_of
from jaxfl.experiment import Config, compare, execute, load_config, resume, resume_comparison
from jaxfl.experiment.config.hints import marked
from jaxfl.experiment.config.notes import INPUT, PATH
from jaxfl.experiment.config.paths import files_of, with_absolute_paths
from jaxfl.experiment.store.digests import changed_inputs, digest_inputs

SHORT = Config(
    algorithm="gossip",
    hyper={"graph": "graph.npy"},
    rounds=2,
    local_steps=1,
    model="linear",
    clients=2,
    partition="iid",
    score_after="none",
    keep_models="none",
    durations="durations.npy",
    plugin=("mine.py",),
    devices=1,
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("graph.npy", np.ones((2, 2)))
    np.save("durations.npy", np.ones(2))
    Path("mine.py").write_text("")


def test_every_option_that_is_the_path_of_a_file_is_an_input():
    """A store of data is no file: its digest is that of the data."""
    assert marked(Config, PATH) - {"store"} == marked(Config, INPUT)


def test_every_hyper_parameter_that_takes_a_text_may_be_a_file():
    taking = [
        (name, option)
        for name, factory in ALGORITHMS.items()
        for option, (hint, _) in options_of(factory).items()
        if "str" in re.findall(r"\w+", str(hint))
        and "Literal" not in str(hint)
        and "Names" not in str(hint)
    ]
    assert taking
    for algorithm, option in taking:
        config = Config(algorithm=algorithm, hyper={option: "graph.npy"})
        absolute = with_absolute_paths(config)
        assert absolute.hyper[option] == str(Path("graph.npy").absolute())
        assert list(files_of(absolute)) == [f"hyper-parameter {option}"]


def test_a_name_is_no_file():
    Path("ring").touch()
    assert not files_of(Config(algorithm="gossip", hyper={"graph": "ring"}))


CHANGES = {
    "hyper-parameter graph": lambda: np.save("graph.npy", np.eye(2)),
    "--durations": lambda: np.save("durations.npy", np.array([1.0, 2.0])),
    "--plugin mine.py": lambda: Path("mine.py").write_text("print()"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_file_that_has_changed_is_named(name):
    before = digest_inputs(SHORT)
    CHANGES[name]()
    assert changed_inputs(before, digest_inputs(SHORT)) == [
        f"what the file of {name} holds has changed"
    ]


def test_a_plug_in_may_move_but_not_be_left_out():
    before = digest_inputs(SHORT)
    Path("other").mkdir()
    Path("mine.py").rename("other/mine.py")
    moved = dataclasses.replace(SHORT, plugin=("other/mine.py",))
    assert not changed_inputs(before, digest_inputs(moved))
    without = digest_inputs(dataclasses.replace(SHORT, plugin=()))
    assert changed_inputs(before, without) == ["--plugin mine.py was given and is not"]
    assert changed_inputs(without, before) == ["--plugin mine.py was not given and is"]


def test_a_file_that_is_gone_is_named():
    Path("durations.npy").unlink()
    with pytest.raises(InputError, match=r"the file of --durations, .* cannot be read"):
        digest_inputs(SHORT)


@pytest.mark.slow
def test_a_run_goes_on_from_another_folder_but_not_with_another_graph(tmp_path, monkeypatch):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        execute(SHORT, out, follow=interrupt_after(1))
    config = load_config(out / "config.json")
    assert config.hyper["graph"] == str(tmp_path / "graph.npy")
    assert config.plugin == (str(tmp_path / "mine.py"),)
    # The same run without a checkpoint, as it is before its first one
    early = tmp_path / "early"
    shutil.copytree(out, early)
    shutil.rmtree(early / "checkpoints")
    # In a folder that has another file of this name, that of before counts.
    (tmp_path / "other").mkdir()
    np.save("other/graph.npy", np.eye(2))
    monkeypatch.chdir(tmp_path / "other")
    np.save(tmp_path / "graph.npy", np.eye(2))
    for place in (out, early):
        with pytest.raises(InputError, match=r"hyper-parameter graph holds has changed since"):
            resume(place)
    np.save(tmp_path / "graph.npy", np.ones((2, 2)))
    for place in (out, early):
        with pytest.raises(InputError, match=r"--plugin mine\.py was given and is not since"):
            resume(place, plugin=())
    assert resume(out)["rounds"] == 2


@pytest.mark.slow(seconds=9)
def test_a_comparison_does_not_go_on_with_another_graph_or_other_data(tmp_path):
    out = tmp_path / "x"
    configs = [SHORT, dataclasses.replace(SHORT, algorithm="local", hyper={})]
    with pytest.raises(KeyboardInterrupt):
        compare(configs, out, follow=interrupt_after(2))
    np.save("graph.npy", np.eye(2))
    with pytest.raises(InputError, match=r"hyper-parameter graph .* has changed since .*inputs"):
        resume_comparison(out)
    np.save("graph.npy", np.ones((2, 2)))
    digests = json.loads((out / "inputs.json").read_text())
    other = json.dumps(digests | {"data": ["0"]})
    before = (out / "inputs.json").read_text()
    (out / "inputs.json").write_text(other)
    with pytest.raises(InputError, match=r"the examples of the clients have changed since"):
        resume_comparison(out)
    (out / "inputs.json").write_text(before)
    assert list(resume_comparison(out)) == ["gossip", "local"]
