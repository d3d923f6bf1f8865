"""Search over hyper-parameters: its files, and that it goes on where it was stopped."""

import dataclasses
import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from jaxfl.cli import main
from jaxfl.core.errors import InputError, Terminated
from jaxfl.experiment import Config
from jaxfl.experiment.config import parse_value
from jaxfl.experiment.studies import trials
from jaxfl.experiment.studies.points import grid_points, parse_space, random_points
from jaxfl.experiment.studies.sweep import resume_search, search

SHORT = [
    "--rounds",
    "2",
    "--local-steps",
    "3",
    "--model",
    "linear",
    "--partition",
    "dirichlet",
    "--eval-every",
    "2",
]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_test_scores_of_all_trials_are_shown_when_they_are_asked_for(capsys):
    options = ["sweep", "fedprox", *SHORT, "--over", "mu=0.1,10"]
    assert main([*options, "--show-test", "--out", "shown"]) == 0
    assert "test (not for choosing)" in " ".join(capsys.readouterr().out.split())
    found = json.loads(Path("shown/sweep.json").read_text())
    scores = [trial["test_not_for_choosing"] for trial in found["trials"]]
    assert scores[0] == found["best"]["test"]
    assert len(scores) == 2
    vals = [trial["val"] for trial in found["trials"]]
    assert vals == sorted(vals, reverse=True)  # the order is that of the validation scores


def test_spaces():
    space = parse_space(
        ("alpha=0.2,0.8", "lam=0.001:1:log", "anchor=cosine,approx", "own=-1:1"), parse_value
    )
    assert space["alpha"] == [0.2, 0.8]
    assert space["lam"] == (0.001, 1.0, "log")
    assert space["anchor"] == ["cosine", "approx"]
    drawn = random_points(space, 200, seed=0)
    assert drawn == random_points(space, 200, seed=0) != random_points(space, 200, seed=1)
    lams = np.array([point["lam"] for point in drawn])
    assert lams.min() >= 0.001
    assert lams.max() <= 1
    assert 0.3 < (lams < 0.03).mean() < 0.7  # log-uniform: the middle of the exponents
    assert {point["alpha"] for point in drawn} == {0.2, 0.8}
    assert abs(np.mean([point["own"] for point in drawn])) < 0.2
    assert len(grid_points({"a": [1, 2], "b": [3, 4, 5]})) == 6


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (("alpha",), "expected NAME=VALUE"),
        (("alpha=",), "expected NAME=VALUE"),
        (("alpha=1", "alpha=2"), "'alpha' is given twice"),
        (("alpha=2:1",), "is no range"),
        (("alpha=0:1:log",), "is no range"),
        (("alpha=a:b",), "is no range"),
        (("alpha=0:1:lin",), "is no range"),
        (("alpha=0:1:log:2",), "is no range"),
    ],
)
def test_no_space(pairs, message):
    with pytest.raises(InputError, match=message):
        parse_space(pairs, parse_value)


@pytest.mark.long(every=4)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to vary"),
        (["--over", "alpha=0:1"], "alpha: a range needs --trials"),
        (
            ["--over", "alpha=0:1", "--trials", "0"],
            "--trials is 0: expected a whole number from 1 to",
        ),
        (["--over", "alhpa=1,2"], "did you mean alpha"),
        (["--over", "alpha=1,-2"], "alpha of pfedgraph is -2: expected a positive number"),
        (["--over", "lr=a,b"], "--lr is 'a': expected a non-negative number"),
        (["--over", "alpha=1,2", "--val", "0"], "no trial has a finite validation score"),
    ],
)
def test_bad_input_writes_nothing(arguments, message, capsys):
    assert main(["sweep", "pfedgraph", *SHORT, *arguments, "--out", "s"]) == 2
    assert message in capsys.readouterr().err
    assert not Path("s/sweep.json").exists()


TINY = Config(
    algorithm="local",
    rounds=1,
    local_steps=1,
    model="linear",
    partition="iid",
    clients=2,
    devices=1,
)
POINTS = [{"batch_size": 4}, {"batch_size": 8}]


def stop_after(count):
    """Follows a search and asks it to stop after so many trials."""

    def follow(done, total, best):
        if done == count:
            os.kill(os.getpid(), signal.SIGTERM)

    return follow


@pytest.mark.slow
def test_a_stopped_search_keeps_its_trials_and_goes_on_with_the_others(capsys, monkeypatch):
    out = Path("s")
    with pytest.raises(Terminated, match="jaxfl resume s goes on"):
        search(TINY, POINTS, out, follow=stop_after(1))
    first = json.loads((out / "trials.jsonl").read_text())
    assert first["place"] == 0
    points = []
    together = trials._together

    def count(built, some, *rest):
        points.extend(some)
        return together(built, some, *rest)

    monkeypatch.setattr(trials, "_together", count)
    assert main(["resume", "s"]) == 0
    assert "2 of 2 trials done" in capsys.readouterr().out
    assert points == POINTS[1:]
    vals = {
        trial["point"]["batch_size"]: trial["val"]
        for trial in json.loads((out / "sweep.json").read_text())["trials"]
    }
    assert vals[4] == first["val"]
    assert sorted(vals) == [4, 8]
    assert not (out / "trials.jsonl").exists()  # it has test scores that nobody asked for
    assert main(["resume", "s"]) == 2
    assert "the search in s is finished" in capsys.readouterr().err


def test_a_search_goes_on_in_one_process(capsys):
    Path("s").mkdir()
    Path("s/search.json").touch()
    assert main(["resume", "s", "--rounds", "3", "--join", "cluster"]) == 2
    assert "leave out --rounds and --join" in capsys.readouterr().err


@pytest.mark.slow
def test_a_search_that_is_stopped_after_its_last_trial_is_finished_and_says_so():
    with pytest.raises(Terminated, match="the search in s is finished"):
        search(TINY, POINTS[:1], Path("s"), follow=stop_after(1))
    assert Path("s/sweep.json").exists()


@pytest.mark.slow
def test_a_search_does_not_go_on_with_another_graph():
    gossip = dataclasses.replace(TINY, algorithm="gossip", hyper={"graph": "g.npy"})
    np.save("g.npy", np.ones((2, 2)))
    with pytest.raises(Terminated):
        search(gossip, POINTS, Path("s"), follow=stop_after(1))
    np.save("g.npy", np.eye(2))
    with pytest.raises(InputError, match=r"hyper-parameter graph .* has changed since"):
        resume_search(Path("s"))
