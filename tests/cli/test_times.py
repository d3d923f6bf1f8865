"""From the CSV files of sites with times to an event to curves and sets, on the command line."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from jaxfl.cli import main

SITES = ("north", "south", "west")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Three sites where older patients have the event earlier."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for site in SITES:
        age = rng.normal(60, 10, 80)
        time = rng.exponential(1000 * np.exp(-(age - 60) / 10))
        end = rng.uniform(200, 2000, 80)
        rows = [
            f"{a:.1f},{min(t, e):.1f},{t <= e:d}" for a, t, e in zip(age, time, end, strict=True)
        ]
        Path(f"{site}.csv").write_text("\n".join(["age,days,died", *rows]))
    files = [f"{site}.csv" for site in SITES]
    words = ["prepare", "csv", *files, "--time", "days", "--event", "died"]
    assert main([*words, "--name", "sites", "--data-dir", "data"]) == 0
    return tmp_path


def test_describe_counts_the_events_of_each_part(here, capsys):
    assert main(["describe", "--dataset", "sites", "--data-dir", "data"]) == 0
    shown = capsys.readouterr().out
    for site in SITES:
        events = np.loadtxt(f"{site}.csv", delimiter=",", skiprows=1)[:, 2].sum()
        counts = re.search(rf"{site}\W+48\W+16\W+16\W+(\d+) / (\d+) / (\d+)", shown)
        each = [int(count) for count in counts.groups()]
        assert sum(each) == events
        np.testing.assert_allclose(each, events * np.array([0.6, 0.2, 0.2]), atol=1)


DATA = ["--dataset", "sites", "--data-dir", "data", "--rounds", "3", "--local-steps", "20"]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["cox", "hazards"])
def test_risks_and_curves_are_learned_and_predicted(here, capsys, loss):
    metrics = ["concordance", "concordance_ipcw"]
    if loss == "hazards":
        metrics += ["integrated_brier", "calibration_at:500"]
    run = ["compare", "local", "fedavg", *DATA, "--lr", ".1", "--loss", loss]
    assert main([*run, "--metric", *metrics, "--out", "runs"]) == 0
    shown = capsys.readouterr().out
    assert "concordance" in shown
    assert "constant   " in shown
    predict = ["predict", "runs/fedavg", "--client", "south", "--input", "south.csv"]
    assert main([*predict, "--times", "100", "500", "--out", "said.csv"]) == 0
    score = capsys.readouterr().out
    assert "concordance: 0." in score
    assert main(["report", "runs", "--html", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert "Who is free of the event" in page
    assert "by risk: fedavg" in page
    for site in SITES:
        events = np.loadtxt(f"{site}.csv", delimiter=",", skiprows=1)[:, 2].sum()
        assert f"{site} ({events:.0f} of 80)" in page
    with open("said.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["line", "risk", "free_100", "free_500"]
    risk, early, late = (np.array([float(row[name]) for row in rows]) for name in list(rows[0])[1:])
    age = np.loadtxt("south.csv", delimiter=",", skiprows=1)[:, 0]
    assert np.corrcoef(age, risk)[0, 1] > 0.8
    assert np.all((early > late) & (late > 0) & (early < 1))
    assert main([*predict, "--conformal", "0.1", "--out", "sets.csv"]) == 0
    with open("sets.csv", newline="") as file:
        bounds = np.array([float(row["free_until"]) for row in csv.DictReader(file)])
    assert np.all(np.diff(bounds[np.argsort(risk)]) <= 1e-6)
    assert main(["report", "runs/fedavg", "--conformal", "0.1"]) == 0
    assert "bound: the mean time until which" in capsys.readouterr().out
    # The higher the risk, the less are free of the event.
    assert np.all(np.diff(late[np.argsort(risk)]) <= 1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["prepare", "csv", "north.csv", "--time", "days"], "--time and --event belong together"),
        (
            ["prepare", "csv", "north.csv", "--time", "days", "--event", "died", "--target", "age"],
            "--target names another: leave out one",
        ),
        (["run", "fedavg", "--loss", "cox"], "--loss cox is of times to an event"),
        (
            ["run", "fedavg", *DATA, "--metric", "integrated_brier"],
            "--metric integrated_brier is of probabilities, and Cox's model predicts a risk alone",
        ),
        (["run", "fedavg", *DATA, "--metric", "accuracy"], "the targets of the data are times"),
        (["run", "fedproto", *DATA, "--out", "x"], "FedProto needs labels"),
        (["run", "fedavg", *DATA, "--example-clip", "1"], "depends on the others of its batch"),
    ],
)
def test_what_does_not_go_with_times_is_one_line(here, monkeypatch, capsys, words, message):
    capsys.readouterr()
    monkeypatch.setenv("JAXFL_DATA_DIR", "data")
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_sets_hold_the_truth_in_the_table_and_in_predictions(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = ["run", "pfedgraph", "--partition", "dirichlet", "--clients", "4", "--rounds", "2"]
    assert main([*run, "--score-after", "none", "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["report", "run", "--conformal", "0.1"]) == 0
    shown = capsys.readouterr().out
    assert "sets that hold the truth for 90%" in shown
    table = shown[shown.index("sets that hold") :]
    rows = [
        line.split() for line in table.splitlines() if line.strip()[:1] in "0123" and "%" in line
    ]
    shares = [float(row[3]) for row in rows if len(row) > 8]
    assert len(shares) == 4
    assert np.mean(shares) >= 75
    np.savez("new.npz", x=np.zeros((2, 8, 8, 1), np.uint8))
    predict = ["predict", "run", "--client", "1", "--input", "new.npz"]
    for way in ("own", "all", "graph"):
        assert main([*predict, "--conformal", "0.1", "--calibration", way]) == 0
        header, *lines = capsys.readouterr().out.splitlines()
        assert header == "example,prediction,set"
        assert all(set(line.split(",")[2].split()) <= set("0123456789") for line in lines)
    assert main([*predict, "--conformal", "0.001"]) == 0
    assert "too few for sets that hold the truth for" in capsys.readouterr().err
    assert main([*predict, "--conformal", "1.5"]) == 2
