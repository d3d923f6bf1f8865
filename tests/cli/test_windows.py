"""From the CSV files of a sensor to predictions of new windows, on the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest

from jaxfl.cli import main

PREPARE = ["prepare", "windows", "ann.csv", "bob.csv", "--target", "state", "--name", "walks"]
DATA = ["--data-dir", "data"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for person in ("ann", "bob"):
        lines = ["trial,force,state"]
        for trial in range(4):
            state = ["sit", "walk"][trial % 2]
            forces = rng.normal(size=30) * (1 + 5 * (trial % 2))
            lines += [f"{trial},{force:.3f},{state}" for force in forces]
        Path(f"{person}.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.slow
def test_windows_are_learned_from_and_predicted(here, capsys):
    assert main([*PREPARE, *DATA, "--series", "trial", "--steps", "6"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "40 windows of 2 sites: ann (20), bob (20)" in shown
    assert "1 features at each of 6 steps" in shown
    run = ["run", "fedavg", "--dataset", "walks", *DATA, "--rounds", "3", "--local-steps", "20"]
    assert main([*run, "--score-after", "none", "--out", "run"]) == 0
    capsys.readouterr()
    predict = ["predict", "run", "--client", "bob", "--input", "bob.csv", "--out", "said.csv"]
    assert main(predict) == 0
    with open("said.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["line"] for row in rows[:6]] == ["2", "8", "14", "20", "26", "32"]
    states = ["sit"] * 5 + ["walk"] * 5
    assert (
        np.mean([row["prediction"] == state for row, state in zip(rows, 2 * states, strict=True)])
        > 0.8
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*PREPARE, *DATA], "jaxfl prepare windows needs --steps, rows of a window"),
        (
            ["prepare", "csv", *PREPARE[2:], *DATA, "--steps", "3"],
            "--steps: for windows, not for jaxfl prepare csv; leave it out",
        ),
        (
            ["prepare", "mnist", *DATA, "--series", "trial"],
            "--series: for windows, not for jaxfl prepare mnist; leave it out",
        ),
        ([*PREPARE, *DATA, "--size", "8"], "--size: for images, not for jaxfl prepare windows"),
        (["prepare", "images", "a", "b", *DATA], "jaxfl prepare images takes one folder, not 2"),
        ([*PREPARE, *DATA, "--steps", "31", "--series", "trial"], "holds no 31 steps of one"),
        (
            [*PREPARE, *DATA, "--steps", "3", "--words", "5"],
            "--words: for published data",
        ),
    ],
)
def test_what_gives_no_windows_is_one_line(here, capsys, words, message):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("data").exists()
