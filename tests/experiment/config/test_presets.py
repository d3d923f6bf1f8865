"""`--preset`: the protocol of a table from the command line, and options that change it."""

import dataclasses
import json

import numpy as np
import pytest

from jaxfl.cli import main, parse
from jaxfl.experiment.config import PRESETS, preset
from jaxfl.simulation import scoring

SMALL = ["--dataset", "digits", "--model", "linear", "--rounds", "2", "--local-steps", "2"]


@pytest.mark.slow
def test_the_options_of_a_preset_are_those_of_the_command_but_for_what_is_given():
    command = parse(["run", "local", "--preset", "pfedgraph-modest", "--partition", ":beta=0.3"])
    expected = preset("pfedgraph-modest").options | {"beta": 0.3}
    found = {name: getattr(command, name) for name in expected}
    assert found == expected
    changed = parse(["compare", "--preset", "pfedgat-iid", "--local-steps", "7"])
    assert (changed.local_steps, changed.local_epochs) == (7, None)
    # What had its effect in the preset alone is left out where it has none.
    moved = parse(["describe", "--preset=pfedgraph-modest", "--partition", "iid"])
    assert moved.beta == 0.5


@pytest.mark.slow(seconds=9)
def test_a_comparison_takes_hyper_parameters_and_score_from_the_preset(tmp_path, capsys):
    out = tmp_path / "out"
    words = ["compare", "--preset", "pfedgraph-severe"]
    words += ["--algorithms", "cfl", "per_fedavg", "ditto"]
    words += ["--hyper", "per_fedavg.alpha=0.5", "--out", str(out), *SMALL]
    assert main(words) == 0
    hyper = {
        name: json.loads((out / name / "config.json").read_text())["hyper"]
        for name in ("cfl", "per_fedavg", "ditto")
    }
    assert hyper["cfl"] == preset("pfedgraph-severe").hyper["cfl"]
    assert hyper["per_fedavg"] == {"alpha": 0.5}
    shown = capsys.readouterr().out
    for name, stage in (("cfl", "trained"), ("ditto", "deployed")):
        with np.load(out / name / "clients.npz") as opened:
            score = scoring.score(dict(opened), "selected_on_val", stage)
        assert f"{score:.4f}" in shown, name


@pytest.mark.slow
def test_the_trained_models_that_a_run_scores_are_those_before_the_server_answers(tmp_path):
    """The scores of FedAvg's trained models are those that FedAvg with fine-tuning deploys."""
    for name, after in (("fedavg", "trained"), ("fedavg_ft", "none")):
        words = ["run", name, "--score-after", after, "--out", str(tmp_path / name), *SMALL]
        assert main(words) == 0
    with (
        np.load(tmp_path / "fedavg" / "clients.npz") as one,
        np.load(tmp_path / "fedavg_ft" / "clients.npz") as other,
    ):
        np.testing.assert_array_equal(one["trained_test"], other["deployed_test"])
        assert {name for name in other if name.endswith("_test")} == {"deployed_test"}


@pytest.mark.long(every=4)
@pytest.mark.parametrize("name", PRESETS)
def test_the_options_of_a_preset_exist(name):
    known = {field.name for field in dataclasses.fields(parse(["run", "local"]))}
    assert set(PRESETS[name].options) <= known


def test_without_their_files_the_hospitals_say_where_these_are_and_go(tmp_path, capsys):
    assert main(["compare", "--preset", "hospitals", "--data-dir", str(tmp_path)]) == 2
    (line,) = " ".join(capsys.readouterr().err.split()).split(" error: ")[-1:]
    assert "data set heart_disease was not found: put processed.cleveland.data" in line
    assert f"archive.ics.uci.edu/dataset/45/heart+disease into {tmp_path}/heart_disease" in line


@pytest.mark.slow(seconds=15)
def test_a_comparison_of_hospitals_ends_with_a_row_for_each(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 13)), np.arange(80) // 4 % 2
    np.savez(tmp_path / "heart_disease.npz", x=x, y=y, hospital=np.arange(80) % 4)
    words = ["compare", "--preset", "hospitals", "--data-dir", str(tmp_path), "--folds", "2"]
    words += ["--algorithms", "local", "fedavg", "--model", "linear", "--rounds", "1"]
    assert main([*words, "--local-steps", "2", "--out", str(tmp_path / "out")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    first = [row[0] for row in rows if len(row) > 4]
    # In a table of all methods, and in one of what FedAvg is worth beside training alone.
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        assert first.count(hospital) == 2
    assert first.index("cleveland") > first.index("fedavg")
