"""Each script of `experiments/` runs with its smallest options (`SMOKE`) and writes its results."""

import importlib
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from experiments import gossip_quadratics, partial_results, pfedgat_newcomers
from experiments.tables import standins
from jaxfl.core.errors import InputError

FOLDER = Path(__file__).parents[2] / "experiments"
# Many programs to compile.
SLOW = {
    "adaptive",
    "depth",
    "fedcedar_case_study",
    "gfedmtl_fig2",
    "gfedmtl_integral",
    "known_defences",
    "never_worse",
    "pfedgat_attention",
}
SCRIPTS = [
    pytest.param(file.stem, marks=pytest.mark.slow) if file.stem in SLOW else file.stem
    for file in sorted(FOLDER.glob("*.py"))
    if file.stem not in {"__init__", "command", "partial_results", "seeds"}
]


@pytest.mark.slow
@pytest.mark.pictures
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_and_writes_numbers_and_pictures(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = importlib.import_module(f"experiments.{name}")
    out = tmp_path / "out"
    script.main(out=out, **script.SMOKE)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    written = {file.suffix for file in out.iterdir() if file.is_file() and file.stat().st_size}
    assert {".json", ".png"} <= written


@pytest.mark.slow
@pytest.mark.pictures
@pytest.mark.parametrize(
    ("name", "dataset", "options"),
    [
        (
            "fedcedar_case_study",
            "mnist",
            {"preset": "fedcedar-case-study", "examples": ("all",)},
        ),
        (
            "pfedgat_attention",
            "cifar10",
            {"dataset": "cifar10", "model": "lenet", "local_epochs": 1},
        ),
    ],
)
def test_a_script_takes_the_data_and_the_model_of_its_paper(name, dataset, options, tmp_path):
    standins.write(dataset, tmp_path)
    script = importlib.import_module(f"experiments.{name}")
    script.main(out=tmp_path / "out", data_dir=str(tmp_path), **script.SMOKE | options)
    assert {".json", ".png"} <= {file.suffix for file in (tmp_path / "out").iterdir()}


def test_kept_results_are_those_of_the_same_options(tmp_path):
    file = tmp_path / "new" / "results.json"
    assert partial_results.load(file, {"examples": ("all",)}) == {}
    partial_results.save(file, {"examples": ("all",)}, {"3": {"rand": np.array([[0.1, 1.0]])}})
    found = partial_results.load(file, {"examples": ("all",)})
    assert list(found) == ["3"]
    np.testing.assert_array_equal(found["3"]["rand"], [[0.1, 1.0]])
    for options in ({"examples": (1,)}, {"examples": ("all",), "seeds": 1}, {}):
        with pytest.raises(InputError, match="results of other options"):
            partial_results.load(file, options)
    assert partial_results.load(file, {"examples": ("all",)}).keys() == {"3"}


def test_a_file_of_other_results_is_refused(tmp_path):
    file = tmp_path / "rand.json"
    for text in ('{"3": {"rand": [[1.0]]}}', "[1.0]"):
        file.write_text(text)
        with pytest.raises(InputError, match="results of other options"):
            partial_results.load(file, {"seeds": 1})
    file.write_text('{"3": ')
    with pytest.raises(InputError, match="is not JSON"):
        partial_results.load(file, {"seeds": 1})


@pytest.mark.slow(seconds=10)
def test_newcomers_keep_the_results_of_each_method(tmp_path, monkeypatch):
    smoke = pfedgat_newcomers.SMOKE | {"methods": ("fedavg",)}
    pfedgat_newcomers.main(out=tmp_path, **smoke)
    first = json.loads((tmp_path / "results.json").read_text())["results"]
    with pytest.raises(InputError, match="results of other options"):
        pfedgat_newcomers.main(out=tmp_path, **smoke | {"local_steps": 2})

    def never(*_):
        raise AssertionError("fedavg runs again")

    methods = pfedgat_newcomers.METHODS | {"fedavg": (never, {})}
    monkeypatch.setattr(pfedgat_newcomers, "METHODS", methods)
    pfedgat_newcomers.main(out=tmp_path, **smoke | {"methods": ("fedavg", "local")})
    found = json.loads((tmp_path / "results.json").read_text())["results"]
    assert list(found) == ["fedavg", "local"]
    assert found["fedavg"] == first["fedavg"]


@pytest.mark.slow
def test_gossip_stands_still_at_the_published_steps():
    published = tomllib.loads(gossip_quadratics.PUBLISHED.read_text())
    for zeta2, by_workers in published.items():
        steps, rate = by_workers["4"][0]
        assert gossip_quadratics.measure(4, float(zeta2), 0, rate) == steps


def test_bad_input_of_a_script_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "experiments.gossip_quadratics", "--out", "file/x"]
    environment = os.environ | {"PYTHONPATH": str(FOLDER.parent)}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert "file/x" in ended.stderr
