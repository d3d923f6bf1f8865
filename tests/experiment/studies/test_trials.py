"""Trials side by side in one program: they equal single runs."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxfl.cli import main

SHORT = ["--rounds", "2", "--local-steps", "3", "--model", "linear", "--partition", "dirichlet"]
SHORT += ["--eval-every", "2"]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_trial_scores_what_its_run_scores():
    assert (
        main(["sweep", "fedcedar", *SHORT, "--over", "clusters=2,3", "lr=0.01,0.1", "--out", "s"])
        == 0
    )
    found = json.loads(Path("s/sweep.json").read_text())
    vals = [trial["val"] for trial in found["trials"]]
    assert len(vals) == 4
    assert vals == sorted(vals, reverse=True)
    assert all("test" not in trial for trial in found["trials"])
    assert main(["run", "--config", "s/best.json", "--out", "r"]) == 0
    with np.load("r/clients.npz") as scores:
        assert found["best"]["val"] == pytest.approx(
            float(scores["deployed_val"][-1].mean()), abs=1e-6
        )
        assert found["best"]["test"] == pytest.approx(
            float(scores["deployed_test"][-1].mean()), abs=1e-6
        )
    assert Path("s/sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow(seconds=6)
def test_malicious_clients_have_no_scores():
    given = ["--attack", "label_flip:clients=0+3", "--val", "0.4"]
    assert main(["sweep", "local", *SHORT, *given, "--over", "lr=0.01", "--out", "s"]) == 0
    found = json.loads(Path("s/sweep.json").read_text())["best"]
    assert main(["run", "--config", "s/best.json", "--out", "r"]) == 0
    with np.load("r/clients.npz") as scores:
        assert found["test"] == pytest.approx(np.nanmean(scores["deployed_test"][-1]), abs=1e-6)


@pytest.mark.slow
def test_numbers_of_two_seeds_side_by_side_give_what_one_alone_gives():
    options = ["sweep", "pfedgraph", *SHORT, "--seeds", "2"]
    assert main([*options, "--over", "alpha=0.3,0.9", "--out", "both"]) == 0
    assert main([*options, "--over", "alpha=0.9", "--out", "one"]) == 0
    both, one = (
        json.loads(Path(name, "sweep.json").read_text())["trials"] for name in ("both", "one")
    )
    assert all(set(trial) == {"point", "val"} for trial in both)  # no test score unasked
    (same,) = [trial for trial in both if trial["point"] == {"alpha": 0.9}]
    assert same["val"] == pytest.approx(one[0]["val"], abs=1e-3)
